//! A broker on a directory of its own, and a blocking client that says exactly what it is told.

use broker::{BrokerError, BrokerHandle, Config};
use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tempfile::TempDir;
use wire::{
    Acks, AlignedVec, Api, BatchBuilder, BatchView, Body, BuilderOptions, CreateTopicReply, CreateTopicRequest, ErrorCode,
    FetchPartition, FetchPartitionReply, FetchReply, FetchRequest, FrameHeader, HelloReply, HelloRequest, MetadataReply,
    MetadataRequest, Offset, PartitionIndex, ProducePartition, ProducePartitionReply, ProduceReply, ProduceRequest,
    ProducerIdentity, Request, Sequence, TimestampMs, TopicConfig, TopicId, TopicMetadata, decode_body, encode_request,
    limits::{FRAME_HEADER_BYTES, MESSAGE_BYTES_MAX_CEILING},
};

/// A read that takes longer has hung.
pub(crate) const HANG_GUARD: Duration = Duration::from_secs(60);

/// One broker at a time has the cores of a small machine: side by side they only wait for each other.
static MACHINE: Mutex<()> = Mutex::new(());

/// A directory for one test, with the machine to itself.
pub(crate) struct Site {
    _machine: MutexGuard<'static, ()>,
    pub(crate) folder: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        Site { _machine: machine, folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    pub(crate) fn config(&self, shards: u16) -> Config {
        config(self.folder.path(), shards)
    }

    pub(crate) fn start(&self, shards: u16) -> BrokerHandle {
        broker::start(self.config(shards)).unwrap()
    }
}

/// Ports of its own, small logs, shards that may share a cpu.
pub(crate) fn config(data: &Path, shards: u16) -> Config {
    let text = format!(
        "[cores]\nshards = {shards}\nshare = true\nspin = \"0ms\"\n\
         [listen]\naddress = \"127.0.0.1:0\"\n[http]\naddress = \"127.0.0.1:0\"\n\
         [log]\nwal_file_bytes = \"8MiB\"\nwal_bytes_max = \"128MiB\"\nfree_bytes_min = \"64MiB\"\nfree_bytes_resume = \"64MiB\"\n\
         [memory]\nio_bytes = \"8MiB\"\n"
    );
    let mut config = Config::from_toml(&text).unwrap();
    config.broker.data = data.to_owned();
    config
}

/// Stops in order; any failure of the broker fails the test.
pub(crate) fn stop(broker: BrokerHandle) {
    broker.stop();
    broker.join().unwrap();
}

/// The words of the error that a start ends with.
pub(crate) fn refused(config: Config) -> String {
    let started: Result<BrokerHandle, BrokerError> = broker::start(config);
    started.expect_err("the broker started").to_string()
}

/// A reply as it came.
pub(crate) struct RawReply {
    pub(crate) header: FrameHeader,
    frame: AlignedVec,
}

impl RawReply {
    pub(crate) fn body<T: Body>(&self) -> T {
        decode_body(&self.frame[self.header.body_range()]).unwrap()
    }

    pub(crate) fn attachments(&self) -> &[u8] {
        &self.frame[self.header.attachment_range()]
    }
}

/// A connection that writes frames and reads replies, in the order in which the test says so.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    next_correlation_id: u64,
}

impl Raw {
    /// Connects and says nothing.
    pub(crate) fn silent(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
        stream.set_write_timeout(Some(HANG_GUARD)).unwrap();
        Raw { stream, next_correlation_id: 1 }
    }

    /// Connects and says Hello.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Raw::connect_to_shard(address, None).0
    }

    /// Connects and asks for a shard.
    pub(crate) fn connect_to_shard(address: SocketAddr, shard_wanted: Option<u16>) -> (Self, HelloReply) {
        let mut raw = Raw::silent(address);
        let hello = raw.ask(&HelloRequest { client_id: "test".to_owned(), versions: Api::ranges(), shard_wanted });
        assert_eq!(hello.error, ErrorCode::None);
        (raw, hello)
    }

    /// Writes a request, and gives its correlation id.
    pub(crate) fn send<R: Request>(&mut self, request: &R, attachments: &[u8]) -> u64 {
        let id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let mut frame = encode_request(id, request, attachments.len()).to_vec();
        frame.extend_from_slice(attachments);
        self.stream.write_all(&frame).unwrap();
        id
    }

    /// The next reply.
    pub(crate) fn receive(&mut self) -> RawReply {
        let mut head = [0; FRAME_HEADER_BYTES];
        self.stream.read_exact(&mut head).unwrap();
        let header = FrameHeader::decode(&head).unwrap();
        assert!(header.is_reply());
        let mut frame = AlignedVec::new();
        frame.resize(header.total_length as usize, 0);
        frame[..FRAME_HEADER_BYTES].copy_from_slice(&head);
        self.stream.read_exact(&mut frame[FRAME_HEADER_BYTES..]).unwrap();
        RawReply { header, frame }
    }

    /// Sends one request and takes its reply.
    pub(crate) fn ask<R: Request>(&mut self, request: &R) -> R::Reply
    where
        R::Reply: Body,
    {
        let id = self.send(request, &[]);
        let reply = self.receive();
        assert_eq!(reply.header.correlation_id, id);
        reply.body()
    }

    /// Whether the broker has closed this connection, after all that it still had to say.
    pub(crate) fn is_at_end(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0))
    }

    /// The one error of a refused connection, which then ends.
    pub(crate) fn refusal(&mut self) -> (u64, HelloReply) {
        let reply = self.receive();
        assert_eq!(reply.header.api, Api::Hello.code());
        let id = reply.header.correlation_id;
        let body = reply.body();
        assert!(self.is_at_end(), "the connection goes on after {body:?}");
        (id, body)
    }

    pub(crate) fn create(&mut self, name: &str, config: TopicConfig) -> TopicId {
        let reply: CreateTopicReply = self.ask(&CreateTopicRequest { name: name.to_owned(), config, validate_only: false });
        assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
        reply.id
    }

    /// Creates topics of one partition; gives them in the order of their names.
    pub(crate) fn create_many(&mut self, count: usize) -> Vec<(String, TopicId)> {
        let mut topics = Vec::new();
        // A shard lets some changes wait at a time.
        for numbers in (0..count).collect::<Vec<_>>().chunks(200) {
            let mut asked = HashMap::new();
            for number in numbers {
                let name = format!("t{number:05}");
                let request = CreateTopicRequest { name: name.clone(), config: TopicConfig::default(), validate_only: false };
                asked.insert(self.send(&request, &[]), name);
            }
            for _ in numbers {
                let reply = self.receive();
                let created: CreateTopicReply = reply.body();
                assert_eq!(created.error, ErrorCode::None, "{:?}", created.message);
                topics.push((asked.remove(&reply.header.correlation_id).unwrap(), created.id));
            }
        }
        topics.sort();
        topics
    }

    pub(crate) fn topic(&mut self, name: &str) -> TopicMetadata {
        let reply: MetadataReply =
            self.ask(&MetadataRequest { topics: Some(vec![name.to_owned()]), since_version: 0, after: None, limit: 0 });
        assert_eq!(reply.error, ErrorCode::None);
        reply.topics.into_iter().next().unwrap()
    }

    pub(crate) fn send_produce(&mut self, topic: TopicId, partition: u32, batches: &[AlignedVec]) -> u64 {
        let batch_lengths = batches.iter().map(|batch| u32::try_from(batch.len()).unwrap()).collect();
        let part = ProducePartition { topic, partition: PartitionIndex(partition), batch_lengths };
        let request = ProduceRequest { acks: Acks::AllInSync, timeout_ms: 60_000, partitions: vec![part] };
        let attachments: Vec<u8> = batches.iter().flat_map(|batch| batch.iter().copied()).collect();
        self.send(&request, &attachments)
    }

    pub(crate) fn receive_produced(&mut self) -> ProducePartitionReply {
        let reply: ProduceReply = self.receive().body();
        let [part] = <[_; 1]>::try_from(reply.partitions).unwrap();
        part
    }

    /// Produces and takes the answer, whatever it is.
    pub(crate) fn try_produce(&mut self, topic: TopicId, partition: u32, batch: AlignedVec) -> ProducePartitionReply {
        self.send_produce(topic, partition, &[batch]);
        self.receive_produced()
    }

    /// Produces; it must be acknowledged.
    pub(crate) fn produce(&mut self, topic: TopicId, partition: u32, batch: AlignedVec) -> ProducePartitionReply {
        let reply = self.try_produce(topic, partition, batch);
        assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
        reply
    }

    pub(crate) fn receive_fetched(&mut self) -> (FetchPartitionReply, Vec<u8>) {
        let reply = self.receive();
        let body: FetchReply = reply.body();
        let [part] = <[_; 1]>::try_from(body.partitions).unwrap();
        assert_eq!(part.batch_bytes as usize, reply.attachments().len());
        (part, reply.attachments().to_vec())
    }

    /// What is there from `offset` on, without waiting.
    pub(crate) fn fetch(&mut self, topic: TopicId, partition: u32, offset: u64) -> (FetchPartitionReply, Vec<u8>) {
        self.send(&fetch_request(topic, partition, offset, 0, 0), &[]);
        self.receive_fetched()
    }

    /// Every value of a partition from its start, each with its offset; panics when an offset is missing.
    pub(crate) fn read_all(&mut self, topic: TopicId, partition: u32) -> Vec<Vec<u8>> {
        let mut values = Vec::new();
        loop {
            let next = values.len() as u64;
            let (part, bytes) = self.fetch(topic, partition, next);
            assert_eq!(part.error, ErrorCode::None, "{:?}", part.message);
            if bytes.is_empty() {
                assert_eq!(part.high_watermark.0, next);
                return values;
            }
            for (offset, value) in records(&bytes) {
                if offset >= values.len() as u64 {
                    assert_eq!(offset, values.len() as u64, "an offset is missing");
                    values.push(value);
                }
            }
        }
    }
}

pub(crate) fn fetch_request(topic: TopicId, partition: u32, offset: u64, max_wait_ms: u32, min_bytes: u32) -> FetchRequest {
    let partition = PartitionIndex(partition);
    let part = FetchPartition { topic, partition, offset: Offset(offset), max_bytes: 16 << 20, leader_epoch: None };
    FetchRequest { max_wait_ms, min_bytes, max_bytes: 16 << 20, partitions: vec![part] }
}

/// The time of day: records of long ago would be gone by their age with the segment that holds them.
fn now() -> TimestampMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    TimestampMs(i64::try_from(since.as_millis()).unwrap())
}

/// A batch of these values.
pub(crate) fn batch<V: AsRef<[u8]>>(values: &[V]) -> AlignedVec {
    let options = BuilderOptions {
        batch_bytes_max: MESSAGE_BYTES_MAX_CEILING,
        message_bytes_max: MESSAGE_BYTES_MAX_CEILING,
        ..BuilderOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    for value in values {
        builder.push(now(), None, Some(value.as_ref()), &[]).unwrap();
    }
    builder.build()
}

/// A batch of these values from an idempotent producer.
pub(crate) fn batch_by<V: AsRef<[u8]>>(producer: ProducerIdentity, base_sequence: i32, values: &[V]) -> AlignedVec {
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    for value in values {
        builder.push(now(), None, Some(value.as_ref()), &[]).unwrap();
    }
    builder.set_producer(producer.id, producer.epoch, Sequence(base_sequence));
    builder.build()
}

/// The records of stored batches, checked: offset and value.
pub(crate) fn records(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = wire::BatchHeader::decode(bytes).unwrap().total_length();
        let mut aligned = AlignedVec::new();
        aligned.extend_from_slice(&bytes[..length]);
        let view = BatchView::new(&aligned).unwrap();
        found.extend(view.records().map(|record| (record.offset.0, record.value.unwrap().to_vec())));
        bytes = &bytes[length..];
    }
    found
}

/// Bytes that look like nothing else, the same for the same seed.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
