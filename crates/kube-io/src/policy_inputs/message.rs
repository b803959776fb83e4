//! Kubernetes' own objects in protobuf, field by field: only what policy needs is kept.
//!
//! Field numbers are those that the API publishes. Whatever else an object holds (`managedFields`,
//! volumes, conditions) is passed over without being looked into. What cannot be read gives the same
//! as in JSON: ports without a name and addresses that are none are left out.

use std::net::IpAddr;

use apis::controlplane::wire::{DecodeError, Reader, builtin};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

use super::pod::{PodFacts, PortFacts};
use super::{ENABLE_LOGGING, Input, InputKey, NamespaceFacts, is_true};

/// Calls `take` with each field of a message.
fn fields<'a>(
    message: &'a [u8],
    mut take: impl FnMut(u32, apis::controlplane::wire::Value<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(message);
    while let Some((field, value)) = reader.next()? {
        take(field, value)?;
    }
    Ok(())
}

/// What is used of an object's metadata.
#[derive(Default)]
struct Meta {
    key: InputKey,
    generation: Option<i64>,
    /// In seconds since 1970.
    created: Option<i64>,
    labels: Vec<(String, String)>,
    log_policies: bool,
}

impl Meta {
    fn merge(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        fields(message, |field, value| {
            match field {
                1 => value.text(field)?.clone_into(&mut self.key.name),
                3 => value.text(field)?.clone_into(&mut self.key.namespace),
                5 => value.text(field)?.clone_into(&mut self.key.uid),
                6 => self.key.version = value.text(field)?.parse().unwrap_or(0),
                7 => self.generation = Some(value.varint(field)?.cast_signed()),
                8 => self.created = Some(seconds(value.bytes(field)?)?),
                11 => {
                    let (key, label) = entry(value.bytes(field)?)?;
                    self.labels.push((key.to_owned(), label.to_owned()));
                }
                12 => {
                    let (key, text) = entry(value.bytes(field)?)?;
                    if key == ENABLE_LOGGING {
                        self.log_policies = is_true(text);
                    }
                }
                _ => {}
            }
            Ok(())
        })
    }
}

/// The seconds of a time.
fn seconds(message: &[u8]) -> Result<i64, DecodeError> {
    let mut seconds = 0;
    fields(message, |field, value| {
        if field == 1 {
            seconds = value.varint(field)?.cast_signed();
        }
        Ok(())
    })?;
    Ok(seconds)
}

/// An entry of a map of texts.
fn entry(message: &[u8]) -> Result<(&str, &str), DecodeError> {
    let (mut key, mut text) = ("", "");
    fields(message, |field, value| {
        match field {
            1 => key = value.text(field)?,
            2 => text = value.text(field)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((key, text))
}

/// Reads a Pod.
pub(super) fn pod(message: &[u8]) -> Result<Input<PodFacts>, DecodeError> {
    let (mut meta, mut pod) = (Meta::default(), PodFacts::default());
    fields(message, |field, value| match field {
        1 => meta.merge(value.bytes(field)?),
        2 => pod_spec(value.bytes(field)?, &mut pod),
        3 => pod_status(value.bytes(field)?, &mut pod),
        _ => Ok(()),
    })?;
    pod.labels = meta.labels;
    Ok(Input { key: meta.key, object: pod })
}

fn pod_spec(message: &[u8], pod: &mut PodFacts) -> Result<(), DecodeError> {
    let mut sidecars = Vec::new();
    fields(message, |field, value| {
        match field {
            2 => drop(container(value.bytes(field)?, &mut pod.ports)?),
            8 => value.text(field)?.clone_into(&mut pod.service_account),
            10 => value.text(field)?.clone_into(&mut pod.node),
            11 => pod.host_network = value.varint(field)? != 0,
            20 => {
                let mut ports = Vec::new();
                // An init container that is restarted for ever is a sidecar, whose ports count.
                if container(value.bytes(field)?, &mut ports)? == "Always" {
                    sidecars.append(&mut ports);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    pod.ports.append(&mut sidecars);
    Ok(())
}

/// Reads a container's ports; gives when it is restarted.
fn container<'a>(message: &'a [u8], ports: &mut Vec<PortFacts>) -> Result<&'a str, DecodeError> {
    let mut restart_policy = "";
    fields(message, |field, value| {
        match field {
            6 => ports.extend(port(value.bytes(field)?)?),
            24 => restart_policy = value.text(field)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(restart_policy)
}

fn port(message: &[u8]) -> Result<Option<PortFacts>, DecodeError> {
    let (mut name, mut number, mut protocol) = ("", 0, "TCP");
    fields(message, |field, value| {
        match field {
            1 => name = value.text(field)?,
            3 => number = value.varint(field)?,
            4 => protocol = value.text(field)?,
            _ => {}
        }
        Ok(())
    })?;
    let number = u16::try_from(number).ok().filter(|number| *number > 0 && !name.is_empty());
    Ok(number.map(|port| PortFacts {
        name: name.to_owned(),
        port,
        protocol: if protocol.is_empty() { "TCP" } else { protocol }.to_owned(),
    }))
}

fn pod_status(message: &[u8], pod: &mut PodFacts) -> Result<(), DecodeError> {
    let mut first = None;
    fields(message, |field, value| {
        match field {
            1 => pod.finished = matches!(value.text(field)?, "Succeeded" | "Failed"),
            6 => first = value.text(field)?.parse::<IpAddr>().ok(),
            12 => fields(value.bytes(field)?, |field, value| {
                if field == 1 {
                    pod.ips.extend(value.text(field)?.parse::<IpAddr>());
                }
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    })?;
    if pod.ips.is_empty() {
        pod.ips.extend(first);
    }
    Ok(())
}

/// Reads a namespace.
pub(super) fn namespace(message: &[u8]) -> Result<Input<NamespaceFacts>, DecodeError> {
    let mut meta = Meta::default();
    fields(message, |field, value| match field {
        1 => meta.merge(value.bytes(field)?),
        _ => Ok(()),
    })?;
    let Meta { key, labels, log_policies, .. } = meta;
    Ok(Input { key, object: NamespaceFacts { labels, log_policies } })
}

/// Reads a NetworkPolicy.
pub(super) fn network_policy(message: &[u8]) -> Result<Input<NetworkPolicy>, DecodeError> {
    let (mut meta, mut spec) = (Meta::default(), None);
    fields(message, |field, value| {
        match field {
            1 => meta.merge(value.bytes(field)?)?,
            2 => spec = Some(builtin::network_policy_spec(value.bytes(field)?)?),
            _ => {}
        }
        Ok(())
    })?;
    let key = meta.key;
    let metadata = ObjectMeta {
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        uid: Some(key.uid.clone()),
        generation: meta.generation,
        creation_timestamp: meta.created.and_then(|s| Timestamp::from_second(s).ok()).map(Time),
        ..ObjectMeta::default()
    };
    Ok(Input { key, object: NetworkPolicy { metadata, spec } })
}
