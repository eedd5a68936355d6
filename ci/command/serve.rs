//! `corelane serve`.

use crate::broker::{Broker, folder};
use crate::call::{self, run};

#[test]
fn the_printed_configuration_is_one_that_is_taken() {
    let printed = run(&["serve", "--print-config", "--listen", "127.0.0.1:7999", "--cores", "1"]).ok();
    assert!(printed.contains("address = \"127.0.0.1:7999\""), "{printed}");
    let folder = folder();
    let file = folder.path().join("corelane.toml");
    std::fs::write(&file, &printed).expect("a new file");
    let path = file.to_str().expect("text");
    assert_eq!(run(&["serve", "--print-config", "--config", path]).ok(), printed, "it stands for itself");
    let mut by_environment = call::command(&["serve", "--print-config"]);
    by_environment.env("CORELANE_CONFIG", path);
    assert_eq!(call::finish(by_environment, b"").ok(), printed);
}

#[test]
fn an_unknown_key_is_refused_with_its_place_and_the_nearest_name() {
    let folder = folder();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, "[listen]\nadress = \"127.0.0.1:1\"\n").expect("a new file");
    let refused = run(&["serve", "--config", file.to_str().expect("text")]).fails_with(2);
    refused.saying("c.toml:2:1").saying("unknown key `listen.adress`").saying("did you mean `address`?");
}

#[test]
fn what_cannot_be_served_says_why() {
    run(&["serve", "--config", "no-such-file.toml"]).fails_with(2).saying("no-such-file.toml");
    run(&["serve", "--http", "nonsense"]).fails_with(2).saying("--http nonsense");
    run(&["serve", "--no-such-flag"]).fails_with(2).saying("--no-such-flag");
    let broker = Broker::start();
    let data = broker.folder.path().join("data");
    let second = ["serve", "--http", "off", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().expect("text")];
    run(&second).fails_with(1).saying("data");
    let other = broker.folder.path().join("other");
    let cores = ["serve", "--http", "off", "--cores", "0-99999", "--data-dir", other.to_str().expect("text")];
    run(&cores).fails_with(2).saying("cores.shards");
}

#[test]
fn sigterm_ends_it_well() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t"]).ok();
    broker.run_with(&["produce", "t"], b"kept\n").ok();
    let status = broker.terminate();
    assert_eq!(status.code(), Some(0), "{status}");
}
