//! How long the host's part of a CNI ADD takes: veth into the Pod's namespace, drop chain, host end
//! up, and inside the Pod address, route, up, offload. And the address from `host-local`.
//!
//! `cargo run --release -p host --example pod_wiring -- 100` (as root) prints one line per step.
//! Everything is made in namespaces of its own, which end with the program.

use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};

use host::ipam::{Ipam, NetConf, Provider, Request};
use host::link::{self, VethSpec};
use host::netfilter::DropChains;
use host::netns::{self, Netns};
use host::route::{self, Route};
use host::{MacAddr, Rtnl, address, offload};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Steps in order, with the times each took.
#[derive(Default)]
struct Timings(Vec<(&'static str, Vec<Duration>)>);

impl Timings {
    fn measure<T>(&mut self, step: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.note(step, start.elapsed());
        result
    }

    fn note(&mut self, step: &'static str, took: Duration) {
        match self.0.iter_mut().find(|(name, _)| *name == step) {
            Some((_, all)) => all.push(took),
            None => self.0.push((step, vec![took])),
        }
    }
}

/// A named namespace that is deleted when dropped.
struct Pod(String);

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = netns::delete_named(&self.0);
    }
}

fn main() -> Outcome<()> {
    let n_rounds = std::env::args().nth(1).map_or(Ok(100), |text| text.parse())?;
    let node = format!("wiring-node-{}", std::process::id());
    let node_netns = netns::create_named(&node)?;
    let _node = Pod(node);
    let mut timings = node_netns.run(|| run(n_rounds))??;
    allocate(&mut timings, n_rounds)?;

    let mut out = std::io::stdout().lock();
    writeln!(out, "{:28} {:>8} {:>8}  over {n_rounds} Pods, ms", "step", "p50", "max")?;
    for (step, times) in &mut timings.0 {
        times.sort();
        let ms = |index: usize| times[index].as_secs_f64() * 1000.0;
        writeln!(out, "{step:28} {:8.3} {:8.3}", ms(times.len() / 2), ms(times.len() - 1))?;
    }
    Ok(())
}

/// Addresses by the built-in `host-local`, and by the installed one if there is one.
fn allocate(timings: &mut Timings, n_rounds: usize) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let installed = Ipam::from_cni_path("/opt/cni/bin:/usr/lib/cni");
    let providers = [("IPAM built in", Ipam::built_in()), ("IPAM plugin", installed)];
    for (step, ipam) in providers {
        if step == "IPAM plugin" && ipam.provider("host-local")? == Provider::BuiltIn {
            continue;
        }
        let dir = tempfile::tempdir()?;
        let conf = NetConf::for_pod_cidrs("1.0.0", "antrea", &["10.77.0.0/16".parse()?])
            .with_data_dir(dir.path())
            .to_json();
        for number in 0..n_rounds {
            let request = Request {
                container_id: format!("c{number}"),
                ifname: "eth0".into(),
                netns: "/proc/self/ns/net".into(),
                args: String::new(),
            };
            timings.measure(step, || runtime.block_on(ipam.add(&request, &conf)))?;
        }
    }
    Ok(())
}

fn run(n_rounds: usize) -> Outcome<Timings> {
    let rtnl = Rtnl::open()?;
    let drops = DropChains::open()?;
    let null = link::create_bridge(&rtnl, "antrea-null")?;
    let mut timings = Timings::default();
    let mut pods = Vec::new();
    for number in 0..n_rounds {
        let name = format!("wiring-{}-{number}", std::process::id());
        let pod_netns = netns::create_named(&name)?;
        pods.push(Pod(name));
        wire(&mut timings, &rtnl, &drops, null, &pod_netns, number)?;
    }
    for number in 0..n_rounds {
        let host_name = format!("pod{number}");
        timings.measure("DEL: drop chain", || drops.delete(&host_name))?;
        let index = link::get_by_name(&rtnl, &host_name)?.index;
        timings.measure("DEL: veth", || link::delete(&rtnl, index))?;
    }
    Ok(timings)
}

fn wire(
    timings: &mut Timings,
    rtnl: &Rtnl,
    drops: &DropChains,
    null: host::IfIndex,
    pod_netns: &Netns,
    number: usize,
) -> Outcome<()> {
    let start = Instant::now();
    let host_name = format!("pod{number}");
    let [.., high, low] = number.to_be_bytes();
    let spec = VethSpec {
        host_name: &host_name,
        host_mac: None,
        pod_netns,
        pod_name: "eth0",
        pod_mac: Some(MacAddr([0x0a, 0, 0, 0, high, low])),
        mtu: 1450,
        master: Some(null),
    };
    let veth = timings.measure("veth into the Pod", || link::create_veth(rtnl, &spec))?;
    timings.measure("drop chain", || drops.add(&host_name))?;
    timings.measure("host end up", || link::set_up_without_ipv6_address(rtnl, veth.host))?;
    timings.measure("Pod: address, up, route, off", || {
        pod_netns.run(|| -> Outcome<()> {
            let inside = Rtnl::open()?;
            offload::disable_tx_checksum("eth0")?;
            address::add(&inside, veth.pod, format!("10.77.{high}.{low}/16").parse()?)?;
            link::set_up(&inside, veth.pod)?;
            let gateway = "10.77.255.254".parse()?;
            route::add(&inside, &Route::via("0.0.0.0/0".parse()?, gateway, veth.pod))?;
            Ok(())
        })
    })??;
    timings.note("all of ADD", start.elapsed());
    Ok(())
}
