//! What each figure has to reach, and whether it does. Pure.

use std::fmt;

use serde_json::Value;

/// What is demanded of a figure.
#[derive(Clone, Copy)]
enum Limit {
    Below(f64),
    AtMost(f64),
    AtLeast(f64),
}

use Limit::{AtLeast, AtMost, Below};

impl Limit {
    fn allows(self, measured: f64) -> bool {
        match self {
            Below(limit) => measured < limit,
            AtMost(limit) => measured <= limit,
            AtLeast(limit) => measured >= limit,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Below(limit) => write!(f, "< {limit}"),
            AtMost(limit) => write!(f, "<= {limit}"),
            AtLeast(limit) => write!(f, ">= {limit}"),
        }
    }
}

/// One budget: the benchmark, how its figure's name begins, where the value is (RFC 6901), the limit
/// in the unit that the value's name tells.
struct Budget(&'static str, &'static str, &'static str, Limit);

/// Docs: `docs/performance.md`.
const BUDGETS: &[Budget] = &[
    Budget("policy-large", "policies", "/indexAndTranslateMs", Below(600.0)),
    Budget("policy-large", "policies", "/peakMb", Below(300.0)),
    Budget("policy-large", "a Pod's labels change", "/meanMs", Below(1.0)),
    Budget("policy-one-namespace", "policies", "/indexAndTranslateMs", Below(1000.0)),
    Budget("policy-one-namespace", "policies", "/peakMb", Below(120.0)),
    Budget("flows", "flows", "/ratio", AtLeast(0.8)),
    Budget("flows", "flows", "/bytesPerFlow", AtMost(300.0)),
    Budget("services-switch", "a Service of 5,000 endpoints", "/ms", Below(1000.0)),
    Budget("services-switch", "one endpoint of 5,000", "/medianMs", Below(20.0)),
    Budget("services-switch", "5,000 Services of 5 endpoints", "/ms", Below(5000.0)),
    Budget("network", "antrea-cni as a process", "/medianMs", Below(3.0)),
    Budget("network", "antrea-cni as a process", "/peakKb", Below(4096.0)),
    Budget("network", ADD_ONE_BY_ONE, "/medianMs", Below(20.0)),
    Budget("network", ADD_ONE_BY_ONE, "/maxMs", Below(60.0)),
    Budget("network", "two Pods of a node against NORMAL", "/throughput/ratio", AtLeast(0.9)),
    Budget("network", "two Pods of a node against NORMAL", "/requestResponse/ratio", AtLeast(0.9)),
    Budget("network", "two Pods of a node against NORMAL", CONNECTIONS, AtLeast(0.9)),
    Budget("policy", "lab up, 3 nodes", "/seconds", Below(10.0)),
    Budget("policy", "policy created", "/medianMs", Below(20.0)),
    Budget("policy", "policy created", "/p99Ms", Below(100.0)),
    Budget("services", "ClusterIP against its endpoint", "/throughput/ratio", AtLeast(0.9)),
    Budget("services", "ClusterIP against its endpoint", "/requestResponse/ratio", AtLeast(0.9)),
    Budget("services", "ClusterIP against its endpoint", CONNECTIONS, AtLeast(0.9)),
    Budget("load", "agent with much to do", "/atRestKb", Below(15_000.0)),
    Budget("load", "agent with much to do", "/settledKb", Below(60_000.0)),
    Budget("load", "a policy with 15000", "/createdToOnTheSwitchMs", Below(1000.0)),
    Budget("scale", "controller", "/firstByteToComputedSeconds", Below(1.5)),
    Budget("scale", "controller", "/readyPeakMb", Below(300.0)),
    Budget("scale", "controller", "/cpuSeconds", AtMost(4.0)),
];

const ADD_ONE_BY_ONE: &str = "CNI ADD end to end, 0 to 110 Pods on a node, one by one";
const CONNECTIONS: &str = "/connectRequestResponse/ratio";

/// One figure beside its budget.
pub(super) struct Verdict {
    figure: String,
    value: &'static str,
    limit: Limit,
    measured: Option<f64>,
}

impl Verdict {
    /// Is the budget kept? What was not measured is not.
    pub(super) fn is_kept(&self) -> bool {
        self.measured.is_some_and(|measured| self.limit.allows(measured))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_kept() { "kept" } else { "MISSED" };
        let measured = self.measured.map_or("not measured".to_owned(), |it| it.to_string());
        let (figure, value) = (&self.figure, self.value.trim_start_matches('/').replace('/', " "));
        write!(f, "{word:<7} {measured:>9}  {:<9}  {value}  ({figure})", self.limit.to_string())
    }
}

/// Holds the figures of a benchmark (`name`, `values`) against its budgets.
pub(super) fn judge(bench: &str, figures: &[Value]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for Budget(_, start, value, limit) in BUDGETS.iter().filter(|budget| budget.0 == bench) {
        let name = |figure: &&Value| figure["name"].as_str().unwrap_or_default().to_owned();
        let found: Vec<&Value> =
            figures.iter().filter(|figure| name(figure).starts_with(start)).collect();
        let verdict = |figure, measured| Verdict { figure, value, limit: *limit, measured };
        if found.is_empty() {
            verdicts.push(verdict((*start).to_owned(), None));
        }
        for figure in found {
            let measured = figure["values"].pointer(value).and_then(Value::as_f64);
            verdicts.push(verdict(name(&figure), measured));
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_figure_is_held_against_its_budget() {
        let figure = |median: f64, peak: u64| {
            json!({
                "name": "antrea-cni as a process, without the agent's work",
                "values": {"medianMs": median, "peakKb": peak},
            })
        };
        let kept = |figures: &[Value]| -> Vec<bool> {
            judge("network", figures)[..2].iter().map(Verdict::is_kept).collect()
        };
        assert_eq!(kept(&[figure(0.7, 2000)]), [true, true]);
        assert_eq!(kept(&[figure(3.0, 4096)]), [false, false]);
        assert_eq!(kept(&[]), [false, false], "what was not measured is not kept");
        let all = judge("network", &[figure(0.7, 2000)]);
        assert!(all[0].to_string().starts_with("kept"), "{}", all[0]);
        assert!(all[2].to_string().contains("not measured"), "{}", all[2]);
    }

    #[test]
    fn every_benchmark_has_a_budget() {
        for name in super::super::names() {
            assert!(BUDGETS.iter().any(|budget| budget.0 == name), "{name}");
        }
        for budget in BUDGETS {
            assert!(super::super::names().any(|name| name == budget.0), "{}", budget.0);
        }
    }
}
