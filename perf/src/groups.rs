//! Consumer groups of a run: members of the client, on a thread of their own, with the books of the generator.
//!
//! ```text
//!   broker ══ client: GroupConsumer ──next──► member ──► inbox ◄── event loop: count, latencies once a second
//!                one client a member          done, fail   end-to-end latency: from the intended time to the record in hand
//!   dead-letter topics ──── read when all have left ─────► books: each message is done or dead
//! ```

mod book;
mod dead_letters;
mod member;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corelane_client::{Change, Client, ClientOptions, RetryPolicyChanges};
use hdrhistogram::Histogram;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::driver::DriverError;
use crate::driver::session::Topic;
use crate::latency;
use crate::process;
use crate::workload::{Failing, Retry};
pub use book::Book;
use member::Member;

/// How long all members together may take until they have their partitions.
const JOIN_MAX: Duration = Duration::from_secs(120);
/// How often it is looked whether they have them.
const JOIN_LOOK: Duration = Duration::from_millis(5);

/// Groups to make.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The broker.
    pub broker: SocketAddr,
    /// The groups are `prefix-group-0`, `prefix-group-1` …
    pub prefix: &'a str,
    /// How many.
    pub groups: u32,
    /// Members of each.
    pub members: u32,
    /// Which records fail.
    pub failing: Failing,
    /// What the groups do with those.
    pub retry: Retry,
    /// Whether every record is checked, and its latency taken.
    pub verify: bool,
    /// Whether the groups and their dead-letter topics go when they are left.
    pub delete: bool,
}

/// Groups that read.
#[derive(Debug)]
pub struct Groups {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<Result<(), DriverError>>,
}

/// Between the members and the event loop.
#[derive(Debug)]
struct Shared {
    /// `prefix-group-0` …
    names: Vec<String>,
    /// Number of each topic's partition 0 in the run.
    starts: HashMap<String, u32>,
    broker: SocketAddr,
    failing: Failing,
    retry: Retry,
    verify: bool,
    delete: bool,
    inbox: Mutex<Inbox>,
    /// What the intended times count from.
    zero: OnceLock<Instant>,
    /// Partitions that each member holds.
    held: Vec<AtomicI64>,
    /// The load is over: what failed for its time is done now.
    relents: AtomicBool,
    thread: OnceLock<rustix::thread::Pid>,
}

#[derive(Debug)]
struct Inbox {
    /// By group.
    books: Vec<Book>,
    /// Latencies since the last second's end of messages due in `measured`.
    end_to_end: Histogram<u64>,
    measured: Range<u64>,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client of one member, or of what is done for all of them.
    async fn connect(&self, client_id: String) -> Result<Client, DriverError> {
        let options = ClientOptions { client_id, ..ClientOptions::new([self.broker.to_string()]) };
        Ok(Client::connect(options).await?)
    }
}

impl Groups {
    /// Joins all members, and waits until they have the partitions of `topics` between them.
    ///
    /// # Errors
    /// When a member cannot join, or they do not get their partitions.
    pub fn join(wanted: &Wanted<'_>, topics: &[Topic]) -> Result<Groups, DriverError> {
        let members = (wanted.groups * wanted.members) as usize;
        let books = (0..wanted.groups).map(|_| Book::default()).collect();
        let shared = Arc::new(Shared {
            names: (0..wanted.groups).map(|group| format!("{}-group-{group}", wanted.prefix)).collect(),
            starts: topics.iter().map(|topic| (topic.name.clone(), topic.partitions_start)).collect(),
            broker: wanted.broker,
            failing: wanted.failing,
            retry: wanted.retry,
            verify: wanted.verify,
            delete: wanted.delete,
            inbox: Mutex::new(Inbox { books, end_to_end: latency::histogram(), measured: 0..0 }),
            zero: OnceLock::new(),
            held: (0..members).map(|_| AtomicI64::new(0)).collect(),
            relents: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let (stop, stopped) = watch::channel(false);
        let member = |number: usize| Member::new(number / wanted.members as usize, number, Arc::clone(&shared), stopped.clone());
        let all: Vec<Member> = (0..members).map(member).collect();
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("group-members".to_owned())
            .spawn(move || {
                for_thread.thread.get_or_init(rustix::thread::gettid);
                run(&for_thread, all)
            })
            .map_err(DriverError::EventLoop)?;
        let partitions: usize = topics.iter().map(|topic| topic.shards.len()).sum();
        Groups { shared, stop, thread }.wait_joined(wanted.members, partitions as i64)
    }

    fn wait_joined(self, members: u32, partitions: i64) -> Result<Groups, DriverError> {
        let started = Instant::now();
        let least = i64::from(partitions >= i64::from(members));
        let is_joined = |members: &[AtomicI64]| {
            let held: Vec<i64> = members.iter().map(|held| held.load(Ordering::Relaxed)).collect();
            held.iter().sum::<i64>() == partitions && held.iter().all(|held| *held >= least)
        };
        while !self.shared.held.chunks(members as usize).all(is_joined) {
            if self.thread.is_finished() {
                self.leave()?;
                return Err(DriverError::Workload("the members of the groups ended before the load began".to_owned()));
            }
            if started.elapsed() > JOIN_MAX {
                let reason = format!("the members of the groups have not got their partitions within {JOIN_MAX:?}");
                return Err(DriverError::Workload(reason));
            }
            std::thread::sleep(JOIN_LOOK);
        }
        Ok(self)
    }

    /// The load begins: intended times count from here.
    pub fn begin(&self, zero: Instant) {
        self.shared.zero.get_or_init(|| zero);
    }

    /// Latencies count of messages due in this time.
    pub fn measure(&self, measured: Range<u64>) {
        self.shared.inbox().measured = measured;
    }

    /// The load is over: what fails for its time fails no more.
    pub fn relent(&self) {
        self.shared.relents.store(true, Ordering::Relaxed);
    }

    /// Messages with which all groups are through.
    pub fn messages(&self) -> u64 {
        self.shared.inbox().books.iter().map(|book| book.messages).sum()
    }

    /// End-to-end latencies since the last call.
    pub fn take_latencies(&self) -> Histogram<u64> {
        std::mem::replace(&mut self.shared.inbox().end_to_end, latency::histogram())
    }

    /// CPU time of the members' thread.
    pub fn cpu(&self) -> Duration {
        self.shared.thread.get().and_then(|thread| process::cpu_of_thread(*thread)).unwrap_or_default()
    }

    /// Lets all members commit and leave, and reads the dead letters; returns the books of each group.
    ///
    /// # Errors
    /// What made a member end, or why it could not leave in order.
    pub fn leave(self) -> Result<Vec<Book>, DriverError> {
        // Nobody listens any more when the members have ended by themselves.
        let _all_gone = self.stop.send(true);
        self.thread.join().expect("members do not panic")?;
        Ok(std::mem::take(&mut self.shared.inbox().books))
    }
}

/// The members' thread: until all have left, or one cannot go on.
fn run(shared: &Shared, members: Vec<Member>) -> Result<(), DriverError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DriverError::EventLoop)?;
    runtime.block_on(async {
        let client = shared.connect("perf-groups".to_owned()).await?;
        if shared.failing != Failing::Nothing {
            for group in &shared.names {
                client.admin().alter_group(group, None, Change::Set(policy(shared.retry)), Change::Keep, false).await?;
            }
        }
        let mut tasks = JoinSet::new();
        for member in members {
            tasks.spawn(member.read());
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("members do not panic")?;
        }
        dead_letters::read(shared, &client).await?;
        if shared.delete {
            for group in &shared.names {
                client.admin().delete_group(group).await?;
            }
        }
        Ok(())
    })
}

/// Pauses of one length, so that a run's last retries are not far away.
fn policy(retry: Retry) -> RetryPolicyChanges {
    let backoff_ms = retry.backoff.as_millis() as u32;
    RetryPolicyChanges {
        attempts_max: Some(retry.attempts),
        backoff_first_ms: Some(backoff_ms),
        backoff_max_ms: Some(backoff_ms),
        backoff_factor_percent: Some(100),
        jitter_percent: Some(0),
        ..RetryPolicyChanges::default()
    }
}
