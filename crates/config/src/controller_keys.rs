//! Every key of antrea-controller.conf.

use crate::key::{Built, Key};
use crate::kind::Kind;

use Built::{No, NoEffect, Yes};

const JSON: Built = NoEffect("the client chooses the content type itself");

#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    Key::new("featureGates", Kind::Gates, "{}", Yes, "Switches features on or off by gate; AllAlpha and AllBeta switch a stage."),
    Key::new("clientConnection.kubeconfig", Kind::OptionalPath, "\"\"", Yes, "Kubeconfig for the Kubernetes API; empty uses the Pod's service account."),
    Key::new("clientConnection.acceptContentTypes", Kind::Text, "\"\"", JSON, "Content types asked of the Kubernetes API."),
    Key::new("clientConnection.contentType", Kind::Text, "\"\"", JSON, "Content type sent to the Kubernetes API."),
    Key::new("clientConnection.qps", Kind::Number, "50", Yes, "Requests per second to the Kubernetes API, watches aside; 0 takes 50."),
    Key::new("clientConnection.burst", Kind::Int(0, i64::MAX), "100", Yes, "Requests at once to the Kubernetes API before qps counts; 0 takes 100."),
    Key::new("apiPort", Kind::Int(1, 65535), "10349", Yes, "Port of the controller's API."),
    Key::new("enablePrometheusMetrics", Kind::Bool, "true", Yes, "Serves /metrics on the API port."),
    Key::new("selfSignedCert", Kind::Bool, "true", No, "Signs the serving certificate itself; else Secret antrea-controller-tls has it."),
    Key::new("tlsCipherSuites", Kind::Text, "\"\"", No, "TLS cipher suites of the API."),
    Key::new("tlsMinVersion", Kind::Text, "\"\"", No, "Lowest TLS version of the API."),
    Key::new("clientCAFile", Kind::OptionalPath, "\"\"", No, "CA by which client certificates are judged."),
    Key::new("kubeAPIServerOverride", Kind::Endpoint, "\"\"", Yes, "Address of the Kubernetes API in place of the kubeconfig's or the cluster's own."),
    Key::new("nodeIPAM.enableNodeIPAM", Kind::Bool, "false", Yes, "Gives nodes their Pod prefixes, in place of kube-controller-manager."),
    Key::new("nodeIPAM.clusterCIDRs", Kind::CidrList, "[]", Yes, "Prefixes that nodes' prefixes come from, at most one per family."),
    Key::new("nodeIPAM.serviceCIDR", Kind::Cidr, "\"\"", Yes, "Prefix of Services, kept out of the nodes' prefixes."),
    Key::new("nodeIPAM.serviceCIDRv6", Kind::CidrV6, "\"\"", Yes, "IPv6 prefix of Services, kept out of the nodes' prefixes."),
    Key::new("nodeIPAM.nodeCIDRMaskSizeIPv4", Kind::Int(16, 30), "24", Yes, "Length of a node's IPv4 prefix."),
    Key::new("nodeIPAM.nodeCIDRMaskSizeIPv6", Kind::Int(64, 126), "64", Yes, "Length of a node's IPv6 prefix, at most 16 more than the cluster's."),
    Key::new("ipsecCSRSigner.selfSignedCA", Kind::Bool, "true", No, "Makes the CA of IPsec certificates itself; else Secret antrea-ipsec-ca has it."),
    Key::new("ipsecCSRSigner.autoApprove", Kind::Bool, "true", No, "Approves agents' certificate requests."),
    Key::new("multicluster.enableStretchedNetworkPolicy", Kind::Bool, "false", No, "Computes policies across clusters."),
    Key::new("multicluster.namespace", Kind::Text, "\"\"", No, "Namespace of the multi-cluster objects."),
];
