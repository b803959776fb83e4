//! The status of a Pod, from what is known of its containers. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use kube_io::apis::common::ConditionStatus;
use kube_io::pods::{Container, ContainerState, ContainerStatus, PodCondition, PodStatus, PodView};

use super::containers::{Seen, for_init, restart_policy};
use crate::container::{Exit, RestartPolicy, Running};

/// What is known of a Pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Its containers that run before the others.
    pub(super) init: BTreeMap<String, Seen>,
    /// Its containers.
    pub(super) main: BTreeMap<String, Seen>,
    /// Its addresses, once it has a network.
    pub(super) pod_ips: Vec<IpAddr>,
    /// Why it has no network yet.
    pub(super) waiting: Option<String>,
    /// Id of its sandbox.
    pub(super) sandbox: Option<String>,
    /// Since when this kubelet knows it.
    pub(super) started: Option<Timestamp>,
}

/// When conditions last changed.
pub(super) type Since = BTreeMap<String, (bool, Timestamp)>;

/// Phase of a Pod.
pub(super) fn phase(pod: &PodView, known: &Known) -> &'static str {
    let policy = restart_policy(pod);
    let init = for_init(policy);
    let ended = |seen: Option<&Seen>, policy: RestartPolicy| {
        let exit = seen?.exit.as_ref()?;
        (!policy.restarts(exit)).then_some(exit.code)
    };
    for container in &pod.spec.init_containers {
        match ended(known.init.get(&container.name), init) {
            Some(0) => {}
            Some(_) => return "Failed",
            None => return "Pending",
        }
    }
    let codes: Vec<Option<i32>> =
        pod.spec.containers.iter().map(|c| ended(known.main.get(&c.name), policy)).collect();
    if !codes.is_empty() && codes.iter().all(Option::is_some) {
        let failed = codes.iter().flatten().any(|code| *code != 0);
        return if failed { "Failed" } else { "Succeeded" };
    }
    let begun = |c: &Container| known.main.get(&c.name).is_some_and(|s| s.attempt.is_some());
    if pod.spec.containers.iter().all(begun) { "Running" } else { "Pending" }
}

/// The whole status.
pub(super) fn status(
    pod: &PodView,
    known: &Known,
    host_ips: &[IpAddr],
    since: &mut Since,
    now: Timestamp,
) -> PodStatus {
    let policy = restart_policy(pod);
    let init_done = pod.spec.init_containers.iter().all(|c| {
        let exit = known.init.get(&c.name).and_then(|s| s.exit.as_ref());
        exit.is_some_and(|e| e.code == 0)
    });
    let of = |containers: &[Container], seen: &BTreeMap<String, Seen>, policy| {
        containers
            .iter()
            .map(|c| container_status(c, seen.get(&c.name), known, policy, init_done))
            .collect::<Vec<_>>()
    };
    let main = of(&pod.spec.containers, &known.main, policy);
    let init = of(&pod.spec.init_containers, &known.init, for_init(policy));
    // One that is on its way out serves on until its containers end.
    let ready = !main.is_empty() && main.iter().all(|c| c.ready);
    let phase = phase(pod, known);
    let done = matches!(phase, "Succeeded" | "Failed");
    let reason = match (ready, done) {
        (true, _) => None,
        (false, true) if phase == "Succeeded" => Some("PodCompleted"),
        (false, true) => Some("PodFailed"),
        (false, false) => Some("ContainersNotReady"),
    };
    let mut condition = |type_: &str, holds: bool, reason: Option<&str>| {
        let entry = since.entry(type_.to_owned()).or_insert((holds, now));
        if entry.0 != holds {
            *entry = (holds, now);
        }
        PodCondition {
            type_: type_.into(),
            status: if holds { ConditionStatus::True } else { ConditionStatus::False },
            last_transition_time: entry.1,
            reason: reason.map(Into::into),
            message: None,
        }
    };
    let conditions = vec![
        condition("PodReadyToStartContainers", !known.pod_ips.is_empty() && !done, None),
        condition("Initialized", init_done, (!init_done).then_some("ContainersNotInitialized")),
        condition("Ready", ready, reason),
        condition("ContainersReady", ready, reason),
        condition("PodScheduled", true, None),
    ];
    PodStatus {
        phase: Some(phase.into()),
        reason: None,
        message: None,
        host_ips: host_ips.to_vec(),
        pod_ips: known.pod_ips.clone(),
        start_time: known.started,
        conditions,
        container_statuses: main,
        init_container_statuses: init,
    }
}

fn container_status(
    container: &Container,
    seen: Option<&Seen>,
    known: &Known,
    policy: RestartPolicy,
    init_done: bool,
) -> ContainerStatus {
    let empty = Seen::default();
    let seen = seen.unwrap_or(&empty);
    let waiting = |reason: &str, message: &str| ContainerState::Waiting {
        reason: reason.into(),
        message: message.into(),
    };
    let running = seen.exit.is_none() && seen.running.is_some();
    let state = match (&seen.exit, &seen.running) {
        (Some(exit), _) if policy.restarts(exit) => {
            let why = format!("the container ended with code {} and is started again", exit.code);
            waiting("CrashLoopBackOff", &why)
        }
        (Some(exit), run) => terminated(exit, run.as_ref()),
        (None, Some(run)) => ContainerState::Running { started_at: run.started },
        (None, None) if !init_done => waiting("PodInitializing", ""),
        (None, None) => waiting("ContainerCreating", known.waiting.as_deref().unwrap_or_default()),
    };
    // What waits for its restart shows how it ended as its last state.
    let last = match &seen.exit {
        Some(exit) if policy.restarts(exit) => Some(terminated(exit, seen.running.as_ref())),
        _ => seen.last.as_ref().map(|(run, exit)| terminated(exit, run.as_ref())),
    };
    let attempt = seen.attempt.unwrap_or(0);
    let id = known.sandbox.as_deref().filter(|_| seen.attempt.is_some());
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        image_id: String::new(),
        container_id: id.map(|s| format!("lab://{s}/{}/{attempt}", container.name)),
        started: running,
        ready: running,
        restart_count: i32::try_from(attempt).unwrap_or(i32::MAX),
        state,
        last_state: last,
    }
}

fn terminated(exit: &Exit, running: Option<&Running>) -> ContainerState {
    ContainerState::Terminated {
        exit_code: exit.code,
        reason: exit.reason(running).into(),
        message: exit.message.clone().unwrap_or_default(),
        started_at: running.map_or(exit.finished, |r| r.started),
        finished_at: exit.finished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessId;

    fn mk_seen(code: Option<i32>) -> Seen {
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        Seen {
            attempt: Some(0),
            running: Some(Running { child: ProcessId { pid: 1, start: 1 }, started: at }),
            exit: code.map(|code| Exit { code, signal: None, finished: at, message: None }),
            last: None,
        }
    }

    fn mk_pod(policy: &str, n: usize) -> PodView {
        let mut pod = PodView::default();
        pod.spec.restart_policy = Some(policy.into());
        pod.spec.containers =
            (0..n).map(|i| Container { name: format!("c{i}"), ..Container::default() }).collect();
        pod
    }

    #[test]
    fn phases() {
        for (name, policy, codes, want) in [
            ("nothing yet", "Always", vec![], "Pending"),
            ("runs", "Always", vec![None], "Running"),
            ("ended but restarts", "Always", vec![Some(0)], "Running"),
            ("done", "Never", vec![Some(0)], "Succeeded"),
            ("failed", "Never", vec![Some(1)], "Failed"),
            ("failed but restarts", "OnFailure", vec![Some(1)], "Running"),
            ("one done, one runs", "Never", vec![Some(1), None], "Running"),
            ("one done, one failed", "Never", vec![Some(0), Some(2)], "Failed"),
        ] {
            let pod = mk_pod(policy, codes.len().max(1));
            let mut known = Known::default();
            for (i, code) in codes.into_iter().enumerate() {
                known.main.insert(format!("c{i}"), mk_seen(code));
            }
            assert_eq!(phase(&pod, &known), want, "{name}");
        }
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let pod = mk_pod("Always", 1);
        let mut known = Known::default();
        let mut since = Since::new();
        let host: [IpAddr; 1] = ["172.30.0.1".parse().unwrap()];
        let times: Vec<Timestamp> = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]
            .iter()
            .map(|t| t.parse().unwrap())
            .collect();
        let first = status(&pod, &known, &host, &mut since, times[0]);
        known.main.insert("c0".into(), mk_seen(None));
        let second = status(&pod, &known, &host, &mut since, times[1]);
        let time = |s: &PodStatus, type_: &str| {
            s.conditions.iter().find(|c| c.type_ == type_).map(|c| c.last_transition_time)
        };
        assert_eq!(time(&first, "Ready"), Some(times[0]));
        assert_eq!(time(&second, "Ready"), Some(times[1]));
        assert_eq!(time(&second, "Initialized"), Some(times[0]));
        assert_eq!(second.phase.as_deref(), Some("Running"));
    }
}
