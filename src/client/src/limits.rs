//! Every bound of the client that is not an option.

/// Requests that may wait for, or be on, one connection. A call beyond that fails.
pub(crate) const CONNECTION_REQUESTS_MAX: usize = 1024;

/// Frames written by one system call at most: enough to fill a socket with small requests.
pub(crate) const WRITE_FRAMES_MAX: usize = 64;

/// Pieces given to one vectored write (Linux takes at most 1024).
pub(crate) const WRITE_SLICES_MAX: usize = 512;

/// Read buffer in front of small frames; larger frames are read straight into their own buffer.
pub(crate) const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Frame buffers a connection remembers for its next frames.
pub(crate) const FRAMES_POOLED_MAX: usize = 8;

/// Bytes of them: what a consumer prefetches by default, so that its frames come from buffers that are warm.
pub(crate) const FRAMES_POOLED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A smaller frame gets a buffer of its own: allocating it costs less than looking for one.
pub(crate) const FRAME_POOLED_BYTES_MIN: usize = 64 * 1024;

/// A larger frame's buffer goes back to the allocator, so that one giant answer does not stay in memory.
pub(crate) const FRAME_POOLED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Fetch requests of one consumer on one shard connection. One is the rule; more only so that a partition just assigned,
/// sought or resumed does not wait until the long poll of the others ends.
pub(crate) const FETCHES_PER_SHARD_MAX: usize = 4;

/// What a buffered record costs beyond its own bytes: its place in the batch, its share of the result.
pub(crate) const RECORD_OVERHEAD_BYTES: usize = 64;

/// Produce requests of one producer on one shard connection.
pub(crate) const PRODUCES_PER_SHARD_MAX: usize = 64;

/// Batches of one partition in one produce request.
pub(crate) const BATCHES_PER_PARTITION_MAX: usize = 64;

/// Answers "no such partition" in a row, of the leader or in metadata, after which the topic counts as deleted. What fails without an answer
/// says nothing of the topic.
pub(crate) const UNKNOWN_PARTITION_ANSWERS_MAX: u32 = 5;

const _: () = assert!(PRODUCES_PER_SHARD_MAX + FETCHES_PER_SHARD_MAX < CONNECTION_REQUESTS_MAX);
const _: () = assert!(WRITE_SLICES_MAX <= 1024);
const _: () = assert!(FRAME_POOLED_BYTES_MAX <= FRAMES_POOLED_BYTES_MAX);
