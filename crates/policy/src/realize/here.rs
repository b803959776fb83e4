//! Addresses of this node's own Pods, which the node knows best.
//!
//! A group tells addresses as the controller saw them. Of Pods that are here it may be wrong for a
//! while, or, while no controller answers, for long: a Pod that comes back after a reboot has another
//! address, and another Pod has its former one. So a member that is here has the addresses that it has
//! here, and no other member has any of those.

use std::collections::BTreeMap;
use std::net::IpAddr;

use apis::controlplane::GroupMember;

use super::groups::PodKey;

/// The Pods that are here.
#[derive(Debug, Default)]
pub(super) struct Here {
    ips: BTreeMap<PodKey, Vec<IpAddr>>,
    holders: BTreeMap<IpAddr, PodKey>,
}

impl Here {
    /// A Pod has these addresses now, or is gone if it has none. Returns those that it had or has.
    pub(super) fn set(&mut self, pod: &PodKey, ips: &[IpAddr]) -> Vec<IpAddr> {
        let mut touched = match ips {
            [] => self.ips.remove(pod),
            ips => self.ips.insert(pod.clone(), ips.to_vec()),
        }
        .unwrap_or_default();
        for ip in &touched {
            if self.holders.get(ip) == Some(pod) {
                self.holders.remove(ip);
            }
        }
        for ip in ips {
            self.holders.insert(*ip, pod.clone());
            touched.push(*ip);
        }
        touched
    }

    /// The addresses of a member.
    pub(super) fn ips_of(&self, member: &GroupMember) -> Vec<IpAddr> {
        let Some(pod) = &member.pod else { return member.ips.clone() };
        match self.ips.get(pod) {
            Some(ips) => ips.clone(),
            None => {
                let free = member.ips.iter().filter(|ip| !self.holders.contains_key(ip));
                free.copied().collect()
            }
        }
    }
}
