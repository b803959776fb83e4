//! Two Pods on a bridge, and numbered packets from one to the other.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use openflow::OfPort;
use switch::ovsdb_session::{OvsdbSession, PortSpec};
use testkit::netns::{NamedNetns, sh};
use testkit::wait_until;

use super::{BRIDGE, DEADLINE};

/// A namespace with one port on the bridge.
pub(crate) struct Pod {
    pub(crate) netns: NamedNetns,
    pub(crate) ofport: OfPort,
}

/// Makes Pod `n`: 10.9.0.n, which knows the address of 10.9.0.`peer` already. Called in the
/// switch's namespace.
pub(crate) async fn mk_pod(session: &OvsdbSession, n: u8, peer: u8) -> Pod {
    let netns = NamedNetns::new("pod").unwrap();
    let (device, name) = (format!("pod{n}"), netns.name());
    sh(&format!("ip link add {device} type veth peer name eth0 netns {name}"));
    sh(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1; ip link set {device} up"));
    // Userspace Open vSwitch takes frames with whole checksums only.
    netns.sh(&format!(
        "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1
         ethtool -K eth0 tx off >/dev/null
         ip link set eth0 address 02:00:00:00:00:{n:02x} up
         ip addr add 10.9.0.{n}/24 dev eth0
         ip neigh replace 10.9.0.{peer} lladdr 02:00:00:00:00:{peer:02x} nud permanent dev eth0"
    ));
    session.add_port(PortSpec::new(BRIDGE, &device)).await.unwrap();
    let ofport = session.wait_ofport(&device, DEADLINE).await.unwrap();
    Pod { netns, ofport }
}

/// Numbered packets on their way until this is dropped.
pub(crate) struct Traffic {
    n_sent: Arc<AtomicU64>,
    /// For each number whether it arrived.
    arrived: Arc<Vec<AtomicBool>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Most packets of one run.
const MAX_PACKETS: usize = 1 << 20;

impl Traffic {
    /// From Pod 1 to Pod 2, one packet in each interval.
    pub(crate) fn start(from: &Pod, to: &Pod, interval: Duration) -> Self {
        let sender = from.netns.run(|| UdpSocket::bind("10.9.0.1:4000").unwrap());
        let receiver = to.netns.run(|| UdpSocket::bind("10.9.0.2:4000").unwrap());
        receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let n_sent = Arc::new(AtomicU64::new(0));
        let mut arrived = Vec::new();
        arrived.resize_with(MAX_PACKETS, AtomicBool::default);
        let arrived = Arc::new(arrived);
        let stop = Arc::new(AtomicBool::new(false));
        let send = {
            let (n_sent, stop) = (Arc::clone(&n_sent), Arc::clone(&stop));
            move || {
                let mut next = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    let number = n_sent.load(Ordering::Relaxed);
                    sender.send_to(&number.to_be_bytes(), "10.9.0.2:4000").unwrap();
                    n_sent.store(number + 1, Ordering::Relaxed);
                    next += interval;
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            }
        };
        let receive = {
            let (arrived, stop) = (Arc::clone(&arrived), Arc::clone(&stop));
            move || {
                let mut buffer = [0; 64];
                while !stop.load(Ordering::Relaxed) {
                    let Ok(8) = receiver.recv(&mut buffer) else { continue };
                    let number = u64::from_be_bytes(*buffer.first_chunk().unwrap());
                    if let Some(slot) = arrived.get(usize::try_from(number).unwrap()) {
                        slot.store(true, Ordering::Relaxed);
                    }
                }
            }
        };
        let threads = vec![std::thread::spawn(send), std::thread::spawn(receive)];
        Self { n_sent, arrived, stop, threads }
    }

    /// The number of the next packet.
    pub(crate) fn now(&self) -> u64 {
        self.n_sent.load(Ordering::Relaxed)
    }

    fn has_arrived(&self, number: u64) -> bool {
        self.arrived[usize::try_from(number).unwrap()].load(Ordering::Relaxed)
    }

    /// Waits until a packet arrives that is sent from now on.
    pub(crate) fn wait_flowing(&self, deadline: Duration) {
        let from = self.now();
        wait_until(deadline, "packets arrive", || (from..self.now()).any(|n| self.has_arrived(n)));
    }

    /// How many packets of those since `from` were lost. Packets overtake none, so it is known once
    /// a later one arrived.
    pub(crate) fn n_lost(&self, from: u64) -> usize {
        let to = self.now();
        self.wait_flowing(DEADLINE);
        (from..to).filter(|number| !self.has_arrived(*number)).count()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that failed said so.
            let _ = thread.join();
        }
    }
}
