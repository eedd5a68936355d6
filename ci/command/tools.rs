//! Completion, host checks, the load generator.

use crate::broker::{Broker, folder};
use crate::call::run;

#[test]
fn every_shell_has_its_completion() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completion", shell]).ok();
        for word in ["corelane", "produce", "consume", "--broker"] {
            // fish spells long options without their dashes.
            assert!(script.contains(word.trim_start_matches('-')), "{word} is missing for {shell}");
        }
    }
    run(&["completion", "cmd"]).fails_with(2);
}

#[test]
fn the_host_check_gives_json_and_its_verdict_as_exit_code() {
    let folder = folder();
    let done = run(&["tune", "check", "--json", "--data-dir", folder.path().to_str().expect("text")]);
    let code = done.code.expect("it ends by itself");
    let findings: serde_json::Value = serde_json::from_str(&done.out).expect("JSON, whatever is found");
    let findings = findings.as_array().expect("an array");
    assert!(findings.iter().all(|finding| finding["item"].is_string() && finding["why"].is_string()));
    let worst = findings.iter().map(|finding| match finding["verdict"].as_str() {
        Some("wrong") => 2,
        Some("warning") => 1,
        _ => 0,
    });
    assert_eq!(Some(code), worst.max());
}

#[test]
fn the_load_generator_runs_with_a_broker_of_its_own() {
    // A broker of ours keeps the machine, so that the one measured has no other beside it but an idle one.
    let broker = Broker::start();
    let data = broker.folder.path().to_str().expect("text");
    let done = run(&[
        "perf",
        "run",
        "--embedded",
        "--data-dir",
        data,
        "--duration",
        "2",
        "--warmup",
        "0",
        "--rate",
        "200",
        "--json",
        "--quiet",
    ]);
    // 1: it ran, and this machine is too busy for its figures to be good.
    assert!(matches!(done.code, Some(0 | 1)), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    assert!(report.is_object());
}
