//! Lists of a large cluster, as a Kubernetes API server writes them.

use std::fmt::Write;

use apiserver::protobuf::{Protobuf, write};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::error::{Doing, Result};

/// Objects on a page, as clients ask for them.
const PAGE: usize = 500;
/// Resource version of all lists.
const VERSION: usize = 1_000_000;

/// The name of a node.
pub(super) fn node(n: usize) -> String {
    format!("node-{n:04}")
}

/// Writes the object of a number as JSON.
type Item = Box<dyn Fn(&mut String, usize) + Send + Sync>;

/// A kind of object, and how many of it there are.
struct Kind {
    path: &'static str,
    version: &'static str,
    name: &'static str,
    n: usize,
    item: Item,
    /// Pages of protobuf.
    pages: Vec<Bytes>,
}

/// Pages of lists by path: in protobuf ready in memory, in JSON made when they are asked for.
pub(super) struct Lists(Vec<Kind>);

impl Lists {
    /// Namespaces with four Pods and three policies each, the Pods spread over nodes.
    ///
    /// # Errors
    /// When an object cannot be written as protobuf.
    pub(super) fn make(n_namespaces: usize, n_nodes: usize) -> Result<Self> {
        let protobuf = kubelab::protobuf().doing(|| "read field numbers".into())?;
        let kind = |path, version, name, n, item: Item| Kind {
            path,
            version,
            name,
            n,
            item,
            pages: Vec::new(),
        };
        let policies = "/apis/networking.k8s.io/v1/networkpolicies";
        let mut kinds = vec![
            kind("/api/v1/namespaces", "v1", "Namespace", n_namespaces, Box::new(namespace)),
            kind(
                "/api/v1/pods",
                "v1",
                "Pod",
                4 * n_namespaces,
                Box::new(move |text, n| pod(text, n, n_nodes)),
            ),
            kind(
                policies,
                "networking.k8s.io/v1",
                "NetworkPolicy",
                3 * n_namespaces,
                Box::new(policy),
            ),
        ];
        for kind in &mut kinds {
            let pages = 0..kind.n_pages();
            kind.pages = pages.map(|at| kind.protobuf(at, &protobuf)).collect::<Result<_>>()?;
        }
        Ok(Self(kinds))
    }

    /// A page of the list at a path in protobuf, `None` after the last; the outer `None` where there
    /// is no such list.
    pub(super) fn protobuf(&self, path: &str, page: usize) -> Option<Option<Bytes>> {
        Some(self.at(path)?.pages.get(page).cloned())
    }

    /// The same in JSON.
    pub(super) fn json(&self, path: &str, page: usize) -> Option<Option<Bytes>> {
        let kind = self.at(path)?;
        Some((page < kind.n_pages()).then(|| kind.json(page)))
    }

    fn at(&self, path: &str) -> Option<&Kind> {
        self.0.iter().find(|kind| kind.path == path)
    }

    /// Size of all pages in protobuf.
    pub(super) fn n_bytes(&self) -> usize {
        self.0.iter().flat_map(|kind| &kind.pages).map(Bytes::len).sum()
    }
}

impl Kind {
    fn n_pages(&self) -> usize {
        self.n.div_ceil(PAGE)
    }

    fn on_page(&self, index: usize) -> std::ops::Range<usize> {
        index * PAGE..self.n.min((index + 1) * PAGE)
    }

    /// The continue token of a page is the number of the next one.
    fn metadata(&self, index: usize) -> Value {
        let mut metadata = json!({"resourceVersion": VERSION.to_string()});
        if index + 1 < self.n_pages() {
            metadata["continue"] = json!((index + 1).to_string());
            metadata["remainingItemCount"] = json!(self.n - (index + 1) * PAGE);
        }
        metadata
    }

    fn json(&self, index: usize) -> Bytes {
        let (name, version, metadata) = (self.name, self.version, self.metadata(index));
        let mut text = String::new();
        put(
            &mut text,
            format_args!(
                "{{\"kind\":\"{name}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":["
            ),
        );
        for at in self.on_page(index) {
            if !at.is_multiple_of(PAGE) {
                text.push(',');
            }
            (self.item)(&mut text, at);
        }
        text.push_str("]}");
        Bytes::from(text)
    }

    fn protobuf(&self, index: usize, protobuf: &Protobuf) -> Result<Bytes> {
        let (mut text, mut items) = (String::new(), Vec::new());
        for at in self.on_page(index) {
            text.clear();
            (self.item)(&mut text, at);
            let object = serde_json::from_str(&text).doing(|| "read an object of ours".into())?;
            let message = protobuf.encode(self.name, &object);
            items.push(message.doing(|| "write an object of ours".into())?.into());
        }
        let list = write::list(&self.metadata(index), &items);
        Ok(write::envelope(self.version, &format!("{}List", self.name), &list))
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a String takes everything");
}

fn uid(kind: u8, n: usize) -> String {
    format!("{kind:02x}5a0000-0000-4000-8000-{n:012x}")
}

fn namespace(text: &mut String, n: usize) {
    put(
        text,
        format_args!(
            "{{\"metadata\":{{\"name\":\"namespace-{n:05}\",\"uid\":\"{}\",\"resourceVersion\":\"{n}\",\
             \"creationTimestamp\":\"2026-01-01T00:00:00Z\",\
             \"labels\":{{\"kubernetes.io/metadata.name\":\"namespace-{n:05}\"}},\
             \"managedFields\":[{{\"manager\":\"kubectl-create\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\
             \"time\":\"2026-01-01T00:00:00Z\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{\"f:metadata\":{{\"f:labels\":\
             {{\".\":{{}},\"f:kubernetes.io/metadata.name\":{{}}}}}}}}}}]}},\
             \"spec\":{{\"finalizers\":[\"kubernetes\"]}},\"status\":{{\"phase\":\"Active\"}}}}",
            uid(1, n)
        ),
    );
}

/// What a Deployment's Pod of one container holds besides what makes it this one.
const POD_SPEC: &str = r#""volumes":[{"name":"kube-api-access","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],"containers":[{"name":"web","image":"registry.example/web:1.0","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"volumeMounts":[{"name":"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"readinessProbe":{"httpGet":{"path":"/ready","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority""#;
const POD_STATUS: &str = r#""phase":"Running","conditions":[{"type":"PodReadyToStartContainers","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:02Z"},{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:03Z"},{"type":"ContainersReady","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:03Z"},{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z"}],"startTime":"2026-01-01T00:00:00Z","containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-01-01T00:00:02Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example/web:1.0","imageID":"registry.example/web@sha256:0000000000000000000000000000000000000000000000000000000000000000","containerID":"containerd://0000000000000000000000000000000000000000000000000000000000000000","started":true}],"qosClass":"Burstable""#;
const POD_MANAGED: &str = r#"[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"0\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:readinessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:resources":{".":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}},{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:03Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:phase":{},"f:podIP":{},"f:podIPs":{},"f:startTime":{}}},"subresource":"status"}]"#;

fn pod(text: &mut String, n: usize, n_nodes: usize) {
    let (namespace, app) = (n / 4, n / 2 % 2);
    let address = std::net::Ipv4Addr::from(0x0a00_0000 + u32::try_from(n).unwrap_or(u32::MAX));
    // Spread without order, and the same in each run.
    let node_n = n.wrapping_mul(7919) % n_nodes;
    let host = std::net::Ipv4Addr::from(0xac10_0001 + u32::try_from(node_n).unwrap_or_default());
    put(
        text,
        format_args!(
            "{{\"metadata\":{{\"name\":\"web-{app}-6d4cf56db6-{n:06x}\",\"generateName\":\"web-{app}-6d4cf56db6-\",\
             \"namespace\":\"namespace-{namespace:05}\",\"uid\":\"{uid}\",\"resourceVersion\":\"{n}\",\"generation\":1,\
             \"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"labels\":{{\"app\":\"namespace-{namespace:05}-{app}\",\
             \"pod-template-hash\":\"6d4cf56db6\"}},\"ownerReferences\":[{{\"apiVersion\":\"apps/v1\",\"kind\":\"ReplicaSet\",\
             \"name\":\"web-{app}-6d4cf56db6\",\"uid\":\"{owner}\",\"controller\":true,\"blockOwnerDeletion\":true}}],\
             \"managedFields\":{POD_MANAGED}}},\"spec\":{{{POD_SPEC},\"nodeName\":\"{node}\"}},\"status\":{{{POD_STATUS},\
             \"hostIP\":\"{host}\",\"hostIPs\":[{{\"ip\":\"{host}\"}}],\"podIP\":\"{address}\",\
             \"podIPs\":[{{\"ip\":\"{address}\"}}]}}}}",
            uid = uid(2, n),
            owner = uid(3, n / 2),
            node = node(node_n),
        ),
    );
}

/// Of three policies one isolates its namespace, the others let Pods of one application talk to each
/// other.
fn policy(text: &mut String, n: usize) {
    let namespace = n / 3;
    put(
        text,
        format_args!(
            "{{\"metadata\":{{\"name\":\"policy-{n}\",\"namespace\":\"namespace-{namespace:05}\",\"uid\":\"{}\",\
             \"resourceVersion\":\"{n}\",\"generation\":1,\"creationTimestamp\":\"2026-01-01T00:00:00Z\",\
             \"managedFields\":[{{\"manager\":\"kubectl-create\",\"operation\":\"Update\",\"apiVersion\":\"networking.k8s.io/v1\",\
             \"time\":\"2026-01-01T00:00:00Z\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{\"f:spec\":{{\"f:podSelector\":{{}},\
             \"f:policyTypes\":{{}}}}}}}}]}},\"spec\":{{",
            uid(4, n)
        ),
    );
    match n % 3 {
        0 => text.push_str("\"podSelector\":{}"),
        kind => {
            let app = format!(
                "{{\"matchLabels\":{{\"app\":\"namespace-{namespace:05}-{}\"}}}}",
                kind - 1
            );
            put(
                text,
                format_args!(
                    "\"podSelector\":{app},\"ingress\":[{{\"from\":[{{\"podSelector\":{app}}}]}}],\
                     \"egress\":[{{\"to\":[{{\"podSelector\":{app}}}]}}]"
                ),
            );
        }
    }
    text.push_str(",\"policyTypes\":[\"Ingress\",\"Egress\"]}}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_lists_with_all_objects() {
        let lists = Lists::make(300, 10).unwrap();
        for (path, n) in [
            ("/api/v1/namespaces", 300),
            ("/api/v1/pods", 1200),
            ("/apis/networking.k8s.io/v1/networkpolicies", 900),
        ] {
            let (mut names, mut at) = (std::collections::BTreeSet::new(), Some(0));
            while let Some(index) = at {
                let page = lists.json(path, index).unwrap().unwrap();
                let page: Value = serde_json::from_slice(&page).unwrap();
                at = page["metadata"]["continue"].as_str().map(|next| next.parse().unwrap());
                let protobuf = lists.protobuf(path, index).unwrap().unwrap();
                assert!(protobuf.starts_with(b"k8s\0"));
                let text = String::from_utf8_lossy(&protobuf);
                for item in page["items"].as_array().unwrap() {
                    let uid = item["metadata"]["uid"].as_str().unwrap();
                    assert!(text.contains(uid), "{uid} is in JSON alone");
                    names.insert(uid.to_owned());
                }
            }
            assert_eq!(names.len(), n);
            assert_eq!(lists.protobuf(path, n), Some(None));
        }
        assert_eq!(lists.json("/api/v1/secrets", 0), None);
    }
}
