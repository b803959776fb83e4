//! `antctl policy explain`: one connection, and the rules that decide about it.

use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde::Serialize;

use ::policy::verdict::{Decision, End, Reason, Traffic};
use apis::common::Protocol;
use apis::controlplane::{NetworkPolicyReference, PolicyType};

use super::{ExplainArgs, Output, code, print, read};
use crate::manifest::{Manifests, Place};

#[derive(Serialize)]
struct Answer {
    src: String,
    dst: String,
    conn: String,
    action: String,
    egress: Side,
    #[serde(skip_serializing_if = "Option::is_none")]
    ingress: Option<Side>,
}

#[derive(Serialize)]
struct Side {
    decision: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

pub(super) fn run(
    args: &ExplainArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let traffic = traffic(&args.port).with_context(|| format!("port {:?}", args.port))?;
    let traffic = Traffic { source_port: args.source_port, ..traffic };
    let manifests = read(&args.files, err)?;
    let (src, from) = end(&manifests, &args.source)?;
    let (dst, to) = end(&manifests, &args.destination)?;
    let verdict = manifests.cluster.verdict(from, to, &traffic);
    let side = |decision: &Decision| Side {
        decision: decision.to_string(),
        at: place(&manifests, decision).map(ToString::to_string),
    };
    let answer = Answer {
        src,
        dst,
        conn: words(&traffic),
        action: verdict.action().to_string(),
        egress: side(&verdict.egress),
        ingress: verdict.ingress.as_ref().map(side),
    };
    match args.output {
        Output::Json => print::json(&answer, out)?,
        Output::Text => {
            let Answer { src, dst, conn, action, egress, ingress } = answer;
            writeln!(out, "{src} => {dst} : {conn} : {action}")?;
            for (name, side) in [("egress", Some(egress)), ("ingress", ingress)] {
                let Some(Side { decision, at }) = side else { continue };
                let at = at.map(|at| format!(" ({at})")).unwrap_or_default();
                writeln!(out, "{name}: {decision}{at}")?;
            }
        }
    }
    Ok(code(&[&manifests]))
}

/// `TCP:80`, `ICMP:8/0`, or a protocol that is not told apart by anything.
fn traffic(text: &str) -> anyhow::Result<Traffic> {
    let (word, port) = match text.split_once(':') {
        Some((word, port)) => (word, Some(port)),
        None => (text, None),
    };
    let protocol = Protocol::from(word.to_ascii_uppercase().as_str());
    match (&protocol, port) {
        (Protocol::Tcp | Protocol::Udp | Protocol::Sctp, Some(port)) => {
            Ok(Traffic::new(protocol, port.parse().context("a number from 0 to 65535")?))
        }
        (Protocol::Tcp | Protocol::Udp | Protocol::Sctp, None) => bail!("the port is missing"),
        (Protocol::Icmp, Some(message)) => {
            let (type_, code) = message.split_once('/').unwrap_or((message, "0"));
            let byte = |text: &str| text.parse::<u8>().context("a number from 0 to 255");
            Ok(Traffic::icmp(byte(type_)?, byte(code)?))
        }
        (Protocol::Icmp, None) => bail!("the type is missing, as in ICMP:8/0"),
        (Protocol::Igmp | Protocol::Unknown(_), None) if !word.is_empty() => {
            Ok(Traffic::new(protocol, 0))
        }
        _ => bail!("not a protocol with ports"),
    }
}

/// The traffic as lists have it: `TCP 80`, `ICMP 8/0`.
fn words(traffic: &Traffic) -> String {
    let Traffic { protocol, port, .. } = traffic;
    match protocol {
        Protocol::Tcp | Protocol::Udp | Protocol::Sctp => format!("{protocol} {port}"),
        Protocol::Icmp => {
            let [type_, code] = port.to_be_bytes();
            format!("{protocol} {type_}/{code}")
        }
        Protocol::Igmp | Protocol::Unknown(_) => protocol.to_string(),
    }
}

/// The end that a word stands for, and its full name.
fn end(manifests: &Manifests, word: &str) -> anyhow::Result<(String, End)> {
    if let Ok(addr) = word.parse::<IpAddr>() {
        return Ok((addr.to_string(), End::Addr(addr)));
    }
    let wanted = if word.contains('/') { word.to_owned() } else { format!("default/{word}") };
    let is_it = |name: &str| name == wanted || name.split('[').next() == Some(wanted.as_str());
    let found: Vec<_> = manifests.workloads.iter().filter(|one| is_it(&one.name)).collect();
    match found.as_slice() {
        [one] => {
            let pod = one.pods.first().context("a workload has a Pod")?;
            Ok((one.name.clone(), End::Pod(*pod)))
        }
        [] => match pod(manifests, &wanted) {
            Some(pod) => Ok((wanted, End::Pod(pod))),
            None => bail!("{wanted} is neither a workload of the manifests nor an address"),
        },
        several => {
            let names: Vec<_> = several.iter().map(|one| one.name.as_str()).collect();
            bail!("{wanted} may be {}", names.join(" or "))
        }
    }
}

/// One Pod of several that a controller has made.
fn pod(manifests: &Manifests, wanted: &str) -> Option<::policy::verdict::PodId> {
    let (namespace, name) = wanted.split_once('/')?;
    manifests.cluster.pod(namespace, name)
}

/// Where the policy stands that decided.
fn place<'a>(manifests: &'a Manifests, decision: &Decision) -> Option<&'a Place> {
    let NetworkPolicyReference { type_, namespace, name, .. } = match &decision.reason {
        Reason::Rule(rule) => &rule.policy,
        Reason::Isolation(policy) => policy,
        _ => return None,
    };
    let kind = match type_ {
        PolicyType::K8sNetworkPolicy => "networking.k8s.io/NetworkPolicy",
        PolicyType::AntreaNetworkPolicy => "crd.antrea.io/NetworkPolicy",
        PolicyType::AntreaClusterNetworkPolicy => "crd.antrea.io/ClusterNetworkPolicy",
        PolicyType::K8sClusterNetworkPolicy => "policy.networking.k8s.io/ClusterNetworkPolicy",
        _ => return None,
    };
    manifests.place(kind, namespace, name)
}
