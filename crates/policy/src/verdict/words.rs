//! Decisions in words, as audit logs name policies: `AntreaNetworkPolicy:namespace/name`.

use std::fmt;

use apis::controlplane::{Direction, NetworkPolicyReference};

use super::{Action, Decision, Reason, RuleRef};

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "Allow",
            Self::Drop => "Drop",
            Self::Reject => "Reject",
        })
    }
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = match self.direction {
            Direction::In => "ingress",
            Direction::Out => "egress",
        };
        write!(f, "{} {list}[{}]", PolicyName(&self.policy), self.index)?;
        match &self.name {
            Some(name) => write!(f, " {name:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default: no policy matches"),
            Self::Rule(rule) => rule.fmt(f),
            Self::Isolation(policy) => {
                write!(f, "{} (isolation: no rule allows it)", PolicyName(policy))
            }
            Self::SamePod => f.write_str("default: a Pod reaches itself"),
            Self::OwnNode => f.write_str("default: a Node reaches its own Pods"),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.action, self.reason)
    }
}

/// A policy by kind, Namespace and name.
struct PolicyName<'a>(&'a NetworkPolicyReference);

impl fmt::Display for PolicyName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NetworkPolicyReference { type_, namespace, name, .. } = self.0;
        match namespace.as_str() {
            "" => write!(f, "{type_}:{name}"),
            namespace => write!(f, "{type_}:{namespace}/{name}"),
        }
    }
}
