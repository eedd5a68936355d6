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
    }
}
