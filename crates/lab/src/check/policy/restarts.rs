//! A Pod that policies close stays closed while what carries its flows is made anew: the bridge,
//! the switch with the agent, its port, its port's number.
//!
//! `faults` is about traffic that goes on while agents and the controller come and go.

use std::time::{Duration, Instant};

use serde_json::json;

use super::faults::{await_in_force, n_in_force};
use super::knock::Knocks;
use super::steps::policy;
use super::table::{Place, World};
use super::traffic::Way;
use super::{Context, IN_FORCE, Outcome, carry_out, nothing_forbidden, start};
use crate::cli::ClusterComponent::Controller;
use crate::cli::NodeComponent::{Agent, Vswitchd};
use crate::component;
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::ovs;
use crate::pods;
use crate::probe;
use crate::state::Store;

/// How often a port is deleted, and as often gets another number.
const N_PORTS: u32 = 12;
/// First of the numbers that are asked for, above those that Pods have.
const FIRST_NUMBER: u32 = 700;
/// A Pod is reached again after this time.
const BACK: Duration = Duration::from_secs(40);
/// Knocks on each way after each fault.
const AFTER: u64 = 100;

/// The Pod that is closed, with who knocks.
struct Stage<'a> {
    store: &'a Store,
    node: String,
    port: String,
    /// May send to the Pod.
    friend: &'a Place,
    pod: &'a Place,
    denied: Vec<Way<'a>>,
}

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let (lab, world) = start(context, "policyr", 2)?;
    let store = &lab.0;
    let stage = Stage::set(store, &world)?;
    let open = Knocks::start(&stage.denied);
    open.more(AFTER)?;
    open.all_answered()?;
    // Nothing but `x/b` gets to `x/a`, and nothing comes from it.
    carry_out(
        store,
        &policy(
            "x",
            "closed",
            "podSelector: {matchLabels: {pod: a}}\npolicyTypes: [Ingress, Egress]\ningress:\n\
             - from: [{podSelector: {matchLabels: {pod: b}}}]",
        ),
    )?;
    let table = |cell: &super::table::Cell<'_>| {
        cell.from() != ("x", "a") && (cell.to() != ("x", "a") || cell.from() == ("x", "b"))
    };
    world.await_table(&table, IN_FORCE)?;
    let (mut n_knocks, mut n_misjudged) = (0, 0);
    let mut longest = Duration::ZERO;
    let mut under_knocks = |what: &str, fault: &dyn Fn() -> Result<()>| -> Result<()> {
        context.progress.step(what);
        let knocks = Knocks::start(&stage.denied);
        knocks.more(20)?;
        let began = Instant::now();
        fault()?;
        stage.await_back()?;
        longest = longest.max(began.elapsed());
        knocks.more(AFTER)?;
        let (n_tried, n_answered) = knocks.none_answered(what, context.variant.datapath)?;
        n_knocks += n_tried;
        n_misjudged += n_answered;
        Ok(())
    };
    under_knocks("the bridge is deleted", &|| stage.delete_bridge())?;
    under_knocks("switch and agent are started anew", &|| stage.restart_both())?;
    under_knocks("the port is deleted while there is no agent", &|| stage.port_without_agent())?;
    under_knocks("the port is deleted", &|| (0..N_PORTS).try_for_each(|_| stage.delete_port()))?;
    under_knocks("the port gets another number", &|| {
        (0..N_PORTS).try_for_each(|n| stage.renumber(FIRST_NUMBER + n))
    })?;
    // What the agent knew last counts, and takes seconds to be taken.
    component::kill_cluster(store, Controller)?;
    under_knocks("the bridge is deleted, without a controller", &|| stage.delete_bridge())?;
    under_knocks("switch and agent are started anew, without a controller", &|| {
        stage.restart_both()
    })?;
    component::start_cluster(store, Controller)?;
    world.await_table(&table, IN_FORCE)?;
    nothing_forbidden(store)?;
    Ok(Outcome::Passed(json!({
        "knocks": n_knocks,
        "misjudged": n_misjudged,
        "longestFaultMs": longest.as_millis(),
    })))
}

impl<'a> Stage<'a> {
    fn set(store: &'a Store, world: &'a World) -> Result<Self> {
        let find = |place: &Place| pods::find(store, &format!("{}/{}", place.namespace, place.pod));
        let pod = world.place("x", "a");
        let sandbox = find(pod)?;
        let (mut near, mut far) = (None, None);
        // Not one that sends to what is closed anyway.
        for other in world.places.iter().filter(|place| place.namespace != "x") {
            let here = find(other)?.node == sandbox.node;
            if here { near = near.or(Some(other)) } else { far = far.or(Some(other)) }
        }
        let (Some(near), Some(far)) = (near, far) else {
            return Err(LabError::new("no Pods on the same node, or on another one"));
        };
        let port = sandbox.host_interface();
        Ok(Self {
            store,
            node: sandbox.node.clone(),
            port: port.ok_or_else(|| LabError::new("the Pod has no interface"))?,
            friend: world.place("x", "b"),
            pod,
            denied: vec![(near, pod, 80), (far, pod, 80), (pod, near, 80), (pod, far, 80)],
        })
    }

    /// Waits until the Pod is reached by who may reach it.
    fn await_back(&self) -> Result<()> {
        for address in &self.pod.addresses {
            let target = std::net::SocketAddr::new(*address, 80);
            wait_for(BACK, &format!("{target} is reached again"), || {
                probe::tcp_who(&self.friend.netns, target, Duration::from_millis(500)).ok()
            })?;
        }
        Ok(())
    }

    /// The agent ends when its bridge goes, and is started as a DaemonSet would.
    fn delete_bridge(&self) -> Result<()> {
        let before = n_in_force(self.store, &self.node)?;
        ovs::vsctl(&self.layout(), &["del-br", ovs::BRIDGE])?;
        wait_for(Duration::from_secs(15), "the agent ends", || {
            (!component::runs(self.store, &self.node, Agent)).then_some(())
        })?;
        component::start(self.store, &self.node, Agent)?;
        await_in_force(self.store, &self.node, before)
    }

    /// The switch starts, and has no flows, while there is no agent.
    fn restart_both(&self) -> Result<()> {
        let before = n_in_force(self.store, &self.node)?;
        component::kill(self.store, &self.node, Agent)?;
        component::kill(self.store, &self.node, Vswitchd)?;
        component::start(self.store, &self.node, Vswitchd)?;
        component::start(self.store, &self.node, Agent)?;
        await_in_force(self.store, &self.node, before)
    }

    fn port_without_agent(&self) -> Result<()> {
        let before = n_in_force(self.store, &self.node)?;
        component::kill(self.store, &self.node, Agent)?;
        ovs::vsctl(&self.layout(), &["del-port", &self.port])?;
        component::start(self.store, &self.node, Agent)?;
        await_in_force(self.store, &self.node, before)
    }

    fn delete_port(&self) -> Result<()> {
        ovs::vsctl(&self.layout(), &["del-port", &self.port])?;
        self.await_back()
    }

    fn renumber(&self, number: u32) -> Result<()> {
        let request = format!("ofport_request={number}");
        ovs::vsctl(&self.layout(), &["set", "Interface", &self.port, &request])?;
        self.await_back()
    }

    fn layout(&self) -> crate::layout::NodeLayout {
        self.store.layout().node(&self.node)
    }
}
