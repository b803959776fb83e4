//! Endpoints that are a node's own programs (Pods with `hostNetwork`), and traffic that stays on the
//! node: they are endpoints of their node like any Pod.

use std::net::{IpAddr, SocketAddr};

use pipeline::fields::{VIRTUAL_SERVICE_IP, VIRTUAL_SERVICE_IP_V6};

use super::calls::{Transport, ask};
use super::node::{N_TRIED, Scene};
use super::world::Client;
use super::{ANSWERED, check};
use crate::error::{Doing, LabError, Result};

/// The Pod's name is that of its answers.
const OWN: &str = "services/own";

impl Scene<'_> {
    /// With both policies `Local`, only the node with the endpoint serves, and hosts elsewhere only
    /// what Kubernetes lets them have.
    pub(super) fn own_programs(&self) -> Result<usize> {
        let [first, second] = self.nodes() else {
            return Err(LabError::new("the lab has not two nodes"));
        };
        let local = "  type: LoadBalancer\n  externalTrafficPolicy: Local\n  \
                     internalTrafficPolicy: Local\n";
        self.world.add_host_pod("own", &first.name, "own")?;
        self.world.add_service_of("own", "own", local)?;
        self.world.await_endpoints("own", 1)?;
        let port = self.world.node_port("own")?;
        let balanced = self.balance("own", 16)?;
        let cluster = self.world.targets("own")?;
        let at = |node: &Client| -> Vec<SocketAddr> {
            node.addresses().iter().map(|ip| SocketAddr::new(*ip, port)).collect()
        };

        let mut n = 0;
        let from_outside = [at(first), balanced.clone()].concat();
        self.await_answer(self.outside(), &from_outside)?;
        for target in from_outside {
            n += self.answered(self.outside(), target, &[stand_in(target.ip())])?;
        }
        for target in at(second) {
            self.is_closed(self.outside(), target)?;
            // What the node itself sends goes to any endpoint.
            n += self.answered(second, target, &[second.address(target.ip())?])?;
        }
        for pod in self.world.clients() {
            let near = pod.node == first.name;
            for target in &balanced {
                let own = pod.address(target.ip())?;
                let node = self.world.node_address(&pod.node, target.ip())?;
                n += self.answered(pod, *target, &[if near { own } else { node }])?;
            }
            for target in &cluster {
                if near {
                    n += self.answered(pod, *target, &[pod.address(target.ip())?])?;
                } else {
                    self.is_closed(pod, *target)?;
                }
            }
        }
        for target in cluster {
            n += self.answered(first, target, &[stand_in(target.ip())])?;
            self.is_closed(second, target)?;
        }
        Ok(n)
    }

    /// The program answers. Over TCP: a server of UDP that is bound to no address answers from the
    /// gateway's, whatever it was asked at.
    fn answered(&self, from: &Client, target: SocketAddr, seen: &[IpAddr]) -> Result<usize> {
        for _ in 0..N_TRIED {
            ask(from, target, Transport::Tcp, ANSWERED)
                .and_then(|answer| check(&answer, from, &[OWN.into()], seen))
                .doing(|| format!("{} to {target}", from.name))?;
        }
        Ok(N_TRIED)
    }
}

/// Who stands for a client that the node's own program could not answer by way of the switch.
fn stand_in(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => VIRTUAL_SERVICE_IP.into(),
        IpAddr::V6(_) => VIRTUAL_SERVICE_IP_V6.into(),
    }
}
