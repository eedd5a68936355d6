//! A server that speaks the protocol and keeps nothing on disk: the null sink, and the broker of the generator's own tests.
//!
//! It can stall, lose, repeat, swap and damage, so that the tests show that the generator notices.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use wire::{
    AckLevel, AlignedVec, Api, BatchHeader, Body, CreateTopicReply, CreateTopicRequest, DeleteTopicReply, ErrorCode,
    FetchPartitionReply, FetchReply, FetchRequest, FrameDecoder, FrameHeader, FrameStep, HelloReply, LeaderEpoch,
    ListOffsetsPartitionReply, ListOffsetsReply, ListOffsetsRequest, MetadataReply, MetadataRequest, Offset, OffsetAt,
    PartitionIndex, PartitionMetadata, ProducePartitionReply, ProduceReply, ProduceRequest, TimestampMs, TopicConfig, TopicId,
    TopicMetadata, decode_body, encode_reply, limits,
};

/// What the server does besides answering.
#[derive(Debug, Clone, Copy, Default)]
pub struct Behaviour {
    /// Keeps batches in memory, so that they can be fetched. Otherwise it is a null sink.
    pub keep: bool,
    /// From this long after the first produce request on, for this long, it answers nothing.
    pub stall: Option<(Duration, Duration)>,
    /// What goes wrong with the batch of this number, counted from 0.
    pub fault: Option<(u64, Fault)>,
    /// Answers the produce request of this number, counted from 0, with "overloaded".
    pub overloaded_at: Option<u64>,
}

/// What can go wrong with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Acknowledged and not kept.
    Lose,
    /// Kept twice.
    Repeat,
    /// Kept behind the next batch of its partition.
    Swap,
    /// One bit of it changes, with a checksum that fits.
    Damage,
}

/// A running server. It ends with the process, or when its last connection closes after this is dropped.
#[derive(Debug)]
pub struct Mock {
    address: SocketAddr,
}

#[derive(Debug, Default)]
struct State {
    topics: HashMap<String, (TopicId, TopicConfig)>,
    logs: HashMap<(TopicId, u32), Vec<AlignedVec>>,
    ends: HashMap<(TopicId, u32), u64>,
    held: Option<((TopicId, u32), AlignedVec)>,
    batches: u64,
    requests: u64,
    first_produce: Option<Instant>,
}

#[derive(Debug)]
struct Shared {
    behaviour: Behaviour,
    state: Mutex<State>,
    appended: Condvar,
}

impl Mock {
    /// Starts a server on a free loopback port.
    ///
    /// # Errors
    /// When no socket can be had.
    pub fn start(behaviour: Behaviour) -> std::io::Result<Mock> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { behaviour, state: Mutex::default(), appended: Condvar::new() });
        std::thread::Builder::new().name("mock-accept".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                let serve = move || {
                    // A client that goes away ends its connection; there is nobody to tell.
                    drop(serve(stream, &shared));
                };
                if std::thread::Builder::new().name("mock-connection".to_owned()).spawn(serve).is_err() {
                    break;
                }
            }
        })?;
        Ok(Mock { address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    use std::io::{Read, Write};
    stream.set_nodelay(true)?;
    let mut decoder = FrameDecoder::default();
    let mut input = AlignedVec::with_capacity(1 << 20);
    input.resize(1 << 20, 0);
    let (mut start, mut end) = (0, 0);
    loop {
        let step = decoder.step(&input[start..end]).map_err(std::io::Error::other)?;
        match step {
            FrameStep::Complete { header } => {
                let frame = &input[start..start + header.total_length as usize];
                let (reply, attachments) = shared.answer(&header, frame)?;
                stream.write_all(&reply)?;
                for piece in attachments {
                    stream.write_all(&piece)?;
                }
                start += header.total_length as usize;
                continue;
            }
            FrameStep::Header { missing_bytes } | FrameStep::Rest { missing_bytes, .. } => {
                if end + missing_bytes > input.len() || start == end {
                    input.copy_within(start..end, 0);
                    (start, end) = (0, end - start);
                }
                if end + missing_bytes > input.len() {
                    input.resize((end + missing_bytes).next_power_of_two(), 0);
                }
            }
        }
        match stream.read(&mut input[end..])? {
            0 => return Ok(()),
            read => end += read,
        }
    }
}

type Answer = (AlignedVec, Vec<AlignedVec>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no connection panics while it holds the state")
    }

    fn answer(&self, header: &FrameHeader, frame: &[u8]) -> std::io::Result<Answer> {
        let body = &frame[header.body_range()];
        let plain = |reply: AlignedVec| Ok((reply, Vec::new()));
        match Api::from_code(header.api) {
            Some(Api::Hello) => plain(encode_reply(header, &hello(), 0)),
            Some(Api::CreateTopic) => plain(encode_reply(header, &self.create_topic(decode(body)?), 0)),
            Some(Api::DeleteTopic) => plain(encode_reply(header, &DeleteTopicReply { error: ErrorCode::None, message: None }, 0)),
            Some(Api::Metadata) => plain(encode_reply(header, &self.metadata(&decode::<MetadataRequest>(body)?), 0)),
            Some(Api::ListOffsets) => plain(encode_reply(header, &self.offsets(&decode::<ListOffsetsRequest>(body)?), 0)),
            Some(Api::Produce) => {
                let request = decode::<ProduceRequest>(body)?;
                plain(encode_reply(header, &self.produce(&request, &frame[header.attachment_range()]), 0))
            }
            Some(Api::Fetch) => {
                let (reply, batches) = self.fetch(&decode::<FetchRequest>(body)?);
                let bytes = batches.iter().map(|batch| batch.len()).sum();
                Ok((encode_reply(header, &reply, bytes), batches))
            }
            other => Err(std::io::Error::other(format!("the mock does not answer {other:?}"))),
        }
    }

    fn create_topic(&self, request: CreateTopicRequest) -> CreateTopicReply {
        let mut state = self.lock();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(state.topics.len() as u64 + 1).to_le_bytes());
        state.topics.insert(request.name, (TopicId(id), request.config));
        CreateTopicReply { error: ErrorCode::None, message: None, id: TopicId(id) }
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataReply {
        let state = self.lock();
        let topic = |name: &String| {
            let (id, config) = state.topics.get(name)?;
            let partition =
                |index| PartitionMetadata { partition: PartitionIndex(index), leader: 0, leader_epoch: LeaderEpoch(0), shard: 0 };
            Some(TopicMetadata {
                error: ErrorCode::None,
                name: name.clone(),
                id: *id,
                config: config.clone(),
                partitions: (0..config.partitions).map(partition).collect(),
            })
        };
        MetadataReply {
            error: ErrorCode::None,
            message: None,
            version: 1,
            only_changes: false,
            brokers: Vec::new(),
            topics: request.topics.iter().flatten().filter_map(topic).collect(),
            more: false,
            deleted: Vec::new(),
        }
    }

    fn offsets(&self, request: &ListOffsetsRequest) -> ListOffsetsReply {
        let state = self.lock();
        let partition = |wanted: &wire::ListOffsetsPartition| ListOffsetsPartitionReply {
            topic: wanted.topic,
            partition: wanted.partition,
            error: ErrorCode::None,
            offset: match wanted.at {
                OffsetAt::Earliest => Offset::ZERO,
                _ => Offset(state.ends.get(&(wanted.topic, wanted.partition.0)).copied().unwrap_or(0)),
            },
            timestamp_ms: TimestampMs(-1),
        };
        ListOffsetsReply { partitions: request.partitions.iter().map(partition).collect() }
    }

    fn produce(&self, request: &ProduceRequest, mut attached: &[u8]) -> ProduceReply {
        let mut state = self.lock();
        let first = *state.first_produce.get_or_insert_with(Instant::now);
        if let Some((after, length)) = self.behaviour.stall {
            let elapsed = first.elapsed();
            if elapsed >= after && elapsed < after + length {
                // The lock is held: nobody is answered, as when the process is stopped.
                std::thread::sleep(after + length - elapsed);
            }
        }
        let overloaded = self.behaviour.overloaded_at == Some(state.requests);
        state.requests += 1;
        let mut partitions = Vec::with_capacity(request.partitions.len());
        for partition in &request.partitions {
            let key = (partition.topic, partition.partition.0);
            let base = state.ends.get(&key).copied().unwrap_or(0);
            for &length in &partition.batch_lengths {
                let (batch, rest) = attached.split_at(length as usize);
                attached = rest;
                if self.behaviour.keep && !overloaded {
                    self.append(&mut state, key, batch);
                }
            }
            let end = state.ends.get(&key).copied().unwrap_or(0);
            partitions.push(ProducePartitionReply {
                topic: partition.topic,
                partition: partition.partition,
                error: if overloaded { ErrorCode::Overloaded } else { ErrorCode::None },
                message: None,
                base_offset: Offset(base),
                last_offset: Offset(end.saturating_sub(1)),
                log_start: Offset::ZERO,
                append_time_ms: TimestampMs(-1),
                level: AckLevel::Stable,
                replicas_durable: 0,
            });
        }
        drop(state);
        self.appended.notify_all();
        ProduceReply { partitions }
    }

    fn append(&self, state: &mut State, key: (TopicId, u32), batch: &[u8]) {
        let number = state.batches;
        state.batches += 1;
        let fault = self.behaviour.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        let mut bytes = AlignedVec::with_capacity(batch.len());
        bytes.extend_from_slice(batch);
        match fault {
            Some(Fault::Lose) => return,
            Some(Fault::Swap) => {
                state.held = Some((key, bytes));
                return;
            }
            Some(Fault::Damage) => damage(&mut bytes),
            Some(Fault::Repeat) => store(state, key, bytes.clone()),
            None => {}
        }
        store(state, key, bytes);
        if let Some((_, held)) = state.held.take_if(|(held_key, _)| *held_key == key) {
            store(state, key, held);
        }
    }

    fn fetch(&self, request: &FetchRequest) -> (FetchReply, Vec<AlignedVec>) {
        let deadline = Instant::now() + Duration::from_millis(u64::from(request.max_wait_ms));
        let mut state = self.lock();
        loop {
            let (reply, batches) = collect(&state, request);
            let left = deadline.saturating_duration_since(Instant::now());
            if !batches.is_empty() || left.is_zero() {
                return (reply, batches);
            }
            (state, _) = self.appended.wait_timeout(state, left).expect("no connection panics while it holds the state");
        }
    }
}

fn hello() -> HelloReply {
    HelloReply {
        error: ErrorCode::None,
        message: None,
        broker_id: 0,
        cluster_id: [0; 16],
        shard_count: 1,
        shard: 0,
        apis: Api::ranges(),
        frame_bytes_max: limits::FRAME_BYTES_MAX,
        server: "mock".to_owned(),
    }
}

fn decode<T: Body>(body: &[u8]) -> std::io::Result<T> {
    decode_body(body).map_err(std::io::Error::other)
}

fn store(state: &mut State, key: (TopicId, u32), mut bytes: AlignedVec) {
    let end = state.ends.entry(key).or_insert(0);
    let Ok(mut header) = BatchHeader::decode(&bytes) else { return };
    header.stamp(Offset(*end), LeaderEpoch(0), None);
    *end = header.next_offset().0;
    header.encode(bytes.first_chunk_mut().expect("a batch starts with its header"));
    state.logs.entry(key).or_default().push(bytes);
}

/// Changes a byte of the first message's body, and the checksums so that only the message's own hash can tell.
fn damage(bytes: &mut AlignedVec) {
    let Ok(mut header) = BatchHeader::decode(bytes) else { return };
    let at = header.payload_range().start + crate::message::HEAD_BYTES + crate::driver::template::KEY_BYTES;
    bytes[at] ^= 1;
    header.payload_crc = wire::checksum::crc32c(&bytes[header.payload_range()]);
    header.encode(bytes.first_chunk_mut().expect("a batch starts with its header"));
}

fn collect(state: &State, request: &FetchRequest) -> (FetchReply, Vec<AlignedVec>) {
    let mut batches = Vec::new();
    let mut total = 0;
    let mut partitions = Vec::with_capacity(request.partitions.len());
    for wanted in &request.partitions {
        let key = (wanted.topic, wanted.partition.0);
        let log = state.logs.get(&key).map_or(&[][..], Vec::as_slice);
        let ends_after =
            |batch: &AlignedVec| BatchHeader::decode(batch).is_ok_and(|header| header.next_offset() <= wanted.offset);
        let mut batch_bytes = 0;
        for batch in &log[log.partition_point(ends_after)..] {
            if total + batch.len() > request.max_bytes as usize && total > 0 {
                break;
            }
            total += batch.len();
            batch_bytes += batch.len() as u32;
            batches.push(batch.clone());
        }
        let end = Offset(state.ends.get(&key).copied().unwrap_or(0));
        partitions.push(FetchPartitionReply {
            topic: wanted.topic,
            partition: wanted.partition,
            error: ErrorCode::None,
            message: None,
            high_watermark: end,
            log_start: Offset::ZERO,
            log_end: end,
            batch_bytes,
        });
    }
    (FetchReply { partitions }, batches)
}
