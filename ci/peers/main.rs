//! Peers that `corelane perf peer` measures: each starts by its script, takes a short load, and gives every message back.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A peer started in a folder of its own; stopped when it is dropped.
struct Peer {
    script: PathBuf,
    folder: tempfile::TempDir,
}

impl Peer {
    fn start(name: &str, port: u16) -> Peer {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/peers").join(format!("{name}.sh"));
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the data");
        let peer = Peer { script, folder };
        let started = peer.call(&["start", &port.to_string()]).status().expect("the script runs");
        assert!(started.success(), "{name}: {started}");
        peer
    }

    fn call(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.script);
        // The server inherits these: a pipe of ours would stay open as long as it lives.
        command.args(arguments).current_dir(&self.folder).stdout(Stdio::null());
        command
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let stopped = self.call(&["stop"]).status();
        if !std::thread::panicking() {
            assert!(stopped.is_ok_and(|status| status.success()), "the peer stops when it is told to");
        }
    }
}

fn measure(name: &str) -> Output {
    let port = perf::port::free().expect("a free port").port();
    let _peer = Peer::start(name, port);
    Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["perf", "peer", name, "--address", &format!("127.0.0.1:{port}"), "--saturate", "200", "--batch", "50"])
        .args(["--duration", "0.5", "--warmup", "0.1", "--producers", "2"])
        .output()
        .expect("the command starts")
}

#[test]
fn every_peer_gives_back_what_it_acknowledged() {
    for name in ["redis", "nats"] {
        let output = measure(name);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("read back: lost 0, duplicated 0, reordered 0, damaged 0"), "{text}");
    }
}
