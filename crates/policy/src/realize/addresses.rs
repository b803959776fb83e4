//! Changes the flows of single addresses, where a group that rules name gets or loses members.

use std::sync::Arc;

use apis::controlplane::Direction as RuleDirection;
use pipeline::policy::ClauseKey;

use super::Realizer;
use super::groups::AddressDelta;
use super::install::clause;
use super::service::Services;
use super::table::FlowId;

impl Realizer {
    /// Changes the flows of some addresses of a group, for a policy that uses it. Says whether that
    /// was possible.
    pub(super) fn change_addresses(
        &mut self,
        uid: &str,
        group: &str,
        delta: &AddressDelta,
    ) -> bool {
        let Some(state) = self.policies.get_mut(uid) else { return true };
        let Some(policy) = &state.installed else { return false };
        if !Arc::ptr_eq(policy, &state.latest) {
            return false;
        }
        let families = self.config.policy.families;
        let uses =
            |rule: usize| policy.rules[rule].peer().address_groups.iter().any(|g| g == group);
        for (n, rule) in policy.rules.iter().enumerate().filter(|(n, _)| uses(*n)) {
            let peer = rule.peer();
            let plain = peer.ip_blocks.is_empty() && peer.fqdns.is_empty();
            let named = rule.direction == RuleDirection::Out
                && Services::of(rule, &mut Vec::new()).has_names();
            let installed = state.parts.values().any(|part| part.rule == n);
            if !plain || named || !installed {
                return false;
            }
        }
        for installed in state.parts.values_mut().filter(|part| uses(part.rule)) {
            let rule = &policy.rules[installed.rule];
            let (n, key): (usize, fn(std::net::IpAddr) -> ClauseKey) = match rule.direction {
                RuleDirection::In => (0, ClauseKey::from_ip),
                RuleDirection::Out => (1, ClauseKey::to_ip),
            };
            if self.slots.may_be_full(installed.slot) {
                return false;
            }
            let clause = clause(installed.id, n, installed.part.clauses.len());
            let keys = Arc::make_mut(&mut installed.part.clauses[n]);
            for ip in delta.removed.iter().filter(|ip| families.has(**ip)) {
                let groups = rule.peer().address_groups.iter();
                let elsewhere =
                    groups.filter_map(|g| self.addresses.get(g)).any(|group| group.has(*ip));
                if !elsewhere && let Ok(at) = keys.binary_search(&key(*ip)) {
                    keys.remove(at);
                    self.table.remove(FlowId { slot: installed.slot, key: key(*ip) }, clause);
                }
            }
            for ip in delta.added.iter().filter(|ip| families.has(**ip)) {
                if let Err(at) = keys.binary_search(&key(*ip)) {
                    keys.insert(at, key(*ip));
                    self.table.add(FlowId { slot: installed.slot, key: key(*ip) }, clause);
                }
            }
            if keys.is_empty() {
                return false;
            }
        }
        true
    }
}
