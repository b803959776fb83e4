//! Policies that name their peers by domain names: whoever is told an address may connect at once,
//! and nobody to an address that no name leads to any more.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Context, Lab, Outcome, faults, nothing_forbidden};
use crate::cli::NodeComponent;
use crate::dns::{self, Entry, Manner, Transport, Zone};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::Layout;
use crate::preflight::program;
use crate::state::Store;
use crate::ui::Progress;
use crate::up::{self, POD_PATIENCE};
use crate::{addressing, cluster, component, ip, netns, pods, probe};

const NODE: &str = "node-1";
/// Names that are asked for one after the other, each with an address of its own.
const N_NAMES: u8 = 50;
/// Names that are asked for while policies change.
const N_STORM: usize = 500;
/// How many ask at the same time.
const N_ASKING: usize = 8;
/// An answer comes within this time, or it is lost; then it is asked for again, as resolvers do.
const ANSWERED: Duration = Duration::from_secs(5);
/// How often that may happen, all in all, on a machine that stalls.
const MAX_LOST: usize = 5;
/// A connection that is allowed is there after this time, even on a busy machine.
const CONNECTED: Duration = Duration::from_secs(10);
/// One that is dropped is not there after this time.
const DROPPED: Duration = Duration::from_millis(400);
/// What changes by itself has changed after this time.
const CHANGED: Duration = Duration::from_secs(30);
/// Connections that may need their first packet again on a machine that stalls.
const MAX_AGAIN: u64 = 5;

/// Two Pods: what `client` may do is written, `other` may do all but what is forbidden.
const PODS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: names}
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: names, labels: {app: client}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: antrea-lab/echo}]
---
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: names, labels: {app: other}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: antrea-lab/echo}]
";

/// What `client` may do, with the blocks of the DNS server.
fn policies(servers: &[IpAddr]) -> String {
    let blocks = servers.iter().map(|ip| {
        let len = if ip.is_ipv4() { 32 } else { 128 };
        format!("{{ipBlock: {{cidr: \"{ip}/{len}\"}}}}")
    });
    let blocks = blocks.collect::<Vec<_>>().join(", ");
    format!(
        "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {{name: names}}\n\
         spec:\n  priority: 5\n  tier: application\n  \
         appliedTo: [{{podSelector: {{matchLabels: {{app: client}}}}}}]\n  egress:\n  \
         - action: Allow\n    to: [{{fqdn: \"exact.lab.test\"}}, {{fqdn: \"*.many.lab.test\"}}]\n  \
         - action: Allow\n    to: [{blocks}]\n    \
         ports: [{{protocol: UDP, port: 53}}, {{protocol: TCP, port: 53}}]\n  \
         - action: Drop\n---\n\
         apiVersion: crd.antrea.io/v1beta1\nkind: NetworkPolicy\n\
         metadata: {{name: bad, namespace: names}}\n\
         spec:\n  priority: 5\n  appliedTo: [{{podSelector: {{matchLabels: {{app: other}}}}}}]\n  \
         egress:\n  - action: Reject\n    to: [{{fqdn: \"*.bad.lab.test\"}}]\n"
    )
}

/// A policy that comes and goes while names are asked for.
fn passing(n: usize) -> String {
    format!(
        "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\n\
         metadata: {{name: passing}}\nspec:\n  priority: {}\n  tier: platform\n  \
         appliedTo: [{{namespaceSelector: {{}}}}]\n  egress:\n  - action: Drop\n    \
         to: [{{ipBlock: {{cidr: 203.0.113.{n}/32}}}}, {{fqdn: \"{n}.passing.test\"}}]\n",
        n + 1
    )
}

/// What all steps work with.
struct Scene<'a> {
    store: &'a Store,
    zone: Zone,
    /// Where names are answered, once for each family.
    servers: Vec<IpAddr>,
    client: PathBuf,
    other: PathBuf,
    /// The port at which all addresses of the outside answer.
    port: u16,
    /// Answers that did not come.
    lost: AtomicUsize,
}

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "fqdn")?;
    let lab = Lab(up::run(&layout, &context.cluster(1), &Progress::start())?);
    let scene = prepare(&lab.0, context)?;
    let mut seen = Vec::new();
    for server in scene.servers.clone() {
        context.progress.step(&format!("names, asked of {server}"));
        seen.push(scene.at_once(server)?);
        scene.other_names(server)?;
        scene.by_tcp(server)?;
        scene.odd_answers(server)?;
        scene.forbidden(server)?;
        scene.shown(server)?;
    }
    context.progress.step("addresses that go out of date");
    for server in scene.servers.clone() {
        scene.out_of_date(server)?;
    }
    context.progress.step("the agent is killed and started");
    scene.restart()?;
    context.progress.step("many answers while policies change");
    let storm = scene.storm()?;
    nothing_forbidden(&lab.0)?;
    Ok(Outcome::Passed(json!({
        "connectionsAtOnce": seen,
        "answersInStorm": storm,
        "answersLost": scene.lost.into_inner(),
    })))
}

fn prepare<'a>(store: &'a Store, context: &Context<'_>) -> Result<Scene<'a>> {
    let family = context.variant.family;
    let outside = store.layout().outside_netns();
    let servers = addressing::outside(family);
    // Every address of these is the outside host's own.
    let lines: Vec<String> = servers
        .iter()
        .map(|server| match server {
            IpAddr::V4(_) => "route add local 198.51.100.128/25 dev lo".into(),
            IpAddr::V6(_) => "route add local 2001:db8:51:101::/64 dev lo".into(),
        })
        .collect();
    ip::batch(&outside, &lines).doing(|| "give the outside host addresses".into())?;
    let zone = Zone::default();
    dns::serve(&outside, &servers, &zone)?;
    let port = probe::serve(&outside, "outside", &[])?;
    cluster::apply(store, PODS)?;
    let lost = AtomicUsize::new(0);
    let pod = |name: &str| {
        wait_for(POD_PATIENCE, &format!("Pod {name} runs"), || {
            let sandbox = pods::find(store, &format!("names/{name}")).ok()?;
            let up = |ip: &IpAddr| {
                let target = SocketAddr::new(*ip, port);
                probe::tcp_connect(&sandbox.netns, target, Duration::from_secs(1)).is_ok()
            };
            addresses(&servers, 1).iter().all(up).then(|| sandbox.netns.clone())
        })
    };
    let scene =
        Scene { store, client: pod("client")?, other: pod("other")?, zone, servers, port, lost };
    cluster::apply(store, &policies(&scene.servers))?;
    for address in addresses(&scene.servers, 1) {
        wait_for(CHANGED, "what no name leads to is dropped", || {
            (!scene.connects(&scene.client, address, DROPPED)).then_some(())
        })?;
    }
    scene.zone.set(
        "first.bad.lab.test",
        Entry { addresses: addresses(&scene.servers, 2), ttl: 300, ..Entry::default() },
    );
    wait_for(CHANGED, "what is forbidden by name is rejected", || {
        let asked = scene.resolve(&scene.other, scene.servers[0], "first.bad.lab.test");
        let address = asked.ok()?;
        (!scene.connects(&scene.other, address, DROPPED)).then_some(())
    })?;
    Ok(scene)
}

/// Address number `n` of the outside host in each family; there are 126.
fn addresses(servers: &[IpAddr], n: u8) -> Vec<IpAddr> {
    let of = |server: &IpAddr| match server {
        IpAddr::V4(_) => Ipv4Addr::new(198, 51, 100, 128 + n).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0x101, 0, 0, 0, u16::from(n)).into(),
    };
    servers.iter().map(of).collect()
}

impl Scene<'_> {
    fn entry(&self, n: u8, ttl: u32) -> Entry {
        Entry { addresses: addresses(&self.servers, n), ttl, ..Entry::default() }
    }

    fn resolve(&self, netns: &Path, server: IpAddr, name: &str) -> Result<IpAddr> {
        let answer = self.ask(netns, server, name, Transport::Udp)?;
        dns::address_in(&answer, server).doing(|| format!("resolve {name}"))
    }

    fn ask(&self, netns: &Path, server: IpAddr, name: &str, by: Transport) -> Result<Vec<u8>> {
        loop {
            let answer = dns::ask(netns, server, name, by, ANSWERED);
            if answer.is_ok() || self.lost.fetch_add(1, Ordering::SeqCst) >= MAX_LOST {
                return answer;
            }
        }
    }

    fn connects(&self, netns: &Path, address: IpAddr, within: Duration) -> bool {
        probe::tcp_connect(netns, SocketAddr::new(address, self.port), within).is_ok()
    }

    /// Whoever got an address may connect at once.
    fn connect_now(&self, address: IpAddr, what: &str) -> Result<()> {
        let target = SocketAddr::new(address, self.port);
        probe::tcp_connect(&self.client, target, CONNECTED).map(drop).doing(|| what.to_owned())
    }

    /// antctl on the node shows what was told, of the names that are asked for.
    fn shown(&self, server: IpAddr) -> Result<()> {
        let node = self.store.layout().node(NODE);
        let antctl = self.store.get().bin_dir.join("antctl").display().to_string();
        let mut command = program(&antctl);
        command.args(["get", "fqdncache", "-o", "json", "--domain", "n*.many.lab.test"]);
        command.arg("--token-dir").arg(node.run().join("apiserver"));
        let output =
            netns::enter(node.netns(), || command.output())?.doing(|| "run antctl".into())?;
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let all = shown.as_array().map_or(&[][..], Vec::as_slice);
        let is_there = |n: u8| {
            let ip = addresses(&[server], 10 + n)[0].to_string();
            let name = format!("n{n}.many.lab.test");
            all.iter().any(|one| one["fqdnName"] == name && one["ipAddress"] == ip)
        };
        let others = all.iter().any(|one| {
            !one["fqdnName"].as_str().is_some_and(|name| name.ends_with(".many.lab.test"))
        });
        if others || !(0..N_NAMES).all(is_there) {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(LabError::new(format!("antctl get fqdncache: {shown} {said}")));
        }
        Ok(())
    }

    /// The address is dropped before it was told, and is open to the very first packet after.
    fn at_once(&self, server: IpAddr) -> Result<Value> {
        let before = sent_again(&self.client)?;
        for n in 0..N_NAMES {
            let name = format!("n{n}.many.lab.test");
            self.zone.set(&name, self.entry(10 + n, 300));
            let address = self.resolve(&self.client, server, &name)?;
            self.connect_now(address, &format!("connect to {name}"))?;
        }
        let again = sent_again(&self.client)? - before;
        if again > MAX_AGAIN {
            let why = format!("{again} of {N_NAMES} first packets after an answer were lost");
            return Err(LabError::new(why));
        }
        Ok(json!({ "server": server, "connections": N_NAMES, "sentAgain": again }))
    }

    /// A name that is another one's, in a row; a name that no rule names.
    fn other_names(&self, server: IpAddr) -> Result<()> {
        let alias = |of: &str| Entry { alias: Some(of.into()), ttl: 300, ..Entry::default() };
        self.zone.set("exact.lab.test", alias("one.cdn.test"));
        self.zone.set("one.cdn.test", alias("two.cdn.test"));
        self.zone.set("two.cdn.test", self.entry(3, 300));
        self.zone.set("not.exact.lab.test", self.entry(4, 300));
        let address = self.resolve(&self.client, server, "Exact.Lab.Test")?;
        self.connect_now(address, "connect behind two other names")?;
        let address = self.resolve(&self.client, server, "not.exact.lab.test")?;
        if self.connects(&self.client, address, DROPPED) {
            return Err(LabError::new("a name that no rule names is open"));
        }
        Ok(())
    }

    /// Cut short by UDP, in pieces by TCP.
    fn by_tcp(&self, server: IpAddr) -> Result<()> {
        let name = "long.many.lab.test";
        self.zone.set(name, Entry { manner: Manner::Truncated, ..self.entry(5, 300) });
        let cut = self
            .ask(&self.client, server, name, Transport::Udp)
            .doing(|| "get an answer that is cut short".into())?;
        if cut.get(2).is_none_or(|flags| flags & 2 == 0) {
            return Err(LabError::new("the cut answer arrives as another one"));
        }
        let whole = self.ask(&self.client, server, name, Transport::Tcp)?;
        let address = dns::address_in(&whole, server)?;
        self.connect_now(address, "connect after an answer by TCP")
    }

    /// What is no answer, or says that there is no such name, arrives as it is.
    fn odd_answers(&self, server: IpAddr) -> Result<()> {
        let garbage = "garbage.many.lab.test";
        self.zone.set(garbage, Entry { manner: Manner::Garbage, ..Entry::default() });
        for (name, what) in [(garbage, "garbage"), ("nobody.many.lab.test", "a refusal")] {
            for transport in [Transport::Udp, Transport::Tcp] {
                self.ask(&self.client, server, name, transport)
                    .doing(|| format!("get {what} by {transport:?}"))?;
            }
        }
        Ok(())
    }

    /// What is forbidden by name is closed to the very first packet after the answer.
    fn forbidden(&self, server: IpAddr) -> Result<()> {
        for n in 0..10 {
            let name = format!("n{n}.bad.lab.test");
            self.zone.set(&name, self.entry(70 + n, 300));
            let address = self.resolve(&self.other, server, &name)?;
            if self.connects(&self.other, address, DROPPED) {
                return Err(LabError::new(format!("{name} is open though it is rejected")));
            }
        }
        Ok(())
    }

    /// An address that a name has no more is closed, the new one is open though no Pod asked, and
    /// one that it still has stays open.
    fn out_of_date(&self, server: IpAddr) -> Result<()> {
        let (short, stays) = ("short.many.lab.test", "stays.many.lab.test");
        self.zone.set(short, self.entry(81, 1));
        self.zone.set(stays, self.entry(83, 1));
        let former = self.resolve(&self.client, server, short)?;
        let kept = self.resolve(&self.client, server, stays)?;
        self.connect_now(former, "connect while the answer is good")?;
        self.connect_now(kept, "connect while the answer is good")?;
        self.zone.set(short, self.entry(82, 1));
        wait_for(CHANGED, "an address that the name has no more is closed", || {
            (!self.connects(&self.client, former, DROPPED)).then_some(())
        })?;
        let of_server = |ip: &IpAddr| ip.is_ipv4() == server.is_ipv4();
        for address in addresses(&self.servers, 82).into_iter().filter(of_server) {
            wait_for(CHANGED, "the name's new address is open", || {
                self.connects(&self.client, address, DROPPED).then_some(())
            })?;
        }
        self.connect_now(kept, "connect to what the name still has")
    }

    /// What was told before stays open while the agent is away and after; then names are told anew.
    fn restart(&self) -> Result<()> {
        let server = self.servers[0];
        let known = self.resolve(&self.client, server, "n0.many.lab.test")?;
        // Kept on disk a second after it was told.
        let kept = self.store.layout().node(NODE).state().join("names.json");
        let text = format!("\"{known}\"");
        wait_for(CHANGED, "addresses are kept", || {
            std::fs::read_to_string(&kept).ok().filter(|kept| kept.contains(&text)).map(drop)
        })?;
        let before = faults::n_in_force(self.store, NODE)?;
        component::kill(self.store, NODE, NodeComponent::Agent)?;
        let over = AtomicBool::new(false);
        let n_tried = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let trying = scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    self.connect_now(known, "connect while the agent comes and goes")?;
                    n_tried.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok::<_, LabError>(())
            });
            let started = wait_for(CHANGED, "connections without an agent", || {
                (n_tried.load(Ordering::SeqCst) >= 20 || trying.is_finished()).then_some(())
            })
            .and_then(|()| component::start(self.store, NODE, NodeComponent::Agent))
            .and_then(|()| faults::await_in_force(self.store, NODE, before));
            let so_far = n_tried.load(Ordering::SeqCst);
            let after = wait_for(CHANGED, "connections after the start", || {
                let enough = n_tried.load(Ordering::SeqCst) >= so_far + 20;
                (enough || trying.is_finished()).then_some(())
            });
            over.store(true, Ordering::SeqCst);
            let tried = trying.join().map_err(|_| LabError::new("a thread panicked"))?;
            started.and(after).and(tried)
        })?;
        self.zone.set("later.many.lab.test", self.entry(84, 300));
        // Before the agent takes packets an answer may be lost: then it is asked again.
        let address = wait_for(CHANGED, "names are told anew", || {
            let within = Duration::from_secs(1);
            let name = "later.many.lab.test";
            let answer = dns::ask(&self.client, server, name, Transport::Udp, within).ok()?;
            dns::address_in(&answer, server).ok()
        })?;
        self.connect_now(address, "connect after the agent's start")
    }

    /// Case B10: no answer is lost while many come and policies change.
    fn storm(&self) -> Result<usize> {
        let server = self.servers[0];
        for n in 0..N_STORM {
            let number = u8::try_from(n % 100).unwrap_or(0);
            self.zone.set(format!("s{n}.many.lab.test"), self.entry(10 + number, 300));
        }
        let next = AtomicUsize::new(0);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| {
                for n in (0..200).take_while(|_| !over.load(Ordering::SeqCst)) {
                    cluster::apply(self.store, &passing(n % 20))?;
                }
                Ok::<_, LabError>(())
            });
            let ask = || {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= N_STORM {
                        return Ok(());
                    }
                    let name = format!("s{n}.many.lab.test");
                    let address = self.resolve(&self.client, server, &name)?;
                    if n.is_multiple_of(50) {
                        self.connect_now(address, &format!("connect to {name}"))?;
                    }
                }
            };
            let asking: Vec<_> = (0..N_ASKING).map(|_| scope.spawn(ask)).collect();
            let mut outcome = Ok(());
            for thread in asking {
                let joined = thread.join().map_err(|_| LabError::new("a thread panicked"));
                outcome = outcome.and(joined.and_then(|answered| answered));
            }
            over.store(true, Ordering::SeqCst);
            let changed = changing.join().map_err(|_| LabError::new("a thread panicked"))?;
            outcome.and(changed)
        })?;
        Ok(N_STORM)
    }
}

/// How many first packets of connections were sent again in a namespace.
fn sent_again(netns: &Path) -> Result<u64> {
    let text = netns::enter(netns, || std::fs::read_to_string("/proc/thread-self/net/netstat"))?
        .doing(|| "read the counters of TCP".into())?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs
        .find(|(name, _)| *name == "TCPSynRetrans")
        .and_then(|(_, value)| value.parse().ok())
        .ok_or_else(|| LabError::new("the kernel does not count TCPSynRetrans"))
}
