use super::*;
use crate::AgentConfig;

#[track_caller]
fn read(yaml: &str) -> Result<FeatureGates, String> {
    AgentConfig::parse(&format!("featureGates:\n{yaml}"))
        .map(|c| c.gates)
        .map_err(|e| e.to_string())
}

#[test]
fn the_registry_is_in_the_order_of_the_enum() {
    for (n, info) in Gate::all().iter().enumerate() {
        assert_eq!(info.gate as usize, n);
        assert_eq!(Gate::by_name(info.name), Some(info.gate));
        assert_eq!(info.gate.to_string(), info.name);
        let by_stage = matches!(info.stage, Stage::Beta | Stage::Ga);
        assert_eq!(info.default, by_stage, "{}: stage and default agree", info.name);
    }
    assert_eq!(Gate::all().len(), 34);
}

#[test]
fn defaults() {
    let gates = FeatureGates::default();
    assert!(gates.enabled(Gate::NodeIPAM));
    assert!(gates.configured(Gate::Egress) && !gates.enabled(Gate::Egress), "not built yet");
    assert!(!gates.configured(Gate::BGPPolicy));
}

#[test]
fn settings() {
    for (yaml, want) in [
        ("  Egress: true", Ok(())),
        ("  Egress: false", Ok(())),
        ("  NodeIPAM: false", Ok(())),
        ("  AllAlpha: false", Ok(())),
        ("  AllBeta: false", Ok(())),
        ("  EndpointSlice: true", Ok(())),
        ("  Egres: true", Err("line 2: unknown feature gate Egres, did you mean Egress?")),
        ("  Quantum: true", Err("line 2: unknown feature gate Quantum")),
        (
            "  BGPPolicy: true",
            Err(
                "line 2: featureGates.BGPPolicy: not built in this version, only the default false is accepted",
            ),
        ),
        (
            "  EndpointSlice: false",
            Err("line 2: featureGates.EndpointSlice: only true is accepted, it is settled"),
        ),
        (
            "  AntreaProxy: false",
            Err("line 2: featureGates.AntreaProxy: only true is accepted, use antreaProxy.enable"),
        ),
        ("  Egress: perhaps", Err("line 2: featureGates.Egress: perhaps is not true or false")),
    ] {
        assert_eq!(read(yaml).map(|_| ()), want.map_err(str::to_owned), "{yaml}");
    }
}

#[test]
fn a_stage_gives_way_to_a_name() {
    let gates = read("  AllBeta: false\n  Egress: true").unwrap();
    assert!(gates.configured(Gate::Egress));
    assert!(!gates.configured(Gate::Traceflow) && !gates.enabled(Gate::NodeIPAM));
    assert!(gates.configured(Gate::NodePortLocal), "GA is not Beta");
}

#[test]
fn all_alpha_names_what_is_missing() {
    let error = read("  AllAlpha: true\n  BGPPolicy: false").unwrap_err();
    assert!(error.starts_with("line 2: featureGates.AllAlpha: switches on what is not built"));
    assert!(error.contains("TrafficControl") && !error.contains("BGPPolicy"), "{error}");
    assert!(!error.contains("NFTablesHostNetworkMode"), "built: {error}");
}
