//! What `kubectl get pods` shows of a Pod.

use apiserver::meta;
use apiserver::table::{age, since};
use serde_json::{Value, json};

use super::util::{each, or_none, text};

pub(super) fn cells(pod: &Value) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let total = each(spec, "containers").count();
    let ready = each(status, "containerStatuses").filter(|c| c["ready"] == true).count();
    let ip = each(status, "podIPs").next().map_or(text(status, "podIP"), |ip| text(ip, "ip"));
    vec![
        json!(meta::name(pod)),
        json!(format!("{ready}/{total}")),
        json!(reason(pod)),
        json!(restarts(status)),
        age(pod),
        json!(or_none(ip)),
        json!(or_none(text(spec, "nodeName"))),
        json!(or_none(text(status, "nominatedNodeName"))),
        json!(readiness_gates(spec, status)),
    ]
}

fn reason(pod: &Value) -> String {
    let status = &pod["status"];
    let mut reason = match text(status, "reason") {
        "" => text(status, "phase").to_owned(),
        reason => reason.to_owned(),
    };
    let scheduling = each(status, "conditions").find(|c| text(c, "type") == "PodScheduled");
    if scheduling.is_some_and(|c| text(c, "reason") == "SchedulingGated") {
        reason = "SchedulingGated".to_owned();
    }
    let total = each(&pod["spec"], "initContainers").count();
    let mut initializing = false;
    for (index, container) in each(status, "initContainerStatuses").enumerate() {
        let state = &container["state"];
        let ended = &state["terminated"];
        if ended.is_object() && ended["exitCode"] == 0 {
            continue;
        }
        initializing = true;
        reason = if ended.is_object() {
            format!("Init:{}", ended_reason(ended))
        } else {
            match text(&state["waiting"], "reason") {
                "" | "PodInitializing" => format!("Init:{index}/{total}"),
                waiting => format!("Init:{waiting}"),
            }
        };
        break;
    }
    if !initializing {
        let mut running = false;
        for container in each(status, "containerStatuses").collect::<Vec<_>>().into_iter().rev() {
            let state = &container["state"];
            let waiting = text(&state["waiting"], "reason");
            if !waiting.is_empty() {
                reason = waiting.to_owned();
            } else if state["terminated"].is_object() {
                reason = ended_reason(&state["terminated"]);
            } else if container["ready"] == true && state["running"].is_object() {
                running = true;
            }
        }
        if reason == "Completed" && running {
            let ready = each(status, "conditions")
                .any(|c| text(c, "type") == "Ready" && text(c, "status") == "True");
            reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
    if meta::is_deleting(pod) {
        let lost = text(status, "reason") == "NodeLost";
        return if lost { "Unknown" } else { "Terminating" }.to_owned();
    }
    reason
}

fn ended_reason(ended: &Value) -> String {
    match (text(ended, "reason"), ended["signal"].as_i64()) {
        ("", Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        ("", _) => format!("ExitCode:{}", ended["exitCode"]),
        (reason, _) => reason.to_owned(),
    }
}

fn restarts(status: &Value) -> String {
    let containers = || each(status, "containerStatuses");
    let count: i64 = containers().filter_map(|c| c["restartCount"].as_i64()).sum();
    let last =
        containers().filter_map(|c| c["lastState"]["terminated"]["finishedAt"].as_str()).max();
    match last {
        Some(last) if count > 0 => format!("{count} ({} ago)", since(last)),
        _ => count.to_string(),
    }
}

fn readiness_gates(spec: &Value, status: &Value) -> String {
    let gates: Vec<&str> =
        each(spec, "readinessGates").map(|gate| text(gate, "conditionType")).collect();
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| {
        each(status, "conditions").any(|c| text(c, "type") == **gate && text(c, "status") == "True")
    });
    format!("{}/{}", open.count(), gates.len())
}
