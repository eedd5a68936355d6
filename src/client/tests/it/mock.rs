//! A broker in memory: two shards, real frames, faults on request.

mod group;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use wire::*;

pub(crate) const SHARDS: u16 = 2;

/// What goes wrong with a produce request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Every partition answers this.
    Code(ErrorCode),
    /// Nothing is stored, the connection closes.
    DropBefore,
    /// Everything is stored, the connection closes without an answer.
    DropAfter,
    /// The answer comes when `release` is called.
    Hold,
}

/// Topics in one page of a list.
const LISTED_AT_ONCE: usize = 2;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) topics: BTreeMap<String, (TopicId, TopicConfig)>,
    /// Stored batches.
    pub(crate) logs: BTreeMap<PartitionKey, Vec<AlignedVec>>,
    pub(crate) log_start: BTreeMap<PartitionKey, Offset>,
    pub(crate) produce_faults: VecDeque<Fault>,
    /// Codes for coming fetches.
    pub(crate) fetch_faults: VecDeque<ErrorCode>,
    /// Batches by partition in each produce request, as they came.
    pub(crate) produced: Vec<Vec<(PartitionKey, usize)>>,
    /// Shard named in each Hello.
    pub(crate) hellos: Vec<Option<u16>>,
    pub(crate) metadata_requests: usize,
    pub(crate) fetches: usize,
    /// Flip a byte in the payload of the next fetched batch.
    pub(crate) damage_next_fetch: bool,
    /// Identities given.
    pub(crate) producers: i64,
    pub(crate) group: group::GroupState,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    appended: Notify,
    released: Notify,
    port: u16,
}

pub(crate) struct Broker {
    shared: Arc<Shared>,
    accepting: JoinSet<()>,
}

impl Broker {
    pub(crate) async fn start() -> Self {
        Self::with_state(State::default(), 0).await
    }

    pub(crate) async fn with_state(state: State, port: u16) -> Self {
        let listener = loop {
            match TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { state: Mutex::new(state), appended: Notify::new(), released: Notify::new(), port });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&shared)));
        Self { shared, accepting }
    }

    /// Ends all connections and the listener; what was stored stays.
    pub(crate) async fn stop(mut self) -> State {
        self.accepting.shutdown().await;
        std::mem::take(&mut *self.shared.state.lock().unwrap())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.shared.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.shared.port
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    pub(crate) fn release(&self) {
        self.shared.released.notify_waiters();
    }

    pub(crate) fn create(&self, name: &str, partitions: u32) -> TopicId {
        let mut state = self.state();
        let id = TopicId([u8::try_from(state.topics.len()).unwrap() + 1; 16]);
        state.topics.insert(name.to_owned(), (id, TopicConfig { partitions, ..TopicConfig::default() }));
        id
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until(&self, condition: impl Fn(&State) -> bool) {
        while !condition(&self.state()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// All values of a partition, in order.
    pub(crate) fn values(&self, topic: TopicId, partition: u32) -> Vec<String> {
        let state = self.state();
        let batches = state.logs.get(&PartitionKey::new(topic, PartitionIndex(partition)));
        let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap().to_vec()).unwrap();
        let values =
            |batch: &AlignedVec| BatchView::new(batch).unwrap().records().map(|record| text(record.value)).collect::<Vec<_>>();
        batches.into_iter().flatten().flat_map(values).collect()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(serve(stream, Arc::clone(&shared)));
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let (mut read, write) = stream.into_split();
    let write = Arc::new(tokio::sync::Mutex::new(write));
    let mut requests = JoinSet::new();
    loop {
        let mut head = [0; limits::FRAME_HEADER_BYTES];
        if read.read_exact(&mut head).await.is_err() {
            return;
        }
        let header = FrameHeader::decode(&head).unwrap();
        let mut frame = AlignedVec::with_capacity(header.total_length as usize);
        frame.resize(header.total_length as usize, 0);
        read.read_exact(&mut frame[limits::FRAME_HEADER_BYTES..]).await.unwrap();
        let body = frame[header.body_range()].to_vec();
        let attached = frame[header.attachment_range()].to_vec();
        let answer = match Api::from_code(header.api).unwrap() {
            Api::Fetch => {
                // A long poll: the connection goes on meanwhile.
                let (shared, write) = (Arc::clone(&shared), Arc::clone(&write));
                requests.spawn(async move {
                    let (reply, batches) = fetch(&shared, &decode_body::<FetchRequest>(&body).unwrap()).await;
                    let mut bytes = encode_reply(&header, &reply, batches.len()).to_vec();
                    bytes.extend(batches);
                    // The client may be gone.
                    let _ = write.lock().await.write_all(&bytes).await;
                });
                continue;
            }
            Api::Produce => {
                let request = decode_body::<ProduceRequest>(&body).unwrap();
                request.check(attached.len()).unwrap();
                let fault = shared.state.lock().unwrap().produce_faults.pop_front();
                if matches!(fault, Some(Fault::DropBefore)) {
                    return;
                }
                let code = match fault {
                    Some(Fault::Code(code)) => Some(code),
                    _ => None,
                };
                let reply = produce(&shared, &request, &attached, code);
                match fault {
                    Some(Fault::DropAfter) => return,
                    Some(Fault::Hold) => {
                        let (shared, write) = (Arc::clone(&shared), Arc::clone(&write));
                        requests.spawn(async move {
                            shared.released.notified().await;
                            let _ = write.lock().await.write_all(&encode_reply(&header, &reply, 0)).await;
                        });
                        continue;
                    }
                    _ => encode_reply(&header, &reply, 0),
                }
            }
            api @ (Api::FindCoordinator | Api::GroupHeartbeat | Api::FetchOffsets | Api::Settle | Api::TakeRetries) => {
                let (shared, write) = (Arc::clone(&shared), Arc::clone(&write));
                requests.spawn(async move {
                    if let Some(reply) = group::answer(&shared, api, &header, &body).await {
                        let _ = write.lock().await.write_all(&reply).await;
                    }
                });
                continue;
            }
            api => small(&shared, api, &header, &body),
        };
        if write.lock().await.write_all(&answer).await.is_err() {
            return;
        }
    }
}

fn small(shared: &Shared, api: Api, header: &FrameHeader, body: &[u8]) -> AlignedVec {
    let mut state = shared.state.lock().unwrap();
    match api {
        Api::Hello => {
            let hello = decode_body::<HelloRequest>(body).unwrap();
            state.hellos.push(hello.shard_wanted);
            let reply = HelloReply {
                error: ErrorCode::None,
                message: None,
                broker_id: 1,
                cluster_id: [7; 16],
                shard_count: SHARDS,
                shard: hello.shard_wanted.unwrap_or(0),
                apis: Api::ranges(),
                frame_bytes_max: limits::FRAME_BYTES_MAX,
                server: "mock".to_owned(),
            };
            encode_reply(header, &reply, 0)
        }
        Api::Metadata => {
            state.metadata_requests += 1;
            let asked = decode_body::<MetadataRequest>(body).unwrap().topics;
            let wanted = |name: &String| asked.as_ref().is_none_or(|asked| asked.contains(name));
            let topics = state.topics.iter().filter(|(name, _)| wanted(name)).map(|(name, (id, config))| TopicMetadata {
                error: ErrorCode::None,
                name: name.clone(),
                id: *id,
                config: config.clone(),
                partitions: (0..config.partitions)
                    .map(|partition| PartitionMetadata {
                        partition: PartitionIndex(partition),
                        leader: 1,
                        leader_epoch: LeaderEpoch(1),
                        shard: u16::try_from(partition % u32::from(SHARDS)).unwrap(),
                    })
                    .collect(),
            });
            let reply = MetadataReply {
                error: ErrorCode::None,
                message: None,
                version: 1,
                only_changes: false,
                brokers: vec![BrokerMetadata { id: 1, host: "127.0.0.1".into(), port: shared.port, shard_count: SHARDS }],
                topics: topics.collect(),
                more: false,
                deleted: Vec::new(),
            };
            encode_reply(header, &reply, 0)
        }
        Api::CreateTopic => {
            let request = decode_body::<CreateTopicRequest>(body).unwrap();
            let id = TopicId([u8::try_from(state.topics.len()).unwrap() + 1; 16]);
            let exists = state.topics.contains_key(&request.name);
            if !exists {
                state.topics.insert(request.name, (id, request.config));
            }
            let error = if exists { ErrorCode::TopicExists } else { ErrorCode::None };
            encode_reply(header, &CreateTopicReply { error, message: None, id }, 0)
        }
        Api::ListOffsets => {
            let request = decode_body::<ListOffsetsRequest>(body).unwrap();
            let partitions = request.partitions.iter().map(|asked| {
                let key = PartitionKey::new(asked.topic, asked.partition);
                let (offset, timestamp_ms) = match asked.at {
                    OffsetAt::Earliest => (state.log_start.get(&key).copied().unwrap_or_default(), TimestampMs(-1)),
                    OffsetAt::Latest => (end_of(&state, key), TimestampMs(-1)),
                    OffsetAt::Timestamp(timestamp) => find(&state, key, timestamp),
                };
                ListOffsetsPartitionReply {
                    topic: asked.topic,
                    partition: asked.partition,
                    error: ErrorCode::None,
                    offset,
                    timestamp_ms,
                }
            });
            encode_reply(header, &ListOffsetsReply { partitions: partitions.collect() }, 0)
        }
        Api::ListTopics => {
            let request = decode_body::<ListTopicsRequest>(body).unwrap();
            let after = |name: &String| request.after.as_ref().is_none_or(|after| name > after);
            let mut names = state.topics.iter().filter(|(name, _)| after(name));
            let page = names.by_ref().take(LISTED_AT_ONCE).map(|(name, (id, config))| TopicListing {
                name: name.clone(),
                id: *id,
                partitions: config.partitions,
                replication_factor: 1,
            });
            let topics = page.collect();
            encode_reply(header, &ListTopicsReply { error: ErrorCode::None, topics, more: names.next().is_some() }, 0)
        }
        Api::InitProducer => {
            state.producers += 1;
            let (producer_id, producer_epoch) = (ProducerId(state.producers), ProducerEpoch(0));
            encode_reply(header, &InitProducerReply { error: ErrorCode::None, message: None, producer_id, producer_epoch }, 0)
        }
        other => panic!("the mock does not answer {other}"),
    }
}

fn find(state: &State, key: PartitionKey, timestamp: TimestampMs) -> (Offset, TimestampMs) {
    for batch in state.logs.get(&key).into_iter().flatten() {
        for record in BatchView::new(batch).unwrap().records() {
            if record.timestamp_ms >= timestamp {
                return (record.offset, record.timestamp_ms);
            }
        }
    }
    (end_of(state, key), TimestampMs(-1))
}

fn end_of(state: &State, key: PartitionKey) -> Offset {
    let last = state.logs.get(&key).and_then(|batches| batches.last());
    last.map_or(Offset::ZERO, |batch| BatchHeader::decode(batch).unwrap().next_offset())
}

fn produce(shared: &Shared, request: &ProduceRequest, attached: &[u8], fault: Option<ErrorCode>) -> ProduceReply {
    let mut state = shared.state.lock().unwrap();
    let key_of = |partition: &ProducePartition| PartitionKey::new(partition.topic, partition.partition);
    state.produced.push(request.partitions.iter().map(|part| (key_of(part), part.batch_lengths.len())).collect());
    let mut begin = 0;
    let partitions = request.partitions.iter().map(|part| {
        let key = key_of(part);
        let batches: Vec<&[u8]> = part
            .batch_lengths
            .iter()
            .map(|length| {
                let batch = &attached[begin..begin + *length as usize];
                begin += *length as usize;
                batch
            })
            .collect();
        let known = batches.first().and_then(|first| known_at(&state, key, first));
        let base_offset = known.unwrap_or_else(|| end_of(&state, key));
        let too_large = batches.iter().any(|batch| {
            verify_batch(batch).unwrap().check_produced().unwrap();
            let limit = state.topics.values().find(|(id, _)| *id == key.topic).map(|(_, config)| config.message_bytes_max);
            batch.len() > limit.unwrap_or(u32::MAX) as usize
        });
        let error = fault.unwrap_or(if too_large { ErrorCode::MessageTooLarge } else { ErrorCode::None });
        if error == ErrorCode::None && known.is_none() {
            for batch in batches {
                let mut stored = AlignedVec::new();
                stored.extend_from_slice(batch);
                let mut header = BatchHeader::decode(&stored).unwrap();
                header.stamp(end_of(&state, key), LeaderEpoch(1), None);
                header.encode(stored.first_chunk_mut().unwrap());
                state.logs.entry(key).or_default().push(stored);
            }
        }
        ProducePartitionReply {
            topic: part.topic,
            partition: part.partition,
            error,
            message: None,
            base_offset,
            last_offset: Offset(end_of(&state, key).0.saturating_sub(1)),
            log_start: Offset::ZERO,
            append_time_ms: TimestampMs(-1),
            level: AckLevel::Stable,
            replicas_durable: 1,
        }
    });
    let reply = ProduceReply { partitions: partitions.collect() };
    shared.appended.notify_waiters();
    reply
}

/// Where a batch of an idempotent producer stands already.
fn known_at(state: &State, key: PartitionKey, batch: &[u8]) -> Option<Offset> {
    let header = BatchHeader::decode(batch).unwrap();
    let stored = state.logs.get(&key).into_iter().flatten().map(|batch| BatchHeader::decode(batch).unwrap());
    let place = |header: &BatchHeader| (header.producer_id, header.producer_epoch, header.base_sequence);
    let mut same = stored.filter(|stored| header.producer_id != ProducerId::NONE && place(stored) == place(&header));
    same.next().map(|stored| stored.base_offset)
}

async fn fetch(shared: &Shared, request: &FetchRequest) -> (FetchReply, Vec<u8>) {
    shared.state.lock().unwrap().fetches += 1;
    let until = tokio::time::Instant::now() + Duration::from_millis(u64::from(request.max_wait_ms));
    loop {
        let appended = shared.appended.notified();
        tokio::pin!(appended);
        appended.as_mut().enable();
        let (reply, batches) = fetch_now(&mut shared.state.lock().unwrap(), request);
        let done = !batches.is_empty() || reply.partitions.iter().any(|part| part.error != ErrorCode::None);
        if done || tokio::time::timeout_at(until, appended).await.is_err() {
            return (reply, batches);
        }
    }
}

fn fetch_now(state: &mut State, request: &FetchRequest) -> (FetchReply, Vec<u8>) {
    let mut attached = Vec::new();
    let fault = state.fetch_faults.pop_front();
    let mut partitions = Vec::new();
    for part in &request.partitions {
        let key = PartitionKey::new(part.topic, part.partition);
        let start = state.log_start.get(&key).copied().unwrap_or_default();
        let end = end_of(state, key);
        let before = attached.len();
        let in_range = part.offset >= start && part.offset <= end;
        let error = fault.unwrap_or(if in_range { ErrorCode::None } else { ErrorCode::OffsetOutOfRange });
        for batch in state.logs.get(&key).into_iter().flatten().filter(|_| error == ErrorCode::None) {
            let wanted = BatchHeader::decode(batch).unwrap().next_offset() > part.offset;
            let fits = attached.is_empty()
                || (attached.len() - before + batch.len() <= part.max_bytes as usize
                    && attached.len() + batch.len() <= request.max_bytes as usize);
            if wanted && fits {
                attached.extend_from_slice(batch);
            } else if wanted {
                break;
            }
        }
        partitions.push(FetchPartitionReply {
            topic: part.topic,
            partition: part.partition,
            error,
            message: None,
            high_watermark: end,
            log_start: start,
            log_end: end,
            batch_bytes: u32::try_from(attached.len() - before).unwrap(),
        });
    }
    if !attached.is_empty() && std::mem::take(&mut state.damage_next_fetch) {
        attached[limits::BATCH_HEADER_BYTES] ^= 0xff;
    }
    (FetchReply { partitions }, attached)
}
