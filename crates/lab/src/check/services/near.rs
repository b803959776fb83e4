//! Which endpoints a client is given: those near to it, those that still serve, those of its node;
//! and what load balancers are told of a node's own.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

use super::calls::{Transport, ask, refused};
use super::node::Scene;
use super::world::{self, Client};
use super::{ANSWERED, IN_FORCE, check};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::probe;

/// How often each client asks: with one chance in three to meet another endpoint each time.
const N_ASKED: usize = 30;

/// Who answers a client on each node when only its own are asked.
const NEAR: [(&str, &[&str]); 2] =
    [("node-1", &["services/web-1"]), ("node-2", &["services/web-2", "services/web-3"])];

impl Scene<'_> {
    /// Clients get the endpoints of their node, or of their zone.
    pub(super) fn nearness(&self) -> Result<usize> {
        for (node, zone) in [("node-1", "zone-a"), ("node-2", "zone-b")] {
            self.world.label_node(node, &json!({ "topology.kubernetes.io/zone": zone }))?;
        }
        let mut n = 0;
        for (name, spec) in [
            ("inner", "  internalTrafficPolicy: Local\n"),
            ("same-node", "  trafficDistribution: PreferSameNode\n"),
            ("same-zone", "  trafficDistribution: PreferSameZone\n"),
            ("close", "  trafficDistribution: PreferClose\n"),
        ] {
            self.world.add_service_of(name, "web", spec)?;
            let what = format!("{name} leads to what is near");
            world::eventually(IN_FORCE, &what, || self.is_near(name).map(drop))?;
            n += self.is_near(name)?;
        }
        // Preferred is not demanded: who has nothing near gets what there is.
        self.world.add_service_of(
            "far-node",
            "alone",
            "  trafficDistribution: PreferSameNode\n",
        )?;
        self.world.await_service("far-node")?;
        // Demanded is: nobody else is asked.
        self.world.add_service_of("far-inner", "alone", "  internalTrafficPolicy: Local\n")?;
        for client in self.world.clients() {
            for target in self.world.targets("far-inner")? {
                if client.node == "node-1" {
                    self.await_answer(client, &[target])?;
                } else {
                    self.is_closed(client, target)?;
                }
            }
        }
        Ok(n)
    }

    fn is_near(&self, service: &str) -> Result<usize> {
        let mut n = 0;
        for target in self.world.targets(service)? {
            for client in self.world.clients() {
                let near = NEAR.iter().find(|(node, _)| *node == client.node);
                let (_, who) = near.ok_or_else(|| LabError::new("a client on another node"))?;
                let who: Vec<String> = who.iter().map(|name| (*name).to_owned()).collect();
                for _ in 0..N_ASKED {
                    let answer = ask(client, target, Transport::Tcp, ANSWERED)?;
                    check(&answer, client, &who, &[client.address(target.ip())?])?;
                    n += 1;
                }
            }
        }
        Ok(n)
    }

    /// The last endpoint is asked while it ends, as long as it serves; then there is none.
    pub(super) fn ending(&self) -> Result<usize> {
        self.world.add_service("ending", "ending")?;
        self.world.add_lasting_pod("last", "node-2", "ending", 8)?;
        self.world.await_service("ending")?;
        let targets = self.world.targets("ending")?;
        self.world.delete_pod("last")?;
        self.world.await_endpoints("ending", 0)?;
        let mut n = 0;
        for _ in 0..N_ASKED {
            for client in self.world.clients() {
                for target in &targets {
                    ask(client, *target, Transport::Tcp, ANSWERED)
                        .doing(|| "while the last endpoint ends".into())?;
                    n += 1;
                }
            }
        }
        self.world.await_gone("last")?;
        world::eventually(IN_FORCE, "nobody is left", || {
            for client in self.world.clients() {
                for target in &targets {
                    refused(client, *target, Transport::Tcp)?;
                }
            }
            Ok(())
        })?;
        Ok(n)
    }

    /// The health port of a Service says which nodes have endpoints of it.
    pub(super) fn health(&self) -> Result<usize> {
        let local = "  type: LoadBalancer\n  externalTrafficPolicy: Local\n";
        self.world.add_service_of("health", "alone", local)?;
        let port = self.world.health_port("health")?;
        let mut n = 0;
        for node in self.nodes() {
            let wanted = if node.name == "node-1" { "200" } else { "503" };
            for ip in node.addresses() {
                let target = SocketAddr::new(*ip, port);
                wait_for(IN_FORCE, &format!("{target} answers {wanted}"), || {
                    let said = http_status(self.outside(), target).ok()?;
                    (said == wanted).then_some(())
                })?;
                n += 1;
            }
        }
        Ok(n)
    }
}

fn http_status(from: &Client, target: SocketAddr) -> Result<String> {
    let stream = probe::tcp_connect(&from.netns, target, Duration::from_secs(1))?;
    (&stream)
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
        .doing(|| "send the request".into())?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).doing(|| "read the answer".into())?;
    let code = line.split(' ').nth(1).map(str::to_owned);
    code.ok_or_else(|| LabError::new(format!("{target} answers {line:?}")))
}
