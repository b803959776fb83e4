//! Parts of Kubernetes' own kinds that are read whole, in their protobuf form.
//!
//! Not here: objects of which only some fields are used (`kube-io` reads those field by field).

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
    NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};

use super::DecodeError;
use super::codec::{Field, Message, Reader, Value, Writer, message};

message! { NetworkPolicySpec { pod_selector = 1, ingress = 2, egress = 3, policy_types = 4 } }
message! { NetworkPolicyIngressRule { ports = 1, from = 2 } }
message! { NetworkPolicyEgressRule { ports = 1, to = 2 } }
message! { NetworkPolicyPort { protocol = 1, port = 2, end_port = 3 } }
message! { NetworkPolicyPeer { pod_selector = 1, namespace_selector = 2, ip_block = 3 } }
message! { IPBlock { cidr = 1, except = 2 } }
message! { LabelSelector { match_labels = 1, match_expressions = 2 } }
message! { LabelSelectorRequirement { key = 1, operator = 2, values = 3 } }

/// Lists of messages, which JSON may leave out.
macro_rules! list_field {
    ($($type:ty,)+) => {
        $(
            impl Field for Option<Vec<$type>> {
                fn write(&self, field: u32, out: &mut Writer) {
                    for message in self.iter().flatten() {
                        out.present(field, message);
                    }
                }

                fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
                    self.get_or_insert_default().merge(field, value)
                }
            }
        )+
    };
}

list_field! {
    NetworkPolicyIngressRule,
    NetworkPolicyEgressRule,
    NetworkPolicyPort,
    NetworkPolicyPeer,
    LabelSelectorRequirement,
}

/// Reads the specification of a NetworkPolicy.
///
/// # Errors
/// When a field is malformed.
pub fn network_policy_spec(bytes: &[u8]) -> Result<NetworkPolicySpec, DecodeError> {
    NetworkPolicySpec::read(Reader::new(bytes))
}

/// Reads an object's metadata, without `managedFields`.
///
/// # Errors
/// When a field is malformed.
pub fn object_meta(bytes: &[u8]) -> Result<ObjectMeta, DecodeError> {
    ObjectMeta::read(Reader::new(bytes))
}
