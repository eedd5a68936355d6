//! Start and stop of a broker, seen from the control thread.
//!
//! ```text
//!  validate ─► locks, superblock ─► ports ─► core plan, probe ─► metadata ─► shards: recover │ open │ listen ─► ready
//!                                                                                  barrier ───┘      └─ barrier
//!  stop: not ready ─► shards drain │ metadata thread ends ─► shards close their logs, end ─► locks are released
//! ```
//!
//! A failure, of the start or later, takes the second half of the way of a stop: whoever gets the error may start again at once.

mod plan;
mod sizes;

use crate::{
    config::{Config, ConfigError},
    connection::SERVER,
    data_directory::{DataDirectory, DataDirectoryError, LockError, PortLock, reserve_port},
    http::HttpServer,
    mail::Mail,
    metadata::{Command, MetadataError, Store, Writer},
    process::{Event, Process},
    shard::serve::{self, Seed, ShardError},
};
use commit_log::PartitionState;
use plan::Plan;
use shards::{
    clock,
    mesh::{PostError, Remote},
    probe::ProbeError,
    run::{CorePlanError, RunError, RunOptions, Running},
};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// A mail that found its shard's queue full is tried again after this.
const POST_AGAIN: Duration = Duration::from_millis(1);

/// Why a broker does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory.
    #[error(transparent)]
    DataDirectory(#[from] DataDirectoryError),
    /// A port is taken.
    #[error(transparent)]
    Port(#[from] LockError),
    /// The cores asked for are not there.
    #[error(transparent)]
    Cores(#[from] CorePlanError),
    /// This host cannot run the broker.
    #[error(transparent)]
    Host(#[from] ProbeError),
    /// The stored metadata.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A thread, a socket or a signal handler could not be made.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A shard or the storage failed; what was acknowledged is kept.
    #[error("the broker failed: {0}")]
    Failed(String),
}

/// Runs a broker until SIGTERM or SIGINT, then stops it in order. An error means that the process should end with a failure.
pub fn run(config: Config) -> Result<(), BrokerError> {
    raise_open_files_limit();
    let handle = start(config)?;
    let system = |source| BrokerError::System { what: "take signals", source };
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT]).map_err(system)?;
    let stop = handle.events.clone();
    let closer = signals.handle();
    let watcher = thread::Builder::new().name("corelane-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            tracing::info!("signal {signal}: stopping");
            // The control thread may have ended by itself.
            let _ended = stop.send(Event::Stop);
        }
    });
    let watcher = watcher.map_err(|source| BrokerError::System { what: "start a thread", source })?;
    let ended = handle.join();
    closer.close();
    if watcher.join().is_err() {
        tracing::error!("the signal thread panicked");
    }
    ended
}

/// Segments and connections are descriptors: takes all that the hard limit gives.
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
}

/// A running broker. Dropping it stops it in order.
#[derive(Debug)]
pub struct BrokerHandle {
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    events: Sender<Event>,
    control: Option<JoinHandle<Result<(), BrokerError>>>,
}

impl BrokerHandle {
    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics and health are served, unless `http.enabled` is false.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Begins an orderly stop: no new connections, requests in progress answered, logs closed. Returns at once.
    pub fn stop(&self) {
        // The control thread may have ended by itself: then there is nothing to stop.
        let _ended = self.events.send(Event::Stop);
    }

    /// Waits until the broker has ended. Without a stop it waits for a failure.
    pub fn join(mut self) -> Result<(), BrokerError> {
        self.wait()
    }

    fn wait(&mut self) -> Result<(), BrokerError> {
        let Some(control) = self.control.take() else { return Ok(()) };
        control.join().unwrap_or_else(|_| Err(BrokerError::Failed("the control thread panicked".to_owned())))
    }
}

impl Drop for BrokerHandle {
    fn drop(&mut self) {
        if self.control.is_some() {
            self.stop();
            if let Err(error) = self.wait() {
                tracing::error!("{error}");
            }
        }
    }
}

/// Starts a broker and returns when it serves clients.
pub fn start(config: Config) -> Result<BrokerHandle, BrokerError> {
    config.validate()?;
    let mut directory = DataDirectory::open(&config)?;
    let port = reserve_port(config.listen.address, "listen.address")?;
    let http = bind_http(&config)?;
    let mut plan = Plan::make(&config, &directory)?;
    let (store, catalog) = Store::open(&directory.metadata, directory.superblock.has_metadata)?;
    directory.remember_metadata()?;
    plan.know_topics(catalog.topics().chain(catalog.deleting()));

    let config = Arc::new(config);
    let (events, told) = channel();
    let (commands, commanded) = channel();
    let process = Arc::new(process(&config, &directory, &port, &plan, commands, events.clone()));
    let seed = Arc::new(Seed {
        config: Arc::clone(&config),
        process: Arc::clone(&process),
        rules: plan.rules.clone(),
        address: port.address,
        own: plan.own.clone(),
        found: plan.found.clone(),
        log: plan.log.clone(),
        version: catalog.version(),
        topics: catalog.topics().cloned().collect(),
        deleting: catalog.deleting().cloned().collect(),
        producers: catalog.named_producers().cloned().collect(),
    });
    let mut options = RunOptions::new(plan.cores.clone());
    options.io_memory_bytes = usize::try_from(plan.io_bytes).expect("a size of memory fits the address space");
    options.spin = config.cores.spin.0;
    options.data_directories = directory.disks.clone();
    let running = shards::run::run(options, move |context| serve::run(context, Arc::clone(&seed)));
    let running = running.map_err(|error: RunError<ShardError>| BrokerError::Failed(error.to_string()))?;

    let mut control = Control {
        told,
        plan,
        process,
        remotes: running.remotes().to_vec(),
        writer: None,
        running: Some(running),
        http: None,
        port,
        directory,
    };
    let limits = config.limits.clone();
    let writer = Writer::new(store, catalog, limits, control.remotes.clone());
    control.serve(&config, writer, commanded, http)?;
    let address = control.port.address;
    let http_address = control.http.as_ref().map(|http| http.address);
    let control = thread::Builder::new().name("corelane-control".to_owned()).spawn(move || control.keep());
    let control = control.map_err(|source| BrokerError::System { what: "start a thread", source })?;
    Ok(BrokerHandle { address, http_address, events, control: Some(control) })
}

fn bind_http(config: &Config) -> Result<Option<TcpListener>, BrokerError> {
    if !config.http.enabled {
        return Ok(None);
    }
    let address = config.http.address;
    let listener = TcpListener::bind(address).map_err(|source| LockError::Port { address, key: "http.address", source })?;
    Ok(Some(listener))
}

fn process(
    config: &Config,
    directory: &DataDirectory,
    port: &PortLock,
    plan: &Plan,
    commands: Sender<Command>,
    events: Sender<Event>,
) -> Process {
    let advertised =
        config.listen.advertised.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    let (host, advertised_port) = advertised.unwrap_or_else(|| (port.address.ip().to_string(), port.address.port()));
    Process {
        broker_id: config.broker.id,
        cluster_id: directory.superblock.cluster_id_bytes(),
        host,
        port: advertised_port,
        started_ms: clock::wall_ms(),
        cpus: plan.cores.shards.iter().map(|core| core.cpu).collect(),
        disks: plan.own.iter().map(|own| own.disk().display().to_string()).collect(),
        connections: Arc::new(AtomicU32::new(0)),
        shards_at_work: AtomicU32::new(u32::from(plan.cores.shard_count())),
        is_ready: AtomicBool::new(false),
        snapshots: plan.own.iter().map(|_| Mutex::default()).collect(),
        groups_named_max: config.groups.metrics_max as usize,
        settings: config.settings(),
        commands,
        events,
    }
}

fn start_writer(writer: Writer, commands: Receiver<Command>, events: Sender<Event>) -> Result<JoinHandle<()>, BrokerError> {
    let thread = thread::Builder::new().name("corelane-metadata".to_owned()).spawn(move || {
        if let Err(error) = writer.run(&commands) {
            // The control thread outlives this one.
            let _ended = events.send(Event::Failed(format!("metadata: {error}")));
        }
    });
    thread.map_err(|source| BrokerError::System { what: "start a thread", source })
}

/// What the control thread has. Whichever way it goes, the shards and the metadata thread have ended before the locks are released.
struct Control {
    told: Receiver<Event>,
    plan: Plan,
    process: Arc<Process>,
    remotes: Vec<Remote<Mail>>,
    writer: Option<JoinHandle<()>>,
    running: Option<Running<Mail, ShardError>>,
    http: Option<HttpServer>,
    port: PortLock,
    directory: DataDirectory,
}

impl Control {
    /// Brings everything up, until clients are served.
    fn serve(
        &mut self,
        config: &Config,
        writer: Writer,
        commanded: Receiver<Command>,
        http: Option<TcpListener>,
    ) -> Result<(), BrokerError> {
        self.bring_up(config)?;
        self.writer = Some(start_writer(writer, commanded, self.process.events.clone())?);
        self.command(Command::Opened);
        let http = http.map(|listener| HttpServer::start(listener, Arc::clone(&self.process))).transpose();
        self.http = http.map_err(|source| BrokerError::System { what: "serve HTTP", source })?;
        self.process.is_ready.store(true, Ordering::Relaxed);
        tracing::info!(shards = self.remotes.len(), "ready: listening on {}", self.port.address);
        Ok(())
    }

    /// Recover, assign, open, listen: each step on all shards before the next begins.
    fn bring_up(&mut self, config: &Config) -> Result<(), BrokerError> {
        let mut states = Vec::new();
        for _ in 0..self.remotes.len() {
            match self.next()? {
                Event::Recovered { states: recovered } => states.extend(recovered),
                other => unreachable!("shards recover first, not {other:?}"),
            }
        }
        let assigned = self.plan.assign(states);
        for (remote, states) in self.remotes.iter().zip(assigned) {
            post(remote, Mail::Assigned(states));
        }
        self.step(None)?;
        tracing::info!(broker = config.broker.id, server = SERVER, "all shards are open");
        // Before a client is acknowledged anything; what moved is still where it was, too.
        let in_use: Vec<_> = self.plan.own.iter().chain(self.plan.found.iter().flatten()).collect();
        self.directory.remember_shards(&in_use)?;
        self.step(Some(|| Mail::Listen))?;
        // The others were made to forget what moved.
        let own: Vec<_> = self.plan.own.iter().collect();
        Ok(self.directory.remember_shards(&own)?)
    }

    /// Sends a mail to every shard, if one is given, and waits until all say that they are done.
    fn step(&mut self, mail: Option<fn() -> Mail>) -> Result<(), BrokerError> {
        if let Some(mail) = mail {
            self.remotes.iter().for_each(|remote| post(remote, mail()));
        }
        let mut missing = self.remotes.len();
        while missing > 0 {
            match self.next()? {
                Event::Done => missing -= 1,
                Event::Stop => {}
                other @ (Event::Recovered { .. } | Event::Failed(_)) => unreachable!("{other:?} is not a step"),
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Event, BrokerError> {
        match self.told.recv() {
            Ok(Event::Failed(what)) => Err(BrokerError::Failed(what)),
            Ok(event) => Ok(event),
            Err(_) => Err(BrokerError::Failed("every shard has ended".to_owned())),
        }
    }

    fn command(&self, command: Command) {
        // Only a writer that has failed is gone, and it has told so.
        let _ended = self.process.commands.send(command);
    }

    /// Waits for a stop or a failure, and ends everything.
    fn keep(mut self) -> Result<(), BrokerError> {
        let drained = self.wait_and_drain();
        if let Err(failed) = &drained {
            tracing::error!("{failed}");
        }
        let ended = self.end();
        drained.and(ended)?;
        tracing::info!("stopped");
        Ok(())
    }

    /// Waits until the broker is to stop, then until every request in progress is answered.
    fn wait_and_drain(&mut self) -> Result<(), BrokerError> {
        let told = self.next();
        self.process.is_ready.store(false, Ordering::Relaxed);
        match told? {
            Event::Stop => self.step(Some(|| Mail::Drain)),
            other => unreachable!("a broker that serves is not told {other:?}"),
        }
    }

    /// Ends the metadata thread, then the shards, whether they serve, start or have failed; gives the first failure of a shard.
    fn end(&mut self) -> Result<(), BrokerError> {
        self.command(Command::Stop);
        let written = self.writer.take().map_or(Ok(()), JoinHandle::join);
        self.remotes.iter().for_each(|remote| post(remote, Mail::Close));
        let joined = self.running.take().map_or(Ok(()), Running::join);
        joined.map_err(|error| BrokerError::Failed(error.to_string()))?;
        written.map_err(|_| BrokerError::Failed("the metadata thread panicked".to_owned()))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.running.is_some() {
            // What led here is the error that is reported; what the shards say to being ended is not.
            let _consequence = self.end();
        }
    }
}

/// Posts to a shard; waits while its queue is full. A shard that has ended needs no mail.
fn post(remote: &Remote<Mail>, mut mail: Mail) {
    while let Err(PostError::Full(unposted)) = remote.post(mail) {
        mail = unposted;
        thread::park_timeout(POST_AGAIN);
    }
}

/// The states of the partitions, each once, for the shards that own them now.
type Assigned = Vec<Vec<PartitionState>>;
