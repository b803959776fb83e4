//! Questions about groups and policies, and what agents tell of traffic, as resources of an API.
//!
//! Not here: the answers (`policy::translate`).

use std::net::IpAddr;
use std::sync::Arc;

use apis::controlplane::wire::{self, WireObject};
use apis::controlplane::{
    ClusterGroupMembers, Entity, GROUP, GroupAssociation, GroupMembers, GroupReference,
    IpGroupAssociation, NetworkPolicyEvaluation, NodeStatsSummary, Typed, VERSION,
};
use apiserver::body::{self, Response};
use apiserver::negotiate::{Encoding, Form, Offer, View, accept};
use apiserver::resource::{Call, Connect, Resource, Scope};
use apiserver::rest;
use apiserver::server::Request;
use apiserver::status::ApiError;
use futures::future::BoxFuture;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use policy::translate::{NamedGroup, NamedMembers, UnknownPod};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::report::Reports;
use super::source::{Agents, Reporter, forbidden};
use super::state::State;

/// Members on a page where nothing is said.
const PAGE: i64 = 100;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Evaluation,
    ClusterGroupMembers,
    GroupMembers,
    PodGroups,
    IpGroups,
    Stats,
}

/// The resources.
pub(crate) fn resources(
    state: &Arc<State>,
    reports: &Arc<Reports>,
    agents: &Agents,
) -> Vec<Resource> {
    use Question::{ClusterGroupMembers, Evaluation, GroupMembers, IpGroups, PodGroups, Stats};
    let all = [
        (
            Evaluation,
            "NetworkPolicyEvaluation",
            "networkpolicyevaluation",
            Scope::Cluster,
            "create",
        ),
        (ClusterGroupMembers, "ClusterGroupMembers", "clustergroupmembers", Scope::Cluster, "get"),
        (GroupMembers, "GroupMembers", "groupmembers", Scope::Namespaced, "get"),
        (PodGroups, "GroupAssociation", "groupassociations", Scope::Namespaced, "get"),
        (IpGroups, "IPGroupAssociation", "ipgroupassociations", Scope::Cluster, "get"),
        (Stats, "NodeStatsSummary", "nodestatssummaries", Scope::Cluster, "create"),
    ];
    let resources = all.into_iter().map(|(question, kind, plural, scope, verb)| {
        let (state, reports) = (Arc::clone(state), Arc::clone(reports));
        let connect = Arc::new(Endpoint { state, reports, agents: agents.clone(), question });
        let mut resource =
            Resource::connected((GROUP, VERSION), kind, plural, scope, &[verb], connect);
        resource.offer = Offer::TextAndProtobuf;
        resource
    });
    resources.collect()
}

#[derive(Clone)]
struct Endpoint {
    state: Arc<State>,
    reports: Arc<Reports>,
    agents: Agents,
    question: Question,
}

impl Connect for Endpoint {
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let own = self.clone();
        Box::pin(async move {
            if !own.state.is_complete() {
                return Err(ApiError::unavailable("policies are not computed yet"));
            }
            let header = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            let form = accept(header, Offer::TextAndProtobuf)?;
            match own.question {
                Question::Evaluation => own.evaluate(form, read(request).await?),
                Question::Stats => own.take_stats(&call, form, &read(request).await?),
                Question::ClusterGroupMembers => own.cluster_members(&call, form),
                Question::GroupMembers => own.members(&call, form),
                Question::PodGroups => own.pod_groups(&call, form),
                Question::IpGroups => own.ip_groups(&call, form),
            }
        })
    }
}

/// Reads an object from a body, in protobuf or JSON.
pub(super) async fn read<T: WireObject + DeserializeOwned>(
    request: Request,
) -> Result<T, ApiError> {
    let header = request.headers().get(CONTENT_TYPE);
    let protobuf =
        header.is_some_and(|value| value.as_bytes().starts_with(wire::CONTENT_TYPE.as_bytes()));
    let bytes = rest::read_body(request).await?;
    match protobuf {
        true => wire::decode(&bytes).map_err(|error| ApiError::bad_request(error.to_string())),
        false => {
            serde_json::from_slice(&bytes).map_err(|error| ApiError::bad_request(error.to_string()))
        }
    }
}

fn answer<T: WireObject + Serialize>(form: Form, code: u16, object: &T) -> Response {
    if form.encoding == Encoding::Protobuf {
        return body::with_type(code, wire::CONTENT_TYPE, wire::encode(object));
    }
    // There are no tables of these; clients that ask for one take the object itself.
    let form = Form { view: View::Whole, ..form };
    rest::answer(form, code, &serde_json::json!(Typed::new(object)))
}

impl Endpoint {
    fn evaluate(
        &self,
        form: Form,
        mut asked: NetworkPolicyEvaluation,
    ) -> Result<Response, ApiError> {
        let missing = |end: &str| ApiError::bad_request(format!("request.{end}.pod is needed"));
        let Some(question) = &asked.request else { return Err(missing("source")) };
        let pod = |entity: &Entity, end: &str| entity.pod.clone().ok_or_else(|| missing(end));
        let (from, to) =
            (pod(&question.source, "source")?, pod(&question.destination, "destination")?);
        let store = self.state.lock();
        let ends = ((&*from.namespace, &*from.name), (&*to.namespace, &*to.name));
        let found = store.engine().evaluate(ends.0, ends.1);
        drop(store);
        asked.response = found.map_err(|unknown| {
            let (end, pod) = match unknown {
                UnknownPod::Source => ("source", &from),
                UnknownPod::Destination => ("destination", &to),
            };
            let name = format!("{}/{}", pod.namespace, pod.name);
            ApiError::bad_request(format!("request.{end}.pod: there is no Pod {name}"))
        })?;
        Ok(answer(form, 201, &asked))
    }

    fn named(&self, call: &Call) -> Result<(NamedMembers, Page), ApiError> {
        let (namespace, name) = (&call.path.namespace, &call.path.name);
        let found = self.state.lock().engine().named_members(namespace, name);
        let mut found =
            found.ok_or_else(|| ApiError::not_found(&call.resource.group_resource(), name))?;
        let query = &call.info.query;
        let page = Page::of(found.members.len(), query.number("page")?, query.number("limit")?)?;
        found.members = found.members.drain(page.range.clone()).collect();
        Ok((found, page))
    }

    fn cluster_members(&self, call: &Call, form: Form) -> Result<Response, ApiError> {
        let (found, page) = self.named(call)?;
        let members = ClusterGroupMembers {
            metadata: meta(call),
            effective_members: found.members,
            effective_ip_blocks: found.networks,
            total_members: page.total_members,
            total_pages: page.total_pages,
            current_page: page.current,
        };
        Ok(answer(form, 200, &members))
    }

    fn members(&self, call: &Call, form: Form) -> Result<Response, ApiError> {
        let (found, page) = self.named(call)?;
        let members = GroupMembers {
            metadata: meta(call),
            effective_members: found.members,
            effective_ip_blocks: found.networks,
            total_members: page.total_members,
            total_pages: page.total_pages,
            current_page: page.current,
        };
        Ok(answer(form, 200, &members))
    }

    fn references(&self, groups: Vec<NamedGroup>) -> Vec<GroupReference> {
        let references = groups.into_iter().map(|(namespace, name)| {
            let uid = self.state.group_uid(&namespace, &name).unwrap_or_default();
            GroupReference { namespace, name, uid }
        });
        references.collect()
    }

    fn pod_groups(&self, call: &Call, form: Form) -> Result<Response, ApiError> {
        let (namespace, name) = (&call.path.namespace, &call.path.name);
        let found = self.state.lock().engine().groups_of_pod(namespace, name);
        let found =
            found.ok_or_else(|| ApiError::not_found(&call.resource.group_resource(), name))?;
        let associated_groups = self.references(found);
        Ok(answer(form, 200, &GroupAssociation { metadata: meta(call), associated_groups }))
    }

    fn ip_groups(&self, call: &Call, form: Form) -> Result<Response, ApiError> {
        let name = &call.path.name;
        let ip: IpAddr =
            name.parse().map_err(|_| ApiError::bad_request(format!("{name:?} is no address")))?;
        let found = self.state.lock().engine().groups_of_ip(ip);
        let associated_groups = self.references(found);
        Ok(answer(form, 200, &IpGroupAssociation { metadata: meta(call), associated_groups }))
    }

    fn take_stats(
        &self,
        call: &Call,
        form: Form,
        summary: &NodeStatsSummary,
    ) -> Result<Response, ApiError> {
        let reporter = self.agents.reporter(&call.user, &self.state)?;
        let node = summary.metadata.name.clone().unwrap_or_default();
        match reporter {
            Reporter::Agent(own) if own != node => {
                let why = format!("the agent of Node {own:?} reports for it alone");
                return Err(forbidden(why));
            }
            Reporter::Agent(_) => self.reports.hear_traffic(summary),
            Reporter::Replica => self.reports.traffic.hear_replica(summary),
        }
        // It need not hear all of it again.
        let metadata = summary.metadata.clone();
        Ok(answer(form, 201, &NodeStatsSummary { metadata, ..NodeStatsSummary::default() }))
    }
}

fn meta(call: &Call) -> ObjectMeta {
    let namespace = Some(call.path.namespace.clone()).filter(|text| !text.is_empty());
    ObjectMeta { name: Some(call.path.name.clone()), namespace, ..ObjectMeta::default() }
}

/// A page of members.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    range: std::ops::Range<usize>,
    total_members: i64,
    total_pages: i64,
    current: i64,
}

impl Page {
    /// A page of so many members; without a page, the first, and without a limit, a usual one. A
    /// limit of zero puts all on one page.
    fn of(n_members: usize, page: Option<i64>, limit: Option<i64>) -> Result<Self, ApiError> {
        let total_members = i64::try_from(n_members).unwrap_or(i64::MAX);
        let (page, limit) = (page.unwrap_or(1).max(1), limit.unwrap_or(PAGE));
        if limit < 0 {
            return Err(ApiError::bad_request(format!("limit: {limit} is below 0")));
        }
        let limit = if limit == 0 { total_members.max(1) } else { limit };
        let total_pages = total_members / limit + i64::from(total_members % limit > 0);
        let place = |page: i64| {
            let at = page.saturating_mul(limit).min(total_members);
            usize::try_from(at).unwrap_or(n_members)
        };
        let range = place(page - 1)..place(page);
        Ok(Self { range, total_members, total_pages, current: page })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_all_members_once() {
        for (n, page, limit, range, pages) in [
            (0, None, None, 0..0, 0),
            (5, None, None, 0..5, 1),
            (250, None, None, 0..100, 3),
            (250, Some(3), None, 200..250, 3),
            (250, Some(4), None, 250..250, 3),
            (5, Some(2), Some(2), 2..4, 3),
            (5, Some(3), Some(2), 4..5, 3),
            (5, Some(0), Some(0), 0..5, 1),
            (4, Some(2), Some(2), 2..4, 2),
            (4, Some(i64::MAX), Some(i64::MAX), 4..4, 1),
        ] {
            let found = Page::of(n, page, limit).unwrap();
            assert_eq!((found.range, found.total_pages), (range, pages), "{n} {page:?} {limit:?}");
        }
        assert!(Page::of(4, None, Some(-1)).is_err());
    }
}
