//! The last known Services and slices, on disk: an object a line, as Kubernetes has it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kube_io::services::{service_from_json, service_to_json, slice_from_json, slice_to_json};
use serde_json::{Value, json};
use services::{Event, Proxy};

/// Where they are.
#[derive(Clone, Debug)]
pub(super) struct Known(PathBuf);

impl Known {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self(state_dir.join("services.jsonl"))
    }

    /// What was known last; none without a file, or with one that cannot be read.
    pub(super) fn load(&self) -> Option<[Event; 2]> {
        let path = self.0.display();
        let read = std::fs::read_to_string(&self.0).and_then(|text| Ok(parse(&text)?));
        match read {
            Ok(events) => Some(events),
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
    let mut text = String::new();
    for line in services.chain(slices) {
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}

fn parse(text: &str) -> Result<[Event; 2], serde_json::Error> {
    let (mut services, mut slices) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut line: Value = serde_json::from_str(line)?;
        if let Some(object) = line.get_mut("service") {
            services.push(service_from_json(object.take())?);
        } else if let Some(object) = line.get_mut("slice") {
            slices.push(slice_from_json(object.take())?);
        }
    }
    Ok([Event::Services(services), Event::Slices(slices)])
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
        let again = mk_proxy(known.load().unwrap());
        let plans = |proxy: &Proxy| -> Vec<_> {
            proxy.ports().map(|(key, plan)| (key.to_string(), plan.clone())).collect()
        };
        assert_eq!(plans(&again), plans(&proxy));
        assert_eq!(plans(&again).len(), 1);
        assert!(again.is_synced());
        std::fs::write(dir.path().join("services.jsonl"), "{").unwrap();
        assert!(known.load().is_none(), "damaged");
    }
}
