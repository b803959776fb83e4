//! Packets of all sizes between nodes: of exactly the Pod's MTU and not to be fragmented, larger
//! ones in fragments, and ones that are too large for a link on their way.
//!
//! The shared lab has an underlay of 1500 bytes; others are made for narrower and wider ones.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::frames::{Sniffer, mtu_of};
use super::{Context, Lab, Outcome, Pod};
use crate::addressing;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::Layout;
use crate::preflight::program;
use crate::state::Mode;
use crate::ui::Progress;
use crate::up::{self, UNDERLAY_MTU, UpOptions};
use crate::variant::{IpFamily, Tunnel, Variant};
use crate::{ip, netns, probe};

/// Underlays besides the usual one: what clouds have, too.
const UNDERLAYS: [u16; 2] = [1450, 9001];
/// MTU of a link behind the outside host, the least that IPv6 allows.
const NARROW: u16 = 1280;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let mut seen = vec![on_underlay(context, UNDERLAY_MTU)?];
    for underlay in UNDERLAYS {
        let layout = Layout::beside(context.dir, "mtu")?;
        let options = UpOptions {
            underlay_mtu: underlay,
            ..UpOptions::new(2, context.variant, Mode::Standalone, context.bin_dir.to_owned())
        };
        let lab = Lab(up::run(&layout, &options, &Progress::start())?);
        let context = Context { store: Some(&lab.0), dir: layout.dir(), ..*context };
        seen.push(on_underlay(&context, underlay)?);
    }
    Ok(Outcome::Passed(Value::Array(seen)))
}

fn on_underlay(context: &Context<'_>, underlay: u16) -> Result<Value> {
    let said = |error: LabError| LabError::new(format!("underlay {underlay}: {}", error.chain()));
    try_sizes(context, underlay).map_err(said)
}

fn try_sizes(context: &Context<'_>, underlay: u16) -> Result<Value> {
    let a = context.pod("node-1", "mtu-1")?;
    let b = context.pod("node-2", "mtu-2")?;
    let mtu = mtu_of(&a.sandbox.netns, "eth0")?;
    let want = usize::from(underlay) - overhead(context.variant);
    if mtu != want {
        return Err(LabError::new(format!("Pods have an MTU of {mtu}, {want} fit")));
    }
    let sniffer = Sniffer::start(&b.sandbox.netns, "eth0")?;
    let targets = b.targets();
    for target in &targets {
        crosses(&a, *target, mtu, &sniffer)?;
        fragments_cross(&a, *target, mtu, &sniffer)?;
    }
    let family = context.variant.family;
    let outside_netns = context.store()?.layout().outside_netns();
    let outside = addressing::behind_outside(family);
    let port = probe::serve(&outside_netns, "outside", &outside)?;
    let sniffer = Sniffer::start(&outside_netns, "eth0")?;
    for address in outside {
        fragments_cross(&a, SocketAddr::new(address, port), mtu, &sniffer)?;
    }
    let narrow = Narrow::make(&outside_netns, family)?;
    for address in addressing::behind_narrow(family) {
        path_mtu_is_learned(&a, address, mtu)?;
    }
    drop(narrow);
    Ok(json!({
        "underlay": underlay,
        "podMtu": mtu,
        "families": targets.len(),
        "fragments": "answered",
        "pathMtu": NARROW,
    }))
}

/// What the way between nodes adds to a Pod's packet.
fn overhead(variant: Variant) -> usize {
    let outer = if variant.family == IpFamily::Ipv6 { 40 } else { 20 };
    let inner_ethernet = 14;
    outer
        + inner_ethernet
        + match variant.tunnel {
            Tunnel::Geneve | Tunnel::Vxlan => 8 + 8,
            Tunnel::Gre => 8,
        }
}

fn crosses(from: &Pod<'_>, target: SocketAddr, mtu: usize, sniffer: &Sniffer) -> Result<()> {
    // Linux sets DF on datagrams that fit; the headers of IP and UDP are not payload.
    let headers = if target.is_ipv4() { 20 + 8 } else { 40 + 8 };
    exchange(from, target, mtu - headers)?;
    let is_whole = |frame: &[u8]| match frame.get(12..14) {
        Some([0x08, 0x00]) if target.is_ipv4() => {
            length(frame, 16) == Some(mtu) && frame.get(20).is_some_and(|flags| flags & 0x40 != 0)
        }
        // UDP follows at once: no header of a fragment between.
        Some([0x86, 0xdd]) if target.is_ipv6() => {
            length(frame, 18) == Some(mtu - 40) && frame.get(20) == Some(&17)
        }
        _ => false,
    };
    caught(sniffer, &format!("a whole packet of {mtu} bytes to {}", target.ip()), is_whole)
}

/// A datagram of several packets goes there and back.
fn fragments_cross(
    from: &Pod<'_>,
    target: SocketAddr,
    mtu: usize,
    sniffer: &Sniffer,
) -> Result<()> {
    exchange(from, target, mtu * 3)?;
    let is_fragment = |frame: &[u8]| match frame.get(12..14) {
        Some([0x08, 0x00]) if target.is_ipv4() => {
            frame.get(20..22).is_some_and(|at| at[0] & 0x3f != 0 || at[1] != 0)
        }
        Some([0x86, 0xdd]) if target.is_ipv6() => frame.get(20) == Some(&44),
        _ => false,
    };
    caught(sniffer, &format!("a fragment to {}", target.ip()), is_fragment)
}

fn exchange(from: &Pod<'_>, target: SocketAddr, payload: usize) -> Result<()> {
    let socket = probe::udp_socket(&from.sandbox.netns, target)?;
    socket.set_read_timeout(Some(Duration::from_secs(2))).doing(|| "set up the socket".into())?;
    let mut request = b"seq ".to_vec();
    request.resize(payload, b'm');
    let mut buffer = vec![0; 65536];
    let answered = (0..3).any(|_| {
        socket.send(&request).is_ok() && socket.recv(&mut buffer).is_ok_and(|n| n == payload)
    });
    if answered {
        return Ok(());
    }
    Err(LabError::new(format!("{payload} bytes to {} are not answered", target.ip())))
}

fn caught(sniffer: &Sniffer, what: &str, like: impl Fn(&[u8]) -> bool) -> Result<()> {
    // The sniffer may get to read it after the answer is here.
    wait_for(Duration::from_secs(5), what, || sniffer.saw(&like).then_some(()))
        .map_err(|_| LabError::new(format!("{what} was not seen")))
}

/// A Pod that sends too large packets to a far link is told, and its kernel believes it.
fn path_mtu_is_learned(from: &Pod<'_>, address: IpAddr, mtu: usize) -> Result<()> {
    let socket = probe::udp_socket(&from.sandbox.netns, SocketAddr::new(address, 9))?;
    let headers = if address.is_ipv4() { 20 + 8 } else { 40 + 8 };
    let payload = vec![b'm'; mtu - headers];
    let learned = wait_for(Duration::from_secs(10), "the path's MTU is learned", || {
        // Once it is learned, the kernel refuses what is too large.
        let _ = socket.send(&payload);
        std::thread::sleep(Duration::from_millis(20));
        let route = route_to(&from.sandbox.netns, address).ok()?;
        route.contains(&format!("mtu {NARROW}")).then_some(())
    });
    learned.map_err(|_| {
        let route = route_to(&from.sandbox.netns, address).unwrap_or_default();
        LabError::new(format!("no message about the MTU of the path to {address} came: {route}"))
    })
}

fn route_to(netns: &Path, address: IpAddr) -> Result<String> {
    let address = address.to_string();
    let output =
        netns::enter(netns, || program("ip").args(["-o", "route", "get", &address]).output())?
            .doing(|| "run ip".into())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A narrow link of the outside host, which forwards to it; both end when dropped.
struct Narrow<'a> {
    netns: &'a Path,
}

impl<'a> Narrow<'a> {
    fn make(netns: &'a Path, family: IpFamily) -> Result<Self> {
        let mut lines = vec![
            format!("link add narrow mtu {NARROW} type veth peer name narrow-far mtu {NARROW}"),
            "link set narrow addrgenmode none".into(),
            "link set narrow up".into(),
            "link set narrow-far up".into(),
        ];
        let narrow = addressing::behind_narrow(family);
        lines.extend(narrow.iter().map(|address| format!("route add {address} dev narrow")));
        let made = Self { netns };
        ip::batch(netns, &lines).doing(|| "make a narrow link".into())?;
        made.forward("1")?;
        Ok(made)
    }

    fn forward(&self, value: &str) -> Result<()> {
        let set = |path: &str| std::fs::write(path, value).doing(|| format!("write {path}"));
        netns::enter(self.netns, || {
            set("/proc/sys/net/ipv4/ip_forward")?;
            set("/proc/sys/net/ipv6/conf/all/forwarding")
        })?
    }
}

impl Drop for Narrow<'_> {
    fn drop(&mut self) {
        // The namespace may be gone already, and all of this with it.
        let _ = self.forward("0");
        let _ = ip::batch(self.netns, &["link del narrow".into()]);
    }
}

fn length(frame: &[u8], at: usize) -> Option<usize> {
    frame.get(at..at + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])))
}
