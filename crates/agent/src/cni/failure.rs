//! Why a request failed, and the code the runtime hears.

use cni_api::Code;
use cni_api::rpc::CniCmdResponse;

use super::request::RequestError;
use super::traits::{ConntrackError, FlowsError, IpamError, NetError, PortsError};

/// Why a CNI request failed.
#[derive(Debug, thiserror::Error)]
pub enum CniFailure {
    /// The request makes no sense.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The agent cannot serve yet.
    #[error("node not ready, waiting for {waiting_for}")]
    NotReady {
        /// What is awaited.
        waiting_for: &'static str,
    },
    /// CHECK: the container is not connected.
    #[error("container is not connected")]
    NotConnected,
    /// CHECK: the result of ADD that the runtime kept is not what was made.
    #[error("prevResult: {0}")]
    PreviousResult(String),
    /// The lease of an address.
    #[error("allocate, check or release addresses")]
    Ipam(#[from] IpamError),
    /// An address was leased that another Pod has.
    #[error("leased address {ip} is that of {other}")]
    AddressInUse {
        /// The address.
        ip: std::net::IpAddr,
        /// Whose it is.
        other: String,
    },
    /// The network configuration wishes for more than passes between nodes.
    #[error("mtu {wished} is more than the {most} that this node's Pods can have")]
    Mtu {
        /// Wished, in bytes.
        wished: u32,
        /// The node's, in bytes.
        most: u32,
    },
    /// No port number is free.
    #[error("no free OpenFlow port number")]
    NoPortNumber,
    /// The link of the Pod.
    #[error("Pod interface")]
    Net(#[from] NetError),
    /// The port of the Pod.
    #[error("Pod port")]
    Ports(#[from] PortsError),
    /// The flows of the Pod.
    #[error("Pod flows")]
    Flows(#[from] FlowsError),
    /// The connections of the Pod.
    #[error("Pod connections")]
    Conntrack(#[from] ConntrackError),
    /// A step did not end in time.
    #[error("{step} did not end in time")]
    TooSlow {
        /// Which.
        step: &'static str,
    },
    /// A step of an earlier request that did not end in time is still running.
    #[error("a step of an earlier request has not ended yet")]
    Overdue,
    /// A step was given up because another one failed; never the first cause.
    #[error("given up")]
    GivenUp,
    /// The request's own task died.
    #[error("internal error")]
    Internal,
}

impl CniFailure {
    /// Result code: the CNI specification's below 100, Antrea's above.
    pub fn code(&self) -> Code {
        match self {
            Self::Request(error) => error.code(),
            Self::NotReady { .. } | Self::TooSlow { .. } | Self::Overdue => Code::TRY_AGAIN_LATER,
            Self::Ports(PortsError::Unavailable(_)) | Self::Flows(FlowsError::Unavailable(_)) => {
                Code::TRY_AGAIN_LATER
            }
            Self::NotConnected => Code::UNKNOWN_CONTAINER,
            Self::Ipam(IpamError::NotLeased(_))
            | Self::PreviousResult(_)
            | Self::Net(NetError::Differs(_))
            | Self::Ports(PortsError::Differs(_))
            | Self::Flows(FlowsError::Missing(_)) => Code::CHECK_INTERFACE_FAILURE,
            Self::Ipam(_) | Self::AddressInUse { .. } => Code::IPAM_FAILURE,
            Self::Net(NetError::Netns { .. }) => Code::INVALID_NETNS,
            Self::Mtu { .. } => Code::INVALID_NETWORK_CONFIG,
            Self::NoPortNumber
            | Self::Net(_)
            | Self::Ports(_)
            | Self::Flows(_)
            | Self::Conntrack(_) => Code::CONFIG_INTERFACE_FAILURE,
            Self::GivenUp | Self::Internal => Code::GENERIC,
        }
    }

    /// Whether something was looked at and is not as it was made, so that it has to be made again;
    /// any other failure says nothing about the interface.
    pub(super) fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Net(NetError::Differs(_) | NetError::Netns { .. })
                | Self::Ports(PortsError::Differs(_))
                | Self::Flows(FlowsError::Missing(_))
                | Self::Ipam(IpamError::NotLeased(_))
        )
    }

    /// Whether Open vSwitch did not answer.
    pub(super) fn is_switch_away(&self) -> bool {
        matches!(
            self,
            Self::Ports(PortsError::Unavailable(_)) | Self::Flows(FlowsError::Unavailable(_))
        )
    }

    /// The answer to the caller.
    pub(super) fn to_response(&self) -> CniCmdResponse {
        CniCmdResponse::failure(self.code(), chain(self))
    }
}

/// An error with all its causes on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // A transparent wrapper says what its cause says.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_the_whole_chain() {
        let source = std::io::Error::from_raw_os_error(2).into();
        let failure = CniFailure::from(NetError::Netns { path: "/run/netns/p".into(), source });
        let error = failure.to_response().error.unwrap();
        assert_eq!(error.code, 8);
        assert!(error.message.contains("\"/run/netns/p\" cannot be used: No such"), "{error:?}");
    }
}
