//! What the bars share: a broker, its topics, a batch, and waiting until it rests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use wire::{AlignedVec, OffsetAt, TimestampMs, TopicConfig};

use super::BarError;
use crate::broker_process::{BrokerOptions, BrokerProcess};
use crate::driver::DriverError;
use crate::driver::blast::{Blast, BlastOptions, Blasted, Target};
use crate::driver::session::{Partition, Session, Topic};
use crate::driver::template::{Body, Shape, Templates};
use crate::limits::Sides;
use crate::message::Stamp;
use crate::process::Usage;

/// Messages of the bars.
pub(crate) const MESSAGE_BYTES: usize = 1024;
/// Batches of the throughput bars.
pub(crate) const BATCH_BYTES: usize = 256 << 10;
/// Load before a measurement.
pub(crate) const WARMUP: Duration = Duration::from_millis(500);
/// How long a broker may take to rest.
const REST_MAX: Duration = Duration::from_secs(10);
/// A broker rests when it uses less CPU than this share of a core, and writes less than this, for three looks in a row. Timers alone
/// cost several percent per shard, hence not a smaller share.
const REST_CPU_SHARE: f64 = 0.25;
const REST_WRITTEN_BYTES: u64 = 1 << 20;
const REST_LOOK: Duration = Duration::from_millis(100);

/// How the bars are measured.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) data_dir: PathBuf,
    pub(crate) pairs: u32,
    pub(crate) time: Duration,
    pub(crate) rounds: u32,
    /// Bytes of the log in which times are looked up.
    pub(crate) log_bytes: u64,
    /// Topics of 1000 partitions where many are wanted.
    pub(crate) many_topics: u32,
    pub(crate) cpus: Sides,
}

/// What a broker did in a measured time.
#[derive(Debug)]
pub(crate) struct Produced {
    pub(crate) blasted: Blasted,
    /// The broker's, from edge to edge of the measured time.
    pub(crate) usage: Usage,
}

impl Produced {
    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.blasted.acked_bytes as f64 / self.blasted.elapsed.as_secs_f64()
    }

    /// CPU time of the broker's shards per MiB acknowledged, in milliseconds.
    pub(crate) fn cpu_ms_per_mib(&self) -> f64 {
        self.per_mib(self.usage.shard_cpu)
    }

    /// CPU time of all threads of the broker per MiB acknowledged, in milliseconds.
    pub(crate) fn process_cpu_ms_per_mib(&self) -> f64 {
        self.per_mib(self.usage.cpu)
    }

    fn per_mib(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e3 / (self.blasted.acked_bytes as f64 / (1 << 20) as f64).max(1e-9)
    }
}

impl Rig {
    /// A broker with one shard on the last CPU.
    pub(crate) fn broker(&self) -> Result<BrokerProcess, BarError> {
        Ok(BrokerProcess::start(BrokerOptions::beside(&self.data_dir)?)?)
    }

    /// A broker with a shard on each of the two CPUs.
    pub(crate) fn broker_of_two(&self) -> Result<BrokerProcess, BarError> {
        if self.cpus.client_cpu == self.cpus.server_cpu {
            return Err(BarError::Unfit("two shards need two CPUs".to_owned()));
        }
        let shards = format!("{},{}", self.cpus.client_cpu, self.cpus.server_cpu);
        Ok(BrokerProcess::start(BrokerOptions { shards, housekeeping_cpu: None, ..BrokerOptions::beside(&self.data_dir)? })?)
    }

    /// Blasts a new topic and removes it again.
    pub(crate) fn blast(
        &self,
        broker: &BrokerProcess,
        partitions: u32,
        readers: usize,
        by_shard: impl Fn(&Partition, u16) -> u16,
    ) -> Result<Produced, BarError> {
        self.blast_address(broker.address(), Some(broker), partitions, readers, by_shard)
    }

    /// The same at an address; costs are told only of a broker of our own.
    pub(crate) fn blast_address(
        &self,
        address: SocketAddr,
        broker: Option<&BrokerProcess>,
        partitions: u32,
        readers: usize,
        by_shard: impl Fn(&Partition, u16) -> u16,
    ) -> Result<Produced, BarError> {
        let mut session = Session::connect(address)?;
        let topics = session.create_topics(&unique("bar"), 1, &config(partitions))?;
        let shard_count = session.hello().shard_count;
        let targets: Vec<Target> = topics
            .iter()
            .flat_map(Topic::partitions)
            .map(|partition| Target { partition, by_shard: by_shard(&partition, shard_count) })
            .collect();
        let ends = session.offsets(&topics, OffsetAt::Latest)?;
        let options = BlastOptions {
            broker: address,
            shard_count,
            targets: &targets,
            batch: batch(BATCH_BYTES),
            depth: 2,
            readers,
            lag_bytes_max: 8 << 20,
        };
        let mut usages = Vec::new();
        let blasted = Blast::new(options, &ends)?
            .run(WARMUP, self.time, &mut || usages.push(broker.map_or(Ok(Usage::default()), BrokerProcess::usage)))?;
        session.delete_topics(&topics)?;
        if let Some(broker) = broker {
            rest(broker)?;
        }
        if blasted.requests == 0 {
            let why = blasted.last_refusal.map_or("no reply".to_owned(), |code| code.to_string());
            return Err(BarError::Unfit(format!("no batch was acknowledged: {why}")));
        }
        let usages = usages.into_iter().collect::<Result<Vec<Usage>, _>>()?;
        let usage = usages[1].since(&usages[0]);
        Ok(Produced { blasted, usage })
    }
}

/// The configuration of the bars' topics.
pub(crate) fn config(partitions: u32) -> TopicConfig {
    TopicConfig { partitions, replication_factor: 1, ..TopicConfig::default() }
}

/// A name that no other topic of this process has.
pub(crate) fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A batch of as many 1 KiB messages as fit.
pub(crate) fn batch(bytes_max: usize) -> Rc<AlignedVec> {
    let shape = Shape { message_bytes: MESSAGE_BYTES, keyed: false, body: Body::Random(1.0) };
    let count = shape.count_max(bytes_max);
    let stamp = |index: usize| Stamp { producer: 0, sequence: index as u64, intended_ns: 0, partition: 0 };
    Rc::new(Templates::new(shape).batch(count, TimestampMs(0), stamp, |_| [b'0'; 8]))
}

/// Waits until the broker has nothing more to do: what it does after its acknowledgements must not fall into the next measurement,
/// and must not be left out of its bytes.
///
/// # Errors
/// When the broker has ended.
pub(crate) fn rest(broker: &BrokerProcess) -> Result<(), BarError> {
    let started = Instant::now();
    let mut calm = 0;
    let mut before = broker.usage()?;
    while calm < 3 && started.elapsed() < REST_MAX {
        std::thread::sleep(REST_LOOK);
        let now = broker.usage()?;
        let used = now.since(&before);
        let rests = used.cpu.as_secs_f64() < REST_LOOK.as_secs_f64() * REST_CPU_SHARE && used.written_bytes < REST_WRITTEN_BYTES;
        calm = if rests { calm + 1 } else { 0 };
        before = now;
    }
    Ok(())
}

/// All offsets of all partitions can be asked for: every partition serves.
pub(crate) fn all_serve(broker: &BrokerProcess, topics: &[Topic]) -> Result<(), DriverError> {
    let mut session = Session::connect(broker.address())?;
    let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
    let topics = session.topics(&names)?;
    session.offsets(&topics, OffsetAt::Latest)?;
    Ok(())
}
