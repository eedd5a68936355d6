//! A broker started by the command, on a folder of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corelane_client::{Client, ClientOptions};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::call::{self, Done};

/// How long a scenario may take before it counts as hanging; none depends on how long it takes below that.
const HANG_GUARD: Duration = Duration::from_secs(300);

/// One broker at a time has the cores of a small machine: side by side they only wait for each other.
static MACHINE: Mutex<()> = Mutex::new(());

/// A running broker. Dropping it kills the process and removes its data; when the test fails, its log is shown.
pub(crate) struct Broker {
    child: Child,
    pub(crate) address: String,
    pub(crate) folder: TempDir,
    log: Arc<Mutex<String>>,
    _machine: MutexGuard<'static, ()>,
}

impl Broker {
    /// A new broker on a free port.
    pub(crate) fn start() -> Self {
        let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = folder();
        let address = perf::port::free().expect("a free port").to_string();
        std::fs::write(folder.path().join("corelane.toml"), config(&folder.path().join("data"), &address)).expect("a new file");
        let log = Arc::default();
        let child = spawn(folder.path(), &log);
        Self { child, address, folder, log, _machine: machine }
    }

    /// Runs the command against this broker.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        self.run_with(arguments, b"")
    }

    /// As [`Broker::run`], with this on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Done {
        let mut command = call::command(arguments);
        command.env("CORELANE_BROKER", &self.address);
        call::finish(command, input)
    }

    /// A client of this broker.
    pub(crate) async fn client(&self) -> Client {
        let options = ClientOptions::new([self.address.as_str()]);
        Client::connect(options).await.expect("a broker that is ready takes a client")
    }

    /// SIGKILL: the process gets no chance to write anything more.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child of ours can be killed");
        self.child.wait().expect("a killed child can be awaited");
    }

    /// Starts it again after [`Broker::kill`], on its data and port.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.folder.path(), &self.log);
    }

    /// SIGTERM, and how it ended.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("a child of ours can be told to stop");
        self.child.wait().expect("a child of ours can be awaited")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Both fail when the process has ended before, which is what they are for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the broker's log:\n{}", self.log.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Runs a scenario to its end, unless it hangs.
pub(crate) fn guarded(scenario: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(HANG_GUARD, scenario).await.expect("the scenario hangs") });
}

/// A folder for data. Not the system's temporary folder: that may be in memory, where direct I/O does not work.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a new folder")
}

/// Two shards that may share a CPU, and small logs.
fn config(data: &Path, address: &str) -> String {
    format!(
        "[broker]\ndata = {data:?}\n[cores]\nshards = 2\nshare = true\n[listen]\naddress = \"{address}\"\n[http]\nenabled = false\n\
         [log]\nwal_file_bytes = \"8MiB\"\nwal_bytes_max = \"128MiB\"\nfree_bytes_min = \"64MiB\"\nfree_bytes_resume = \"64MiB\"\n\
         [memory]\nio_bytes = \"8MiB\"\n"
    )
}

/// Starts a broker and returns when it says that it is ready.
fn spawn(folder: &Path, log: &Arc<Mutex<String>>) -> Child {
    let mut command = call::command(&["serve", "--config"]);
    command.arg(folder.join("corelane.toml")).env("CORELANE_LOG", "info");
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
    while !read_line(&mut lines, log).expect("the broker ended before it was ready").contains("ready:") {}
    let log = Arc::clone(log);
    // It ends with the broker.
    std::thread::spawn(move || while read_line(&mut lines, &log).is_some() {});
    child
}

fn read_line(lines: &mut BufReader<ChildStderr>, log: &Mutex<String>) -> Option<String> {
    let mut line = String::new();
    let length = lines.read_line(&mut line).ok()?;
    log.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
    (length > 0).then_some(line)
}
