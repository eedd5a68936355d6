//! Every limit of the protocol, in one place, each with its reason.
//!
//! A length read from bytes is compared with one of these before anything is allocated from it. Units stand last in the names.
//! What an operator may choose within them (connections, bytes in flight, topics) is the broker's configuration.

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;

/// Alignment of batches, bodies and attachments. rkyv needs 8 at most today; 16 leaves room for 128-bit fields and is what
/// `AlignedVec` and a 4096-aligned disk buffer both give for nothing.
pub const ALIGNMENT_BYTES: usize = 16;

/// The fixed header of a batch.
pub const BATCH_HEADER_BYTES: usize = 80;

/// The fixed header of a frame.
pub const FRAME_HEADER_BYTES: usize = 32;

/// Archived size of one record without its key, value and headers (asserted where the record is defined).
pub const RECORD_FIXED_BYTES: usize = 32;

/// Archived size of one record header without its name and value (asserted where it is defined).
pub const RECORD_HEADER_FIXED_BYTES: usize = 16;

/// Key + value + header names and values of one record, unless the topic says otherwise. Large enough for documents and images,
/// small enough that one message cannot occupy a connection for a noticeable time.
pub const MESSAGE_BYTES_MAX_DEFAULT: u32 = 10 * MIB;

/// The most a topic may set as its message limit: a whole batch must fit a frame beside its body, and be held in memory
/// several times (socket, log buffer, tail cache).
pub const MESSAGE_BYTES_MAX_CEILING: u32 = 32 * MIB;

/// The least a topic may set: below this a limit is a typing error, not a wish.
pub const MESSAGE_BYTES_MAX_FLOOR: u32 = 1024;

/// Headers of one record. They are metadata (trace ids, content types): a record with more than this is a program gone wrong.
pub const HEADERS_PER_RECORD_MAX: usize = 256;

/// Name of one record header.
pub const HEADER_NAME_BYTES_MAX: usize = 1024;

/// What a batch of one largest record has beyond the bytes of the message: headers, the record, alignment.
pub const BATCH_OVERHEAD_BYTES_MAX: u32 = 64 * KIB;

/// A whole batch, as stored and sent.
pub const BATCH_BYTES_MAX: u32 = MESSAGE_BYTES_MAX_CEILING + BATCH_OVERHEAD_BYTES_MAX;

/// What a compressed payload may become. Decompression writes into a buffer of the stated length, never beyond it, so that this
/// is the most that a hostile batch can make a reader allocate.
pub const BATCH_UNCOMPRESSED_BYTES_MAX: u32 = BATCH_BYTES_MAX - BATCH_HEADER_BYTES as u32;

/// Records of one batch: as many empty records as fit the largest payload.
pub const RECORDS_PER_BATCH_MAX: u32 = 1 << 20;

/// Distance of the last offset of a batch from its base. Kafka's limit, since batches go both ways.
pub const OFFSET_DELTA_MAX: u32 = i32::MAX as u32;

/// The largest base offset: offsets are shown to Kafka clients as `i64`, and base + delta must not overflow.
pub const OFFSET_MAX: u64 = i64::MAX as u64 - OFFSET_DELTA_MAX as u64;

/// A padding batch fills a block of a segment; at most the rest of one block and the whole of the next.
pub const PADDING_BYTES_MAX: u32 = 2 * 4096;

/// A whole frame: room for one largest batch, a body and as much again, so that a fetch can answer several partitions.
pub const FRAME_BYTES_MAX: u32 = 64 * MIB;

/// The body of a request. Requests name partitions, they do not carry data: data goes in attachments.
pub const REQUEST_BODY_BYTES_MAX: u32 = MIB;

/// The body of a reply: the metadata of some hundred thousand partitions.
pub const REPLY_BODY_BYTES_MAX: u32 = 32 * MIB;

/// Attachments of one frame: what remains beside the largest request body (a fetch reply is bounded by what its request named).
pub const ATTACHMENT_BYTES_MAX: u32 = FRAME_BYTES_MAX - REQUEST_BODY_BYTES_MAX - FRAME_HEADER_BYTES as u32;

/// The most a fetch may ask for. Equal to what a frame can carry.
pub const FETCH_BYTES_MAX: u32 = ATTACHMENT_BYTES_MAX;

/// Partitions named in one produce, fetch or list-offsets request: keeps the body under its limit and the answer under a frame.
pub const PARTITIONS_PER_REQUEST_MAX: usize = 4096;

/// Batches in one produce request, all partitions together.
pub const BATCHES_PER_REQUEST_MAX: usize = 16_384;

/// Topics named in one metadata request.
pub const TOPICS_PER_REQUEST_MAX: usize = 4096;

/// Longest wait of a fetch or a produce. Longer than any sensible long poll, shorter than the patience of middleboxes.
pub const WAIT_MS_MAX: u32 = 5 * 60 * 1000;

/// Topic name: the longest that, with a partition suffix, is a file name everywhere (Kafka's rule).
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Partitions of one topic.
pub const PARTITIONS_PER_TOPIC_MAX: u32 = 1000;

/// Copies of a partition.
pub const REPLICATION_FACTOR_MAX: u16 = 7;

/// Client id in Hello: it is logged and used as a metric label.
pub const CLIENT_ID_BYTES_MAX: usize = 255;

/// The frame of a Hello. Who has not said it must not get the memory of a largest request; the largest client id with all version ranges
/// takes 2 KiB.
pub const HELLO_BYTES_MAX: u32 = 64 * 1024;

/// Version ranges in Hello: more than there will be requests.
pub const API_VERSIONS_MAX: usize = 256;

/// Segment file size: the smallest holds a largest batch, the largest keeps offsets within it in 32 bits.
pub const SEGMENT_BYTES_MIN: u64 = 64 * MIB as u64;
/// See [`SEGMENT_BYTES_MIN`].
pub const SEGMENT_BYTES_MAX: u64 = 2 * 1024 * MIB as u64;
/// Segment size of a topic that states none: 512 MiB keeps file counts low and retention reasonably fine.
pub const SEGMENT_BYTES_DEFAULT: u64 = 512 * MIB as u64;
/// Age at which a segment is closed so that retention by time can delete it.
pub const SEGMENT_MS_DEFAULT: u64 = 7 * 24 * 3600 * 1000;
/// The shortest segment age: shorter ones make a file per batch.
pub const SEGMENT_MS_MIN: u64 = 1000;
/// Retention of a topic that states none: 7 days, as Kafka's users expect.
pub const RETENTION_MS_DEFAULT: i64 = 7 * 24 * 3600 * 1000;

/// How long a compacted topic keeps a record that deletes its key, unless it says otherwise: a day, as Kafka's users expect.
pub const TOMBSTONE_RETENTION_MS_DEFAULT: u64 = 24 * 3600 * 1000;
/// The longest tombstone retention and compaction lag: a hundred years, so that sums with a time of day cannot overflow.
pub const COMPACTION_MS_MAX: u64 = 100 * 365 * 24 * 3600 * 1000;

/// Group id. Dead-letter topics are named after topic and group: with this, a group leaves as much to the topic.
pub const GROUP_ID_BYTES_MAX: usize = 128;
/// Member id: a UUID takes 36.
pub const MEMBER_ID_BYTES_MAX: usize = 128;
/// Instance id: a host name with a number.
pub const INSTANCE_ID_BYTES_MAX: usize = 128;
/// Batches that an idempotent producer may have in flight in one partition: brokers recognise as many when they are sent again.
pub const PRODUCER_BATCHES_IN_FLIGHT_MAX: usize = 5;
/// Name of a producer that outlives its process.
pub const PRODUCER_NAME_BYTES_MAX: usize = 128;

/// Groups named in one request.
pub const GROUPS_PER_REQUEST_MAX: usize = 1024;
/// Topics that one member subscribes to.
pub const SUBSCRIBED_TOPICS_MAX: usize = 1024;
/// Partitions of all topics of one group, and so of one member: what it owns fits the body of a request.
pub const GROUP_PARTITIONS_MAX: usize = 100_000;

/// How long a member may be silent, from what a pause of a virtual machine can take to what nobody would wait for.
pub const SESSION_TIMEOUT_MS_MIN: u32 = 1000;
/// See [`SESSION_TIMEOUT_MS_MIN`].
pub const SESSION_TIMEOUT_MS_MAX: u32 = 30 * 60 * 1000;
/// How long a member may take to give up partitions.
pub const REBALANCE_TIMEOUT_MS_MIN: u32 = 1000;
/// See [`REBALANCE_TIMEOUT_MS_MIN`]: handling one record can take hours.
pub const REBALANCE_TIMEOUT_MS_MAX: u32 = 24 * 3600 * 1000;

/// Metadata of a committed offset: a checkpoint of a job, not its data (Kafka's limit).
pub const OFFSET_METADATA_BYTES_MAX: usize = 4096;
/// How long offsets of a group without members are kept, at least: a deployment takes its time.
pub const OFFSETS_RETENTION_MS_MIN: u64 = 60 * 1000;
/// See [`OFFSETS_RETENTION_MS_MIN`]; a hundred years, so that sums with a time of day cannot overflow.
pub const OFFSETS_RETENTION_MS_MAX: u64 = COMPACTION_MS_MAX;

/// The bytes by which a key is parked: longer keys are shortened to a digest. They are state in memory and in the topic `__groups`.
pub const PARKING_KEY_BYTES_MAX: usize = 256;
/// What a consumer says about a failure: an error message, not a core dump.
pub const FAILURE_REASON_BYTES_MAX: usize = 1024;
/// Records deferred or done in one settle request.
pub const SETTLED_PER_REQUEST_MAX: usize = 2048;
/// Records failed in one settle request.
pub const FAILED_PER_REQUEST_MAX: usize = 256;
/// Partitions in one settle request: with all the records that it may settle they fit its body.
pub const PARTITIONS_PER_SETTLE_MAX: usize = 1024;
/// How far ahead of the committed offset a member may deliver, in offsets: what is settled above it is state that the coordinator holds.
pub const SETTLE_WINDOW_OFFSETS: u64 = 32_768;
/// Partitions named in one request for retries: they fit its body. A member that owns more names them in turn.
pub const PARTITIONS_PER_TAKE_MAX: usize = 32_768;
/// Records in one answer to a request for retries.
pub const RETRIES_PER_REPLY_MAX: u32 = 1024;

/// How often a record may be delivered.
pub const RETRY_ATTEMPTS_MAX: u32 = 1000;
/// How often a record is delivered unless the group says otherwise.
pub const RETRY_ATTEMPTS_DEFAULT: u32 = 5;
/// The longest pause between two attempts.
pub const RETRY_BACKOFF_MS_MAX: u32 = 7 * 24 * 3600 * 1000;
/// The first pause unless the group says otherwise.
pub const RETRY_BACKOFF_FIRST_MS_DEFAULT: u32 = 1000;
/// The longest pause unless the group says otherwise.
pub const RETRY_BACKOFF_MAX_MS_DEFAULT: u32 = 5 * 60 * 1000;
/// The most by which each pause is longer than the one before.
pub const RETRY_BACKOFF_FACTOR_PERCENT_MAX: u32 = 10_000;
/// Each pause is twice the one before unless the group says otherwise.
pub const RETRY_BACKOFF_FACTOR_PERCENT_DEFAULT: u32 = 200;
/// A fifth of each pause is left to chance unless the group says otherwise.
pub const RETRY_JITTER_PERCENT_DEFAULT: u32 = 20;
/// The pattern by which a dead-letter topic is named: a topic name with two places in it.
pub const DEAD_LETTER_PATTERN_BYTES_MAX: usize = TOPIC_NAME_BYTES_MAX + 14;

const _: () = {
    assert!(ALIGNMENT_BYTES.is_power_of_two());
    assert!(BATCH_HEADER_BYTES.is_multiple_of(ALIGNMENT_BYTES));
    assert!(FRAME_HEADER_BYTES.is_multiple_of(ALIGNMENT_BYTES));
    assert!(FRAME_BYTES_MAX.is_multiple_of(ALIGNMENT_BYTES as u32));
    assert!(BATCH_BYTES_MAX.is_multiple_of(ALIGNMENT_BYTES as u32));
    assert!(ATTACHMENT_BYTES_MAX.is_multiple_of(ALIGNMENT_BYTES as u32));
    assert!(REQUEST_BODY_BYTES_MAX.is_multiple_of(ALIGNMENT_BYTES as u32));
    assert!(REPLY_BODY_BYTES_MAX.is_multiple_of(ALIGNMENT_BYTES as u32));
    assert!(MESSAGE_BYTES_MAX_FLOOR <= MESSAGE_BYTES_MAX_DEFAULT);
    assert!(MESSAGE_BYTES_MAX_DEFAULT <= MESSAGE_BYTES_MAX_CEILING);
    // One largest message with all its headers is a legal batch: three bytes of alignment per blob at most, and the 8-byte root.
    let record_overhead_bytes = RECORD_FIXED_BYTES + HEADERS_PER_RECORD_MAX * RECORD_HEADER_FIXED_BYTES + 64;
    assert!(BATCH_HEADER_BYTES + record_overhead_bytes + ALIGNMENT_BYTES <= BATCH_OVERHEAD_BYTES_MAX as usize);
    // As many smallest records as a batch may have fit its payload.
    assert!(RECORDS_PER_BATCH_MAX as u64 * RECORD_FIXED_BYTES as u64 <= BATCH_UNCOMPRESSED_BYTES_MAX as u64);
    assert!(RECORDS_PER_BATCH_MAX - 1 <= OFFSET_DELTA_MAX);
    // rkyv's relative pointers have 32 bits, signed.
    assert!(FRAME_BYTES_MAX < i32::MAX as u32);
    // Two largest batches do not fit, one does, whatever the body.
    assert!(BATCH_BYTES_MAX <= ATTACHMENT_BYTES_MAX);
    assert!(REPLY_BODY_BYTES_MAX + FRAME_HEADER_BYTES as u32 <= FRAME_BYTES_MAX);
    // A request that names everything it may stays under its body limit.
    assert!(PARTITIONS_PER_REQUEST_MAX * 64 + BATCHES_PER_REQUEST_MAX * 4 <= REQUEST_BODY_BYTES_MAX as usize);
    assert!(TOPICS_PER_REQUEST_MAX * (TOPIC_NAME_BYTES_MAX + 7) <= REQUEST_BODY_BYTES_MAX as usize);
    assert!(SEGMENT_BYTES_MIN >= BATCH_BYTES_MAX as u64);
    assert!(SEGMENT_BYTES_MIN <= SEGMENT_BYTES_DEFAULT);
    assert!(SEGMENT_BYTES_DEFAULT <= SEGMENT_BYTES_MAX);
    assert!(SEGMENT_BYTES_MAX <= u32::MAX as u64);
    assert!(SEGMENT_MS_MIN <= SEGMENT_MS_DEFAULT);
    // What a member owns, what it subscribes to, and what it settles fit a request each.
    assert!(
        GROUP_PARTITIONS_MAX * 4 + SUBSCRIBED_TOPICS_MAX * (32 + TOPIC_NAME_BYTES_MAX + 7) <= REQUEST_BODY_BYTES_MAX as usize
    );
    assert!(PARTITIONS_PER_TAKE_MAX * 20 + 1024 <= REQUEST_BODY_BYTES_MAX as usize);
    assert!(GROUPS_PER_REQUEST_MAX * (GROUP_ID_BYTES_MAX + 8) <= REQUEST_BODY_BYTES_MAX as usize);
    let settled_bytes = SETTLED_PER_REQUEST_MAX * (PARKING_KEY_BYTES_MAX + 32);
    let failed_bytes = FAILED_PER_REQUEST_MAX * (PARKING_KEY_BYTES_MAX + FAILURE_REASON_BYTES_MAX + 48);
    let partition_bytes = PARTITIONS_PER_SETTLE_MAX * 96;
    assert!(settled_bytes + failed_bytes + partition_bytes + 4096 <= REQUEST_BODY_BYTES_MAX as usize);
    assert!(RETRY_BACKOFF_FIRST_MS_DEFAULT <= RETRY_BACKOFF_MAX_MS_DEFAULT);
    assert!(RETRY_BACKOFF_MAX_MS_DEFAULT <= RETRY_BACKOFF_MS_MAX);
    assert!(PADDING_BYTES_MAX as usize >= 4096 + BATCH_HEADER_BYTES);
};

/// The next multiple of 16 at or above `length`.
pub const fn align_up(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT_BYTES)
}
