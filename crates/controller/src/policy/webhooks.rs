//! The webhooks of our policy kinds, as pages of the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::policy::{GroupSpec, NetworkPolicySpec, TierSpec};
use apiserver::api::Page;
use apiserver::webhook::{AdmissionRequest, Operation, Reviewer, Verdict, Webhook};
use futures::future::BoxFuture;
use policy::admit::{self, PolicyScope, Refusal};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::state::State;

/// What a webhook is about.
#[derive(Clone, Copy, Debug)]
enum Hook {
    Policy(PolicyScope),
    Tier,
    Group,
    Upstream,
    Mutate,
}

const HOOKS: &[(&str, Hook)] = &[
    ("/validate/acnp", Hook::Policy(PolicyScope::Cluster)),
    ("/validate/annp", Hook::Policy(PolicyScope::Namespace)),
    ("/validate/tier", Hook::Tier),
    ("/validate/clustergroup", Hook::Group),
    ("/validate/group", Hook::Group),
    ("/validate/cnp", Hook::Upstream),
    ("/mutate/acnp", Hook::Mutate),
    ("/mutate/annp", Hook::Mutate),
    ("/mutate/anp", Hook::Mutate),
];

/// The pages of all webhooks.
pub(crate) fn pages(state: &Arc<State>) -> BTreeMap<String, Arc<dyn Page>> {
    let page = |hook| -> Arc<dyn Page> {
        Arc::new(Webhook(Arc::new(Judge { state: Arc::clone(state), hook })))
    };
    HOOKS.iter().map(|(path, hook)| ((*path).to_owned(), page(*hook))).collect()
}

struct Judge {
    state: Arc<State>,
    hook: Hook,
}

impl Reviewer for Judge {
    fn review(&self, request: AdmissionRequest) -> BoxFuture<'_, Verdict> {
        let verdict = match self.judge(&request) {
            Ok(verdict) => verdict,
            Err(refusal) => Verdict::Deny { code: 422, message: refusal.to_string() },
        };
        Box::pin(std::future::ready(verdict))
    }
}

fn spec<T: DeserializeOwned>(object: &Value) -> Result<T, Refusal> {
    serde_json::from_value(object["spec"].clone()).map_err(|error| Refusal {
        field: "spec".to_owned(),
        reason: format!("it cannot be read: {error}"),
    })
}

impl Judge {
    fn judge(&self, request: &AdmissionRequest) -> Result<Verdict, Refusal> {
        if !matches!(self.hook, Hook::Mutate) && !self.state.is_complete() {
            // What it would be judged against is not known yet.
            let message = "the controller has not read the cluster yet".to_owned();
            return Ok(Verdict::Deny { code: 503, message });
        }
        let gone = request.operation == Operation::Delete;
        let mut warnings = Vec::new();
        let refusals = match self.hook {
            Hook::Mutate if gone => Vec::new(),
            Hook::Mutate => {
                let patch = admit::mutate_policy(&request.object);
                return Ok(patch.map_or(Verdict::Allow, Verdict::Patch));
            }
            Hook::Tier if gone => admit::delete_tier(self.state.lock().engine(), &request.name),
            Hook::Tier if request.operation == Operation::Update => {
                admit::update_tier(&spec::<TierSpec>(&request.old)?, &spec(&request.object)?)
            }
            Hook::Tier => {
                let tier = spec(&request.object)?;
                admit::create_tier(self.state.lock().engine(), &request.name, &tier)
            }
            _ if gone => Vec::new(),
            Hook::Policy(scope) => {
                let policy: NetworkPolicySpec = spec(&request.object)?;
                let store = self.state.lock();
                warnings = admit::warnings(store.engine(), &request.namespace, &policy);
                admit::policy(store.engine(), scope, &policy)
            }
            Hook::Upstream if request.operation == Operation::Update => Vec::new(),
            Hook::Upstream => admit::create_upstream(self.state.lock().engine()),
            Hook::Group => {
                let group: GroupSpec = spec(&request.object)?;
                let (namespace, name) = (&request.namespace, &request.name);
                admit::group(self.state.lock().engine(), namespace, name, &group)
            }
        };
        Ok(match refusals.as_slice() {
            [] if warnings.is_empty() => Verdict::Allow,
            [] => Verdict::Warn(warnings),
            all => {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                Verdict::Deny { code: 422, message: all.join("; ") }
            }
        })
    }
}
