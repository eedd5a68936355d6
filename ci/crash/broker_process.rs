//! A broker in a process of its own.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use corelane_client::{Client, ClientOptions};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

/// Longest start (with recovery) or stop: beyond it the broker hangs.
const GUARD: Duration = Duration::from_secs(90);
/// Pause between two looks at a process or port that announces nothing.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running `corelane serve`. Dropping it kills the process; when the test fails, the end of its log is shown.
pub(crate) struct BrokerProcess {
    child: Child,
    address: String,
    folder: PathBuf,
}

impl BrokerProcess {
    /// Starts a broker on the data in `folder`, which need not exist yet.
    pub(crate) fn start(folder: &Path, shards: u64) -> BrokerProcess {
        // A port of its own for each start. Another process could take it before the broker does; then the broker says so.
        let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = probe.local_addr().expect("bound").to_string();
        drop(probe);
        let config = folder.join("corelane.toml");
        let data = folder.join("data");
        let text = format!(
            "[broker]\ndata = {data:?}\n[cores]\nshards = \"{shards}\"\n[listen]\naddress = \"{address}\"\n[http]\nenabled = false\n"
        );
        fs::write(&config, text).expect("the configuration can be written");
        let log = File::options().create(true).append(true).open(folder.join("serve.log")).expect("the log can be opened");
        let output = log.try_clone().expect("a second handle of the log");
        let child = Command::new(env!("CARGO_BIN_EXE_corelane"))
            .args(["serve", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            .spawn()
            .expect("the command starts");
        BrokerProcess { child, address, folder: folder.to_owned() }
    }

    /// A client, as soon as the broker answers.
    pub(crate) async fn client(&mut self) -> Client {
        let start = Instant::now();
        let options = ClientOptions {
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            ..ClientOptions::new([self.address.as_str()])
        };
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                panic!("the broker ended by itself: {status}");
            }
            match Client::connect(options.clone()).await {
                Ok(client) => return client,
                Err(error) => assert!(start.elapsed() < GUARD, "the broker does not answer: {error}"),
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// SIGKILL: the process gets no chance to write anything more.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child of ours can be killed");
        self.child.wait().expect("a killed child can be awaited");
    }

    /// Starts again on the same data after [`BrokerProcess::kill`].
    pub(crate) fn restart(&mut self, shards: u64) {
        let folder = self.folder.clone();
        *self = BrokerProcess::start(&folder, shards);
    }

    /// SIGTERM, and a clean exit.
    pub(crate) async fn stop(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("a child of ours can be told to stop");
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                assert!(status.success(), "a broker told to stop ends well, not with {status}");
                return;
            }
            assert!(start.elapsed() < GUARD, "the broker does not stop");
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        // Both fail when the process has ended before, which is what they are for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("serve.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the end of the broker's log:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}
