//! What a container runs, and when it is started again. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use kube_io::pods::{Container, PodView};

use crate::container::{ContainerSpec, Exit, RestartPolicy, Running};
use crate::error::Result;
use crate::sandbox::builtin_server;

/// A container that ran this long starts with the shortest wait again.
const STABLE: Duration = Duration::from_secs(600);
/// Longest wait before a restart.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// What is known of a container: its newest attempt, and the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Number of the newest attempt; none before the first.
    pub(super) attempt: Option<u32>,
    /// Its command, once started.
    pub(super) running: Option<Running>,
    /// How it ended.
    pub(super) exit: Option<Exit>,
    /// How the one before ended, and when it had started.
    pub(super) last: Option<(Option<Running>, Exit)>,
}

/// What to do about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Start this attempt now.
    Start(u32),
    /// Look again; it runs, or it has ended for good.
    Nothing,
    /// Start again, but not before this time has passed.
    Wait(Duration),
}

/// The policy of a Pod's containers.
pub(super) fn restart_policy(pod: &PodView) -> RestartPolicy {
    match pod.spec.restart_policy.as_deref() {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

/// The policy of containers that run before the others.
pub(super) fn for_init(policy: RestartPolicy) -> RestartPolicy {
    if policy == RestartPolicy::Never { RestartPolicy::Never } else { RestartPolicy::OnFailure }
}

/// What to do about a container.
pub(super) fn next(seen: &Seen, policy: RestartPolicy, now: Timestamp) -> Next {
    let Some(attempt) = seen.attempt else { return Next::Start(0) };
    let Some(exit) = &seen.exit else { return Next::Nothing };
    if !policy.restarts(exit) {
        return Next::Nothing;
    }
    let ran = seen.running.as_ref().map(|r| exit.finished.duration_since(r.started));
    let stable = ran.is_some_and(|ran| ran.as_secs() >= STABLE.as_secs().cast_signed());
    // The first restart is immediate, then 10 s, 20 s, 40 s ...
    let wait = match attempt {
        0 => Duration::ZERO,
        _ if stable => Duration::ZERO,
        n => Duration::from_secs(10 << (n - 1).min(5)).min(LONGEST_WAIT),
    };
    let since = now.duration_since(exit.finished);
    let since = Duration::try_from(since).unwrap_or_default();
    match wait.checked_sub(since) {
        Some(left) if !left.is_zero() => Next::Wait(left),
        _ => Next::Start(attempt + 1),
    }
}

/// What a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// Its `command`, then its `args`.
    Command,
    /// Its `args`: there is no image here whose own program would take them.
    Args,
    /// The built-in server, in place of the image's own program.
    Server,
}

/// What a container runs; `is_program` tells what this machine has.
pub(super) fn runs(container: &Container, is_program: impl Fn(&str) -> bool) -> Runs {
    match (container.command.is_empty(), container.args.first()) {
        (false, _) => Runs::Command,
        (true, Some(first)) if is_program(first) => Runs::Args,
        (true, _) => Runs::Server,
    }
}

/// What a user should know about a container whose `args` go nowhere.
pub(super) fn ignored_args(container: &Container, runs: Runs) -> Option<String> {
    let first = container.args.first().filter(|_| runs == Runs::Server)?;
    Some(format!(
        "container {}: the args are ignored and the built-in server runs: there is no command, \
         images are not fetched, and {first:?} is no program of this machine",
        container.name
    ))
}

/// The command and environment of a container.
pub(super) fn spec(
    pod: &PodView,
    container: &Container,
    facts: &Facts,
    restart: RestartPolicy,
    runs: Runs,
) -> Result<ContainerSpec> {
    let mut env = BTreeMap::from([
        ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
        ("HOME".into(), "/root".into()),
        ("HOSTNAME".into(), pod.spec.hostname.clone().unwrap_or_else(|| pod.name.clone())),
    ]);
    for variable in &container.env {
        let value = match &variable.value_from {
            Some(source) => field(pod, facts, source["fieldRef"]["fieldPath"].as_str()),
            None => expand(&variable.value, &env),
        };
        env.insert(variable.name.clone(), value);
    }
    if runs == Runs::Server {
        let mut spec = builtin_server(&format!("{}/{}", pod.namespace, pod.name))?;
        let port = container.ports.iter().find(|p| p.protocol.as_deref() != Some("SCTP"));
        if let Some(port) = port {
            spec.argv.extend(["--port".into(), port.container_port.to_string()]);
        }
        spec.env = env;
        spec.restart = restart;
        return Ok(spec);
    }
    let argv = container.command.iter().chain(&container.args).map(|a| expand(a, &env)).collect();
    Ok(ContainerSpec { argv, env, cwd: container.working_dir.as_ref().map(PathBuf::from), restart })
}

/// What a Pod may ask about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Name of its node.
    pub(super) node: String,
    /// Address of its node.
    pub(super) host_ip: String,
    /// Its addresses.
    pub(super) pod_ips: Vec<String>,
}

fn field(pod: &PodView, facts: &Facts, path: Option<&str>) -> String {
    let quoted = |path: &str, prefix: &str| {
        let rest = path.strip_prefix(prefix)?.strip_prefix("['")?;
        Some(rest.strip_suffix("']")?.to_owned())
    };
    match path.unwrap_or_default() {
        "metadata.name" => pod.name.clone(),
        "metadata.namespace" => pod.namespace.clone(),
        "metadata.uid" => pod.uid.clone(),
        "spec.nodeName" => facts.node.clone(),
        "spec.serviceAccountName" => pod.spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" => facts.host_ip.clone(),
        "status.podIP" => facts.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => facts.pod_ips.join(","),
        other => quoted(other, "metadata.labels")
            .and_then(|key| pod.labels.get(&key))
            .or_else(|| {
                quoted(other, "metadata.annotations").and_then(|key| pod.annotations.get(&key))
            })
            .cloned()
            .unwrap_or_default(),
    }
}

/// Replaces `$(NAME)` by the variable's value; `$$` is a dollar, an unknown name stays.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) =
            after.strip_prefix('(').and_then(|inner| inner.split_once(')'))
        {
            match env.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use kube_io::pods::EnvVar;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn mk_seen(attempt: u32, code: i32) -> Seen {
        Seen {
            attempt: Some(attempt),
            running: None,
            exit: Some(Exit {
                code,
                signal: None,
                finished: at("2026-01-01T00:00:00Z"),
                message: None,
            }),
            last: None,
        }
    }

    #[test]
    fn restarts_follow_the_policy_and_wait_longer_each_time() {
        use RestartPolicy::{Always, Never, OnFailure};
        let now = at("2026-01-01T00:00:05Z");
        for (name, seen, policy, want) in [
            ("never started", Seen::default(), Never, Next::Start(0)),
            ("first crash", mk_seen(0, 1), Always, Next::Start(1)),
            ("second crash", mk_seen(1, 1), Always, Next::Wait(Duration::from_secs(5))),
            ("fourth crash", mk_seen(3, 1), Always, Next::Wait(Duration::from_secs(35))),
            ("many crashes", mk_seen(60, 1), Always, Next::Wait(Duration::from_secs(295))),
            ("success is enough", mk_seen(0, 0), OnFailure, Next::Nothing),
            ("success is not enough", mk_seen(0, 0), Always, Next::Start(1)),
            ("failure", mk_seen(0, 2), OnFailure, Next::Start(1)),
            ("never again", mk_seen(0, 2), Never, Next::Nothing),
        ] {
            assert_eq!(next(&seen, policy, now), want, "{name}");
        }
    }

    #[test]
    fn variables_are_expanded_and_asked_from_the_pod() {
        let pod = PodView { name: "web-0".into(), namespace: "x".into(), ..PodView::default() };
        let variable = |name: &str, value: &str, path: Option<&str>| EnvVar {
            name: name.into(),
            value: value.into(),
            value_from: path.map(|p| serde_json::json!({"fieldRef": {"fieldPath": p}})),
        };
        let container = Container {
            command: vec!["/bin/echo".into(), "$(GREETING)".into(), "$$(GREETING) $(NO)".into()],
            env: vec![
                variable("WHO", "", Some("metadata.name")),
                variable("GREETING", "hello $(WHO)", None),
                variable("IP", "", Some("status.podIP")),
            ],
            ..Container::default()
        };
        let facts = Facts { pod_ips: vec!["10.0.0.2".into()], ..Facts::default() };
        let spec = spec(&pod, &container, &facts, RestartPolicy::Never, Runs::Command).unwrap();
        assert_eq!(spec.argv, ["/bin/echo", "hello web-0", "$(GREETING) $(NO)"]);
        assert_eq!(spec.env["IP"], "10.0.0.2");
    }

    #[test]
    fn without_a_command_the_builtin_server_runs_on_the_first_port() {
        let pod = PodView { name: "a".into(), namespace: "b".into(), ..PodView::default() };
        let container = Container {
            ports: vec![kube_io::pods::ContainerPort {
                container_port: 80,
                ..kube_io::pods::ContainerPort::default()
            }],
            ..Container::default()
        };
        let runs = runs(&container, |_| true);
        let spec = spec(&pod, &container, &Facts::default(), RestartPolicy::Always, runs).unwrap();
        assert_eq!(spec.argv[1..], ["pod-server", "--name", "b/a", "--port", "80"]);
    }

    #[test]
    fn args_alone_run_where_their_first_word_is_a_program() {
        let mk = |command: &[&str], args: &[&str]| Container {
            name: "c".into(),
            command: command.iter().map(|w| (*w).to_owned()).collect(),
            args: args.iter().map(|w| (*w).to_owned()).collect(),
            ..Container::default()
        };
        let is_program = |name: &str| name == "sh";
        for (container, want, warns) in [
            (mk(&["nosuch"], &["sh"]), Runs::Command, false),
            (mk(&[], &["sh", "-c", "id"]), Runs::Args, false),
            (mk(&[], &["--port=80"]), Runs::Server, true),
            (mk(&[], &[]), Runs::Server, false),
        ] {
            let chosen = runs(&container, is_program);
            assert_eq!(chosen, want, "{container:?}");
            assert_eq!(ignored_args(&container, chosen).is_some(), warns, "{container:?}");
        }
        let args = mk(&[], &["sh", "-c", "id"]);
        let pod = PodView::default();
        let spec = spec(&pod, &args, &Facts::default(), RestartPolicy::Never, Runs::Args).unwrap();
        assert_eq!(spec.argv, ["sh", "-c", "id"]);
    }
}
