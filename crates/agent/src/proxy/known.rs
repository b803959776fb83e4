//! The last known Services and slices, on disk: an object a line, as Kubernetes has it; and the numbers
//! of groups that do not follow from whose they are.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kube_io::services::{service_from_json, service_to_json, slice_from_json, slice_to_json};
use openflow::GroupId;
use serde_json::{Value, json};
use services::{Event, Kind, Number, PortKey, Proxy};

/// What was known last.
#[derive(Debug)]
pub(super) struct Remembered {
    /// The lists.
    pub(super) events: [Event; 2],
    /// Numbers of groups.
    pub(super) numbers: Vec<Number>,
}

/// A group's number as a line has it: namespace, Service, port, kind, number.
type Line = (String, String, String, String, u32);

/// Where they are.
#[derive(Clone, Debug)]
pub(super) struct Known(PathBuf);

impl Known {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self(state_dir.join("services.jsonl"))
    }

    /// What was known last; none without a file, or with one that cannot be read.
    pub(super) fn load(&self) -> Option<Remembered> {
        let path = self.0.display();
        let read = std::fs::read_to_string(&self.0).and_then(|text| Ok(parse(&text)?));
        match read {
            Ok(remembered) => Some(remembered),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(%error, %path, "the last known Services are not read");
                None
            }
        }
    }

    /// Keeps what is known now.
    pub(super) async fn save(&self, proxy: &Proxy) {
        let (text, path) = (text(proxy), self.0.clone());
        let written = tokio::task::spawn_blocking(move || write(&path, &text)).await;
        let failure = match written {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(abandoned) => io::Error::other(abandoned),
        };
        let path = self.0.display();
        tracing::warn!(error = %failure, %path, "the last known Services are not kept");
    }
}

/// Written beside and renamed, so that a crash leaves the old or the new set.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("jsonl.new");
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&beside, path)
}

fn text(proxy: &Proxy) -> String {
    let services = proxy.services().map(|service| json!({"service": service_to_json(service)}));
    let slices = proxy.slices().map(|slice| json!({"slice": slice_to_json(slice)}));
    let numbers = proxy.numbers().into_iter().map(|Number { port, kind, id }| {
        let name = &port.service;
        json!({"group": (&*name.namespace, &*name.name, &*port.port, kind.word(), id.0)})
    });
    let mut text = String::new();
    for line in services.chain(slices).chain(numbers) {
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}

fn parse(text: &str) -> Result<Remembered, serde_json::Error> {
    let (mut services, mut slices, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for line in text.lines() {
        let mut line: Value = serde_json::from_str(line)?;
        if let Some(object) = line.get_mut("service") {
            services.push(service_from_json(object.take())?);
        } else if let Some(object) = line.get_mut("slice") {
            slices.push(slice_from_json(object.take())?);
        } else if let Some(number) = line.get_mut("group") {
            let (namespace, service, port, kind, id): Line = serde_json::from_value(number.take())?;
            let port = PortKey::new(&namespace, &service, &port);
            let number = |kind| Number { port, kind, id: GroupId(id) };
            numbers.extend(Kind::of_word(&kind).map(number));
        }
    }
    Ok(Remembered { events: [Event::Services(services), Event::Slices(slices)], numbers })
}

#[cfg(test)]
mod tests {
    use apis::service::{
        EndpointSlice, Service, ServiceName, ServicePort, ServiceProtocol, SliceEndpoint,
        SliceName, SlicePort,
    };
    use pipeline::Families;
    use services::Config;

    use super::*;

    fn mk_proxy(events: impl IntoIterator<Item = Event>) -> Proxy {
        let mut proxy = Proxy::new(Config::new("us", Families::V4));
        proxy.step(events);
        proxy
    }

    #[tokio::test]
    async fn services_survive_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let known = Known::new(dir.path());
        assert!(known.load().is_none(), "nothing was kept");
        let service = Service {
            name: ServiceName::new("x", "web"),
            cluster_ips: vec!["10.96.0.1".parse().unwrap()],
            ports: vec![ServicePort { name: "http".into(), port: 80, ..<_>::default() }],
            ..Service::default()
        };
        let slice = EndpointSlice {
            name: SliceName { namespace: "x".into(), name: "web-1".into() },
            service: Some("web".into()),
            ports: vec![SlicePort {
                name: "http".into(),
                protocol: ServiceProtocol::Tcp,
                port: 8080,
            }],
            endpoints: vec![SliceEndpoint {
                ip: "10.1.0.7".parse().unwrap(),
                ready: true,
                serving: true,
                terminating: false,
                node: Some("us".into()),
                for_zones: [].into(),
                for_nodes: [].into(),
            }],
        };
        let proxy = mk_proxy([Event::Services(vec![service]), Event::Slices(vec![slice])]);
        known.save(&proxy).await;
        let remembered = known.load().unwrap();
        assert_eq!(remembered.numbers, [], "they follow from the names");
        let again = mk_proxy(remembered.events);
        let plans = |proxy: &Proxy| -> Vec<_> {
            proxy.ports().map(|(key, plan)| (key.to_string(), plan.clone())).collect()
        };
        assert_eq!(plans(&again), plans(&proxy));
        assert_eq!(plans(&again).len(), 1);
        assert!(again.is_synced());
        // A number that does not follow from the name.
        let number = Number {
            port: PortKey::new("x", "web", "http"),
            kind: Kind::Cluster { ipv6: false },
            id: GroupId(7),
        };
        let mut other = Proxy::new(Config::new("us", Families::V4));
        other.keep_numbers([number.clone()]);
        other.step(known.load().unwrap().events);
        known.save(&other).await;
        assert_eq!(known.load().unwrap().numbers, [number]);
        let path = dir.path().join("services.jsonl");
        let numbers = |text: &str| {
            std::fs::write(&path, text).unwrap();
            known.load().map(|remembered| remembered.numbers)
        };
        let number = Number {
            port: PortKey::new("x", "web", "http"),
            kind: Kind::Local { ipv6: true },
            id: GroupId(7),
        };
        let line = r#"{"group": ["x", "web", "http", "l6", 7]}"#;
        assert_eq!(numbers(line), Some(vec![number]));
        assert_eq!(numbers(r#"{"group": ["x", "web", "http", "who knows", 7]}"#), Some(vec![]));
        assert_eq!(numbers(r#"{"group": ["x", 7]}"#), None, "damaged");
        std::fs::write(&path, "{").unwrap();
        assert!(known.load().is_none(), "damaged");
    }
}
