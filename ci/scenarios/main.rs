//! Every scenario of `perf/scenarios`, in small, against a broker of its own: it goes through, and no message goes wrong.

use std::path::Path;
use std::process::Command;

#[test]
fn every_scenario_goes_through_in_small() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/scenarios");
    let mut scenarios: Vec<_> =
        std::fs::read_dir(folder).expect("the scenarios").map(|entry| entry.expect("a scenario").path()).collect();
    scenarios.sort();
    assert!(scenarios.len() >= 9, "{scenarios:?}");
    for scenario in scenarios {
        // Exit code 0 says that messages were acknowledged, and each arrived once, whole and in order.
        let output = Command::new(env!("CARGO_BIN_EXE_corelane"))
            .args(["perf", "run", "--embedded", "--quick", "--quiet", "--data-dir", env!("CARGO_TARGET_TMPDIR"), "--scenario"])
            .arg(&scenario)
            .output()
            .expect("the command starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{}: {}\n{}{}",
            scenario.display(),
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        assert!(text(&output.stdout).contains("lost 0, duplicated 0, reordered 0, damaged 0"), "{}", scenario.display());
        if scenario.ends_with("poison.toml") {
            let groups = text(&output.stdout);
            let groups = groups.lines().find(|line| line.starts_with("groups")).expect("some records fail");
            assert!(!groups.contains(" 0 messages became dead letters"), "{groups}");
        }
    }
}

/// Two groups of two members: each group has every message once, with its latency, beside what its producers waited.
#[test]
fn groups_take_every_message_and_their_latencies_are_recorded() {
    let out = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["perf", "run", "--embedded", "--quick", "--quiet", "--json", "--data-dir", env!("CARGO_TARGET_TMPDIR")])
        .args(["--groups", "2", "--members", "2", "--rate", "500", "--duration", "2", "--out"])
        .arg(out.path())
        .output()
        .expect("the command starts");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert!(output.status.success(), "{report}");
    let count = |name: &str| report[name]["count"].as_u64().expect("a count");
    assert!(count("publishFromIntendedTime") >= 900, "{report}");
    assert_eq!(count("endToEndFromIntendedTime"), 2 * count("publishFromIntendedTime"));
    assert_eq!(report["groups"], 2);
    assert_eq!(report["membersPerGroup"], 2);
    assert_eq!(report["figures"]["wrong"], serde_json::json!({ "lost": 0, "duplicated": 0, "reordered": 0, "damaged": 0 }));
    let log = std::fs::read_to_string(out.path().join("run.hlog")).expect("a log of its seconds");
    for tag in ["Tag=publish", "Tag=e2e"] {
        assert!(log.contains(tag), "{tag} is missing: {log}");
    }
}

/// Bars whose figures are counts hold on any machine, however busy it is; how long a lookup takes is not looked at.
#[test]
fn bars_that_count_pass_in_small() {
    let results = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["perf", "bars", "--quick", "--only", "time-lookup,idempotent-crash", "--data-dir", env!("CARGO_TARGET_TMPDIR")])
        .arg("--results")
        .arg(results.path())
        .output()
        .expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout);
    for figure in ["time-lookup-read", "time-lookup-order", "idempotent-crash", "idempotent-crash-gaps"] {
        let passes = |line: &str| line.split_whitespace().take(2).eq(["pass", figure]);
        assert!(text.lines().any(passes), "{figure}:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    }
}
