//! A broker of our own, as a process of its own: its CPU time and its writes can be told from ours.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::driver::link::Link;
use crate::process::Usage;

/// How long a broker may take until it answers.
const START_MAX: Duration = Duration::from_secs(120);
/// How long it may take to stop when asked.
const STOP_MAX: Duration = Duration::from_secs(60);
/// Lines of its log shown when it fails.
const LOG_LINES: usize = 20;
/// How often it is asked whether it answers.
const POLL: Duration = Duration::from_millis(2);

/// A broker cannot be had.
#[derive(Debug, Error)]
pub enum BrokerProcessError {
    /// Files, sockets or the process itself.
    #[error("{operation}: {source}")]
    Io {
        /// What we wanted.
        operation: &'static str,
        /// What happened.
        source: std::io::Error,
    },
    /// It ended.
    #[error("the broker ended with {status}:\n{log}")]
    Ended {
        /// How.
        status: String,
        /// The last lines it wrote.
        log: String,
    },
    /// It does not answer.
    #[error("the broker does not answer after {START_MAX:?}:\n{log}")]
    Silent {
        /// The last lines it wrote.
        log: String,
    },
}

/// Where and how a broker runs.
#[derive(Debug, Clone)]
pub struct BrokerOptions {
    /// The program: `corelane` itself.
    pub program: PathBuf,
    /// Its data; a temporary folder below this is made.
    pub data_parent: PathBuf,
    /// The shards as the broker's configuration names them: a count, or a list of CPUs, with a dash so that it is never taken for a
    /// count.
    pub shards: String,
    /// CPU of everything else; `None` leaves it to the broker, as it must be when every CPU runs a shard.
    pub housekeeping_cpu: Option<u32>,
    /// More lines of its configuration file.
    pub more_config: String,
}

impl BrokerOptions {
    /// The plan of the bars: one shard on the last usable CPU, everything else beside the client on the first.
    ///
    /// # Errors
    /// When this program's own file is unknown.
    pub fn beside(data_parent: &Path) -> Result<BrokerOptions, BrokerProcessError> {
        let program = std::env::current_exe().map_err(io("find this program"))?;
        let cpus = crate::process::usable_cpus();
        let (first, last) = (cpus.first().copied().unwrap_or(0), cpus.last().copied().unwrap_or(0));
        Ok(BrokerOptions {
            program,
            data_parent: data_parent.to_owned(),
            shards: format!("{last}-{last}"),
            housekeeping_cpu: (first != last).then_some(first),
            more_config: String::new(),
        })
    }
}

/// A broker. Dropping it kills it and removes its data; in a panic it shows the end of its log first.
#[derive(Debug)]
pub struct BrokerProcess {
    options: BrokerOptions,
    folder: tempfile::TempDir,
    address: SocketAddr,
    child: Child,
    /// From start to the first answer.
    ready_after: Duration,
}

fn io(operation: &'static str) -> impl Fn(std::io::Error) -> BrokerProcessError {
    move |source| BrokerProcessError::Io { operation, source }
}

impl BrokerProcess {
    /// Starts a broker in a new folder and waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn start(options: BrokerOptions) -> Result<BrokerProcess, BrokerProcessError> {
        std::fs::create_dir_all(&options.data_parent).map_err(io("make the data folder"))?;
        let folder = tempfile::Builder::new()
            .prefix("corelane-perf-")
            .tempdir_in(&options.data_parent)
            .map_err(io("make the data folder"))?;
        let address = crate::port::free().map_err(io("find a free port"))?;
        let started = Instant::now();
        let child = spawn(&options, folder.path(), address)?;
        let mut broker = BrokerProcess { options, folder, address, child, ready_after: Duration::ZERO };
        broker.wait_ready_since(started)?;
        Ok(broker)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From its start to its first answer.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// What it has used since it started.
    ///
    /// # Errors
    /// When it has ended: what it used is then unknown, and not nothing.
    pub fn usage(&self) -> Result<Usage, BrokerProcessError> {
        Usage::read(self.pid())
            .ok_or_else(|| BrokerProcessError::Ended { status: "an unknown status".to_owned(), log: self.log() })
    }

    /// Kills it as a power cut does: no handler of it runs.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(&mut self) -> Result<(), BrokerProcessError> {
        self.child.kill().map_err(io("kill the broker"))?;
        self.child.wait().map_err(io("wait for the broker"))?;
        Ok(())
    }

    /// A process that kills the broker after a time while this thread makes load.
    pub fn kill_later(&self, after: Duration) -> std::thread::JoinHandle<()> {
        let pid = self.pid();
        std::thread::spawn(move || {
            std::thread::sleep(after);
            // The child is not waited for before `restart`: the number is still its own.
            if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                let _gone_already = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        })
    }

    /// A process that stops the broker (SIGSTOP) after a time, for a time, while this thread makes load.
    pub fn stop_for_a_while(&self, after: Duration, length: Duration) -> std::thread::JoinHandle<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        std::thread::spawn(move || {
            std::thread::sleep(after);
            let stopped = rustix::process::kill_process(pid, rustix::process::Signal::STOP);
            std::thread::sleep(length);
            let _gone_already = stopped.and_then(|()| rustix::process::kill_process(pid, rustix::process::Signal::CONT));
        })
    }

    /// Starts it again on its data; returns the time until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn restart(&mut self) -> Result<Duration, BrokerProcessError> {
        let started = self.respawn()?;
        self.wait_ready_since(started)?;
        Ok(self.ready_after)
    }

    /// Starts it again on its data with other shards, and does not wait until it answers: it may be killed at any moment of its start.
    ///
    /// # Errors
    /// When its process cannot be started.
    pub fn respawn_with(&mut self, shards: &str) -> Result<(), BrokerProcessError> {
        shards.clone_into(&mut self.options.shards);
        self.respawn().map(drop)
    }

    fn respawn(&mut self) -> Result<Instant, BrokerProcessError> {
        self.child.wait().map_err(io("wait for the broker"))?;
        let started = Instant::now();
        self.child = spawn(&self.options, self.folder.path(), self.address)?;
        Ok(started)
    }

    /// Stops it as an operator does, and removes its data.
    ///
    /// # Errors
    /// When it does not stop, or says that it failed.
    pub fn stop(mut self) -> Result<(), BrokerProcessError> {
        self.ask_to_stop()
    }

    /// Stops it as an operator does; its data stays for another start.
    ///
    /// # Errors
    /// When it does not stop, or says that it failed.
    pub fn ask_to_stop(&mut self) -> Result<(), BrokerProcessError> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).map_err(|error| io("stop the broker")(error.into()))?;
        let started = Instant::now();
        while started.elapsed() < STOP_MAX {
            match self.child.try_wait().map_err(io("wait for the broker"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(BrokerProcessError::Ended { status: status.to_string(), log: self.log() }),
                None => std::thread::sleep(POLL),
            }
        }
        Err(BrokerProcessError::Silent { log: self.log() })
    }

    /// Waits until it answers, for at most two minutes.
    ///
    /// # Errors
    /// When it ends or does not answer.
    pub fn wait_ready(&mut self) -> Result<(), BrokerProcessError> {
        self.wait_ready_since(Instant::now())
    }

    fn wait_ready_since(&mut self, started: Instant) -> Result<(), BrokerProcessError> {
        while started.elapsed() < START_MAX {
            if let Some(status) = self.child.try_wait().map_err(io("wait for the broker"))? {
                return Err(BrokerProcessError::Ended { status: status.to_string(), log: self.log() });
            }
            if Link::connect(self.address, "corelane-perf-probe", None).is_ok() {
                self.ready_after = started.elapsed();
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err(BrokerProcessError::Silent { log: self.log() })
    }

    /// The last lines that it wrote.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("broker.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        // A panic's message stands far above the end of its backtrace.
        let panic = lines.iter().rposition(|line| line.contains("panicked at"));
        let end = lines.len().min(panic.map_or(lines.len(), |panic| panic + LOG_LINES));
        lines[end.saturating_sub(LOG_LINES)..end].join("\n")
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of the broker's log:\n{}", self.log());
        }
        // Already gone after a stop: nothing to do then, and nobody to tell if it fails.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(options: &BrokerOptions, folder: &Path, address: SocketAddr) -> Result<Child, BrokerProcessError> {
    let data = folder.join("data");
    let config = folder.join("corelane.toml");
    let text = format!(
        "[broker]\ndata = {data:?}\n\n[cores]\nshards = {:?}\nhousekeeping = \"{}\"\n\n[listen]\naddress = \"{address}\"\n\n[http]\nenabled = false\n{}",
        options.shards,
        options.housekeeping_cpu.map(|cpu| cpu.to_string()).unwrap_or_default(),
        options.more_config
    );
    std::fs::write(&config, text).map_err(io("write the broker's configuration"))?;
    let log = File::options().create(true).append(true).open(folder.join("broker.log")).map_err(io("open the broker's log"))?;
    let copy = log.try_clone().map_err(io("open the broker's log"))?;
    let mut command = Command::new(&options.program);
    command.arg("serve").arg("--config").arg(&config).stdin(Stdio::null()).stdout(log).stderr(copy);
    // The broker must be free of the client's own binding to a CPU and of its precedence, and must not outlive the client.
    let before = move || {
        let mut all = rustix::thread::CpuSet::new();
        (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        rustix::thread::sched_setaffinity(None, &all)?;
        crate::process::give_up_precedence()?;
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        Ok(())
    };
    // SAFETY: between fork and exec only the three system calls above are made; they allocate nothing and take no lock.
    unsafe { command.pre_exec(before) };
    command.spawn().map_err(io("start the broker"))
}
