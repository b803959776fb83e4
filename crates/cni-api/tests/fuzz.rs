//! Damaged standard input and arguments: nothing panics, and a result that is understood is written
//! and understood again as the same. `FUZZ_EXECS` makes the run longer.
#![allow(missing_docs, clippy::unwrap_used)]

use cni_api::{CniResult, NetConf, PodArgs};
use testkit::fuzz::{Campaign, Outcome};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus");

#[test]
fn fuzz_decode() {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        "null",
        "-1",
        "1e99",
        "4294967296",
        "\"cniVersion\":\"0.1.0\",",
        "\"cniVersion\":\"1.1.0\",",
        "\"prevResult\":{",
        "\"ips\":[",
        "/129",
        "::ffff:1.2.3.4/33",
        "\"interface\":",
        "\"routes\":[{\"dst\":",
        "0.0.0.0/0",
        "\\ud800",
        "é",
        "[[[[[[[[",
        ";",
        "=",
        "K8S_POD_NAME",
    ];
    let campaign = Campaign::from_dir("CNI input", CORPUS).dictionary(pieces);
    let report = campaign.run(|bytes| {
        let args = std::str::from_utf8(bytes).is_ok_and(|text| PodArgs::parse(text).is_ok());
        let Ok((conf, version)) = NetConf::parse(bytes) else {
            return if args { Outcome::Accepted } else { Outcome::Refused };
        };
        let _ = conf.valid_attachments();
        if let Ok(Some(result)) = conf.previous() {
            let written = result.to_value(version);
            let again = CniResult::from_value(&written, version).unwrap();
            assert_eq!(again.to_value(version), written);
        }
        Outcome::Accepted
    });
    assert!(report.accepted > report.executions / 20, "{report:?}");
}
