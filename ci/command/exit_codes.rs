//! Each exit code that `--help` documents, shown once.

use std::collections::BTreeSet;

use crate::broker::Broker;
use crate::call::run;

#[test]
fn every_documented_exit_code_is_shown() {
    let broker = Broker::start();
    let nowhere = perf::port::free().expect("a free port").to_string();
    let shown = [
        // 0 done
        broker.run(&["topic", "create", "t"]).fails_with(0),
        // 1 failed while doing it: the folder is in use by the broker
        run(&["serve", "--http", "off", "--listen", &broker.address, "--data-dir", &data(&broker)]).fails_with(1),
        // 2 the command line is wrong
        broker.run(&["consume", "t", "--from", "someday"]).fails_with(2).saying("no place in a topic"),
        broker.run(&["topic", "alter", "t"]).fails_with(2).saying("nothing to change"),
        broker.run_with(&["produce", "t", "--header", &format!("{}=x", "n".repeat(2000))], b"x\n").fails_with(2).saying("name"),
        broker.run(&["consume", "t", "--broker", ""]).fails_with(2),
        // 3 no broker answers
        run(&["topic", "list", "--broker", &nowhere]).fails_with(3).saying(&nowhere).saying("Is a broker running there?"),
        // 4 not found
        broker.run(&["consume", "missing"]).fails_with(4).saying("missing"),
        broker.run(&["topic", "describe", "missing"]).fails_with(4),
        broker.run(&["topic", "delete", "missing", "--yes"]).fails_with(4),
        broker.run(&["consume", "t", "--partition", "9"]).fails_with(4).saying("no partition 9: topic t has 1"),
        broker.run_with(&["produce", "t", "--partition", "9"], b"x\n").fails_with(4).saying("no partition 9: the topic has 1"),
        broker.run(&["produce", "t", "--file", "no-such-file"]).fails_with(4).saying("no-such-file"),
        // 5 exists already
        broker.run(&["topic", "create", "t"]).fails_with(5).saying("exists"),
        // 6 not allowed
        broker.run(&["topic", "create", "bad name"]).fails_with(6).saying("bad name"),
        broker.run(&["topic", "create", "u", "--partitions", "1001"]).fails_with(6),
        broker.run(&["topic", "create", "u", "--replication-factor", "3"]).fails_with(6),
        broker.run_with(&["produce", "t"], &vec![b'x'; 11 << 20]).fails_with(6).saying("line 1: "),
    ];
    let shown: BTreeSet<i32> = shown.iter().filter_map(|done| done.code).collect();
    for command in [&["--help"][..], &["consume", "--help"], &["topic", "create", "--help"]] {
        let help = run(command).ok();
        let (_, codes) = help.split_once("Exit codes:\n").expect("the help has a list of them");
        let documented: BTreeSet<i32> = codes.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        assert_eq!(documented, shown, "{command:?}");
    }
}

fn data(broker: &Broker) -> String {
    broker.folder.path().join("data").to_str().expect("text").to_owned()
}
