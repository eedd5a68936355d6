//! The life of a shard: recover, open, serve, drain, close.
//!
//! ```text
//!  recover the directories given to it ─► barrier ─► open with the partitions assigned to it ─► barrier ─► forget what moved, listen
//!                                                                                                            │
//!  end ◄─ close the log ◄─ barrier ◄─ drain: accept no more, answer what is in progress ◄────────────────────┘
//! ```

use super::{Shard, compaction, retention, sweeper, topics_change};
use crate::{
    ack, admin,
    admission::within,
    append, calls,
    config::{Config, PlacementRules},
    connection, fetch, groups,
    mail::{Answer, Call, Mail},
    metadata::{NamedProducer, Topic},
    metrics,
    process::{Event, Process},
    scatter,
    topics::Topics,
};
use commit_log::{LogOptions, ShardDirectory, ShardLog};
use futures_util::future::{Either, select};
use shards::{
    ShardId, TICK, clock, executor,
    mesh::Mesh,
    net::{ListenOptions, Listener, Stream},
    run::ShardContext,
};
use std::{
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use wire::ErrorCode;

/// After an accept that failed for lack of descriptors or memory.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Requests that came while the broker stops get so long to be answered "shutting down".
const LATE_ANSWERS: Duration = Duration::from_millis(100);

/// A shard that has failed waits so long for the others to end: a recovery or the closing of a full log takes some seconds.
const OTHERS_END_WITHIN: Duration = Duration::from_secs(60);

/// What every shard starts from. The same for all.
#[derive(Debug)]
pub(crate) struct Seed {
    pub(crate) config: Arc<Config>,
    pub(crate) process: Arc<Process>,
    pub(crate) rules: PlacementRules,
    pub(crate) address: SocketAddr,
    /// Each shard's own directory, in the order of the shards.
    pub(crate) own: Vec<ShardDirectory>,
    /// The directories found on disk, for each shard those it recovers.
    pub(crate) found: Vec<Vec<ShardDirectory>>,
    /// The options of each shard's log.
    pub(crate) log: Vec<LogOptions>,
    /// The topics when the broker started.
    pub(crate) version: u64,
    pub(crate) topics: Vec<Arc<Topic>>,
    /// Deleted topics whose partitions may still be there.
    pub(crate) deleting: Vec<Arc<Topic>>,
    /// The named producers.
    pub(crate) producers: Vec<Arc<NamedProducer>>,
}

/// Why a shard cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShardError {
    #[error("recovery of {directory} failed: {error}")]
    Recover { directory: String, error: commit_log::RecoverError },
    #[error("the log in {directory} cannot be opened: {error}")]
    Open { directory: String, error: commit_log::OpenError },
    #[error(
        "the log was written at start {found} of this broker, but the superblock counts start {boot}: an old superblock was restored"
    )]
    OldSuperblock { found: u64, boot: u64 },
    #[error("{directory}, which no shard opens any more, cannot be cleared: {error}")]
    Retire { directory: String, error: commit_log::StartError },
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: shards::net::NetError },
    #[error(transparent)]
    Failed(#[from] commit_log::LogFailed),
}

/// Runs a shard from its start to its end. One that fails waits until the others have ended in order, so that nobody uses a directory
/// any more when the failure is reported; an error that comes sooner would end the process.
pub(crate) async fn run(context: ShardContext<Mail>, seed: Arc<Seed>) -> Result<(), ShardError> {
    let (mesh, process) = (context.mesh.clone(), Arc::clone(&seed.process));
    let result = live(context, &seed).await;
    process.shards_at_work.fetch_sub(1, Ordering::AcqRel);
    if let Err(error) = &result {
        process.tell(Event::Failed(error.to_string()));
        if within(OTHERS_END_WITHIN, last_to_leave(&mesh, &process)).await.is_none() {
            tracing::error!("a shard did not end within {OTHERS_END_WITHIN:?} of a failure");
        }
    }
    result
}

async fn last_to_leave(mesh: &Mesh<Mail>, process: &Process) {
    while let Some((_, mail)) = mesh.recv().await {
        if matches!(mail, Mail::Close) {
            leave(mesh).await;
        }
    }
    while process.shards_at_work.load(Ordering::Acquire) > 0 {
        clock::sleep(TICK).await;
    }
}

/// Closes this end of the mesh, and waits until all have closed theirs.
async fn leave(mesh: &Mesh<Mail>) {
    mesh.close();
    while mesh.recv().await.is_some() {}
}

async fn live(context: ShardContext<Mail>, seed: &Arc<Seed>) -> Result<(), ShardError> {
    let number = context.shard.index();
    let mut states = Vec::new();
    let mut boot_max = 0;
    for directory in &seed.found[number] {
        let failed = |error| ShardError::Recover { directory: directory.path().display().to_string(), error };
        let recovered = commit_log::recover(directory).await.map_err(failed)?;
        report(directory, &recovered.report);
        boot_max = boot_max.max(recovered.boot_max);
        states.extend(recovered.partitions);
    }
    if boot_max >= seed.log[number].boot {
        return Err(ShardError::OldSuperblock { found: boot_max, boot: seed.log[number].boot });
    }
    seed.process.tell(Event::Recovered { states });

    let states = match context.mesh.recv().await {
        Some((_, Mail::Assigned(states))) => states,
        Some((_, Mail::Close)) | None => {
            leave(&context.mesh).await;
            return Ok(());
        }
        Some((_, mail)) => unreachable!("before the partitions are assigned, nobody sends {mail:?}"),
    };
    let shard = open(&context, seed, states).await?;
    seed.process.tell(Event::Done);
    while let Some((source, mail)) = shard.mesh.recv().await {
        match mail {
            Mail::Listen => match begin_service(&shard, seed).await {
                Ok(()) => seed.process.tell(Event::Done),
                // The log is open, and is closed with the others.
                Err(error) => seed.process.tell(Event::Failed(error.to_string())),
            },
            Mail::Close => break,
            Mail::Metadata { version, changes } => {
                // The mail behind it finds all of it applied.
                let work = topics_change::apply(&shard, version, &changes).await;
                let last = version + changes.len() as u64 - 1;
                executor::spawn(topics_change::finish(Rc::clone(&shard), last, work)).detach();
            }
            mail => handle(&shard, source, mail),
        }
    }
    close(&shard).await
}

fn report(directory: &ShardDirectory, report: &commit_log::RecoveryReport) {
    let directory = directory.path().display().to_string();
    let (blocks, bytes, direct) = (report.replayed_blocks, report.replayed_bytes, report.direct_bytes);
    tracing::info!(
        directory,
        "recovered: {blocks} blocks, {bytes} bytes of the write-ahead log, {direct} bytes found in segments"
    );
    if report.lost_blocks > 0 {
        tracing::error!(directory, "{} acknowledged blocks of the write-ahead log are gone", report.lost_blocks);
    }
    for (partition, reason) in &report.lossy {
        tracing::error!(directory, %partition, "acknowledged data may be lost: {reason}");
    }
}

/// Opens the log and makes the partitions of this shard what the catalog says they are.
async fn open(
    context: &ShardContext<Mail>,
    seed: &Arc<Seed>,
    states: Vec<commit_log::PartitionState>,
) -> Result<Rc<Shard>, ShardError> {
    let number = context.shard.index();
    let directory = seed.own[number].clone();
    let failed = |error| ShardError::Open { directory: seed.own[number].path().display().to_string(), error };
    let log = ShardLog::open(seed.log[number].clone(), directory, states).await.map_err(failed)?;
    let topics = Topics::new(seed.rules.clone(), seed.version, &seed.topics);
    let (config, process) = (Arc::clone(&seed.config), Arc::clone(&seed.process));
    let shard = Shard::new(context.shard, context.shard_count, config, process, context.mesh.clone(), log, topics);

    seed.producers.iter().for_each(|producer| shard.fences.borrow_mut().put(producer));
    let committing = Rc::downgrade(&shard);
    shard.log.on_commit(move |committed| {
        if let Some(shard) = committing.upgrade() {
            ack::committed(&shard, committed);
        }
    });
    executor::spawn(watch_storage(Rc::clone(&shard))).detach();

    let mut work = Vec::new();
    for topic in &seed.topics {
        work.extend(topics_change::put(&shard, topic, topic.config.partitions).await);
    }
    for topic in &seed.deleting {
        work.extend(topics_change::delete(&shard, topic).await);
    }
    let unknown = shard.log.partitions().len().saturating_sub(shard.partitions.borrow().len() + work.len());
    topics_change::run(&shard, work).await?;
    if unknown > 0 {
        tracing::warn!(shard = number, "{unknown} partitions belong to no topic that the metadata knows: kept, not served");
    }
    let meter = metrics::Meter::begin(&shard).await;
    executor::spawn(sweeper::run(Rc::clone(&shard), meter)).detach();
    executor::spawn(sweeper::expire_requests(Rc::clone(&shard))).detach();
    executor::spawn(calls::run(Rc::clone(&shard))).detach();
    executor::spawn_background(retention::run(Rc::clone(&shard))).detach();
    executor::spawn_background(compaction::run(Rc::clone(&shard))).detach();
    executor::spawn_background(metrics::watch_groups(Rc::clone(&shard))).detach();
    Ok(shard)
}

/// Storage failed: nothing is acknowledged any more, and the broker ends.
async fn watch_storage(shard: Rc<Shard>) {
    let failed = shard.log.failed().await;
    let partitions: Vec<_> = shard.partitions.borrow().values().cloned().collect();
    for partition in partitions {
        ack::refuse_waiters(&partition, ErrorCode::StorageFailed, &failed.to_string());
    }
    shard.process.tell(Event::Failed(format!("{}: {failed}", shard.id)));
}

/// The logs of all shards are open: what moved to another shard's directory is forgotten where it was, then clients may come.
async fn begin_service(shard: &Rc<Shard>, seed: &Seed) -> Result<(), ShardError> {
    shard.log.forget_moved().await?;
    for directory in seed.found[shard.id.index()].iter().filter(|found| !seed.own.contains(found)) {
        let failed = |error| ShardError::Retire { directory: directory.path().display().to_string(), error };
        commit_log::retire(directory).await.map_err(failed)?;
    }
    listen(shard, seed.address)
}

fn listen(shard: &Rc<Shard>, address: SocketAddr) -> Result<(), ShardError> {
    let options = ListenOptions { backlog: shard.config.listen.backlog, reuse_port: true, ..ListenOptions::default() };
    let listener = Listener::bind(address, options).map_err(|error| ShardError::Listen { address, error })?;
    executor::spawn(accept(Rc::clone(shard), listener)).detach();
    Ok(())
}

async fn accept(shard: Rc<Shard>, listener: Listener) {
    while !shard.is_stopping() {
        let stopped = shard.stop.notified();
        // The listener goes with the accept that is dropped here: no connection is lost in between.
        let Either::Left((accepted, _)) = select(pin!(listener.accept()), pin!(stopped)).await else { return };
        match accepted {
            Ok((stream, _)) => {
                shard.counters.accepted.set(shard.counters.accepted.get() + 1);
                executor::spawn(connection::accepted(Rc::clone(&shard), stream)).detach();
            }
            Err(error) => {
                tracing::warn!(shard = shard.id.0, "accept failed: {error}");
                if error.is_out_of_resources() {
                    clock::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }
}

fn handle(shard: &Rc<Shard>, source: ShardId, mail: Mail) {
    match mail {
        Mail::Call { id, call } => match call {
            Call::Append { key, batches } => append::append_for(shard, source, id, key, batches),
            Call::Read { parts, bytes_before, bytes_max } => {
                executor::spawn(fetch::read_for(Rc::clone(shard), source, id, parts, bytes_before, bytes_max)).detach();
            }
            Call::Offsets(parts) => executor::spawn(scatter::answer_for(Rc::clone(shard), source, id, parts)).detach(),
            Call::DeleteRecords(parts) => executor::spawn(scatter::answer_for(Rc::clone(shard), source, id, parts)).detach(),
            Call::Standing(parts) => executor::spawn(scatter::answer_for(Rc::clone(shard), source, id, parts)).detach(),
            Call::Describe(keys) => {
                let answer = Answer::Describe(keys.into_iter().map(|key| admin::describe(shard, key)).collect());
                calls::send_now(shard, source, Mail::Answer { id, answer });
            }
            Call::Group { partition, request } => {
                executor::spawn(groups::answer_for(Rc::clone(shard), source, id, partition, request)).detach();
            }
        },
        Mail::Answer { id, answer } => calls::answered(shard, id, answer),
        Mail::Watch { id, seen, until_ns } => fetch::watch_for(shard, source, id, seen, clock::Monotonic(until_ns)),
        Mail::Wake { id } => calls::woken(shard, id),
        Mail::Connection { handover, counted } => match Stream::from_handover(handover) {
            Ok(stream) if !shard.is_stopping() => {
                executor::spawn(connection::handed_over(Rc::clone(shard), stream, counted)).detach();
            }
            Ok(stream) => stream.shutdown(),
            Err(error) => tracing::warn!(shard = shard.id.0, "a connection could not be taken over: {error}"),
        },
        Mail::MetadataAnswer { ticket, result } => {
            let waiting = shard.asked.borrow_mut().remove(&ticket);
            // Who asked may be gone with its connection.
            drop(waiting.map(|sender| sender.send(result)));
        }
        Mail::Drain => {
            take_no_more(shard);
            executor::spawn(drain(Rc::clone(shard))).detach();
        }
        Mail::Assigned(_) | Mail::Listen | Mail::Metadata { .. } | Mail::Close => {
            unreachable!("these are steps of the start and the stop, or are taken one after the other")
        }
    }
}

/// Waits for the requests that came before the stop, within the bound, then ends every connection.
async fn drain(shard: Rc<Shard>) {
    let answered = async {
        while shard.open_before_stop.get() > 0 {
            shard.quiet.notified().await;
        }
    };
    if within(shard.config.stop.drain_within.0, answered).await.is_none() {
        tracing::warn!(
            shard = shard.id.0,
            "{} requests were not answered within stop.drain_within",
            shard.open_before_stop.get()
        );
    }
    clock::sleep(LATE_ANSWERS).await;
    end_connections(&shard);
    shard.process.tell(Event::Done);
}

/// Refuses new connections and requests.
fn take_no_more(shard: &Shard) {
    shard.stopping.set(true);
    shard.stop.notify_waiters();
}

fn end_connections(shard: &Shard) {
    // Copied, since closing a connection changes the list.
    let connections = shard.connections.borrow().all();
    connections.iter().for_each(|connection| connection.close());
}

/// Ends the shard. After a failure nothing was drained: clients are told what there is to tell, and lose their connections.
async fn close(shard: &Rc<Shard>) -> Result<(), ShardError> {
    if !shard.is_stopping() {
        take_no_more(shard);
        clock::sleep(LATE_ANSWERS).await;
        end_connections(shard);
    }
    shard.calls.close();
    leave(&shard.mesh).await;
    shard.log.close().await?;
    Ok(())
}
