//! The bare pipeline on one core: receive a batch, check its CRC-32C, copy it once, write it durably, reply.
//!
//! ```text
//!   client, other core ══ socket ══► receive buffer ── crc32c ── copy ──► write buffer ──► O_DSYNC, pre-written file
//!                      ◄═══════════ reply, in order of arrival, when its write is durable ◄──┘
//!
//!   one thread, one io_uring: a receive is always under way while up to `depth` writes are; nothing waits for one thing only
//! ```
//!
//! This is the reference limit: the least that a broker of durable messages can do, without offsets, frames, partitions or readers.
//! Both sides of it overlap on purpose: a version that received, wrote and replied in turn would be a limit too easily reached.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use io_uring::{IoUring, opcode, squeue, types};
use serde::Serialize;
use wire::checksum::crc32c;

use super::memory::{AlignedBuffer, BLOCK_BYTES};
use super::ring_file::{Extents, RingFile};
use super::{LimitError, Sides, io};
use crate::latency::{self, Percentiles};
use crate::process::{pin, thread_cpu};

/// Messages of a batch are 1 KiB, for the rate in messages.
const MESSAGE_BYTES: f64 = 1024.0;
/// Bytes of a reply: as many as a small frame.
const REPLY_BYTES: usize = 64;
/// The checksum's place at the start of a batch.
const CRC_BYTES: usize = 4;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder on the disk.
    pub folder: PathBuf,
    /// How long.
    pub time: Duration,
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// Bytes of the file, overwritten again and again.
    pub file_bytes: u64,
    /// Durable writes in flight.
    pub depth: usize,
    /// Batches that the client keeps unanswered.
    pub unanswered: usize,
    /// Batches that go into one write when they have arrived: a group commit as the broker has it.
    pub group_bytes_max: usize,
    /// The two CPUs.
    pub sides: Sides,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            folder: ".".into(),
            time: Duration::from_secs(3),
            batch_bytes: 1 << 20,
            file_bytes: 1 << 30,
            depth: 4,
            unanswered: 16,
            group_bytes_max: 1 << 20,
            sides: Sides { client_cpu: 0, server_cpu: 1 },
        }
    }
}

/// What the pipeline did.
#[derive(Debug, Clone, Serialize)]
pub struct Piped {
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// Bytes made durable and answered.
    pub bytes: u64,
    /// In this time, in seconds.
    pub seconds: f64,
    /// CPU time of the pipeline's thread, in seconds.
    pub cpu_seconds: f64,
    /// From the client's sending to the reply, for each batch.
    pub latency: Percentiles,
}

impl Piped {
    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }

    /// One line.
    pub fn text(&self) -> String {
        format!(
            "bare pipeline, batches of {:>4} KiB: {:.2} GB/s = {:.0} durable 1 KiB messages/s, {:.3} ms CPU per MiB; {}",
            self.batch_bytes >> 10,
            self.bytes_per_second() / 1e9,
            self.bytes_per_second() / MESSAGE_BYTES,
            self.cpu_seconds * 1e3 / (self.bytes as f64 / (1 << 20) as f64).max(1e-9),
            self.latency.line()
        )
    }
}

/// Measures.
///
/// # Errors
/// When the disk, sockets or CPUs refuse.
pub fn run(options: &Options) -> Result<Piped, LimitError> {
    assert!(options.batch_bytes.is_multiple_of(BLOCK_BYTES), "a batch is whole blocks");
    assert!(options.depth > 0, "a write must be allowed");
    assert!(options.unanswered > 0, "a batch must be allowed");
    let file = RingFile::create(&options.folder, options.file_bytes, Extents::Written, true)?;
    let listener = TcpListener::bind("127.0.0.1:0").map_err(io("listen"))?;
    let address = listener.local_addr().map_err(io("listen"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let (client_options, client_stop) = (options.clone(), Arc::clone(&stop));
    let (result, outcome) = mpsc::channel();
    let client = std::thread::spawn(move || {
        let latency =
            TcpStream::connect(address).map_err(io("connect")).and_then(|stream| client(stream, &client_options, &client_stop));
        // The receiver lives until this thread is joined.
        let _delivered = result.send(latency);
    });
    let server_options = options.clone();
    let server = std::thread::spawn(move || -> Result<(u64, Duration, Duration), LimitError> {
        pin(server_options.sides.server_cpu).map_err(io("bind to a CPU"))?;
        let (stream, _) = listener.accept().map_err(io("accept"))?;
        stream.set_nodelay(true).map_err(io("set TCP_NODELAY"))?;
        Pipeline::new(&server_options, stream, file)?.run(server_options.time)
    });
    let served = server.join().expect("the pipeline does not panic");
    stop.store(true, Ordering::Relaxed);
    client.join().expect("the client does not panic");
    let latency = outcome.recv().expect("the client sent its outcome");
    let (bytes, elapsed, cpu) = served?;
    Ok(Piped {
        batch_bytes: options.batch_bytes,
        bytes,
        seconds: elapsed.as_secs_f64(),
        cpu_seconds: cpu.as_secs_f64(),
        latency: Percentiles::of(&latency?),
    })
}

/// Sends the same batch again and again, `unanswered` ahead of the replies.
fn client(mut stream: TcpStream, options: &Options, stop: &AtomicBool) -> Result<Histogram<u64>, LimitError> {
    pin(options.sides.client_cpu).map_err(io("bind to a CPU"))?;
    stream.set_nodelay(true).map_err(io("set TCP_NODELAY"))?;
    let mut batch = AlignedBuffer::random(options.batch_bytes);
    let crc = crc32c(&batch[CRC_BYTES..]);
    batch[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    let mut latency = latency::histogram();
    let mut sent = VecDeque::with_capacity(options.unanswered);
    let mut reply = [0_u8; REPLY_BYTES];
    while !stop.load(Ordering::Relaxed) {
        if sent.len() < options.unanswered {
            sent.push_back(Instant::now());
            // The server closes when its time is over: that is the end, not an error.
            if stream.write_all(&batch).is_err() {
                break;
            }
            continue;
        }
        if stream.read_exact(&mut reply).is_err() {
            break;
        }
        let begun = sent.pop_front().expect("a reply belongs to a batch that was sent");
        latency.saturating_record(begun.elapsed().as_nanos() as u64);
    }
    Ok(latency)
}

/// User data of the receive; writes have their slot's number.
const RECEIVE: u64 = u64::MAX;
/// User data of a reply.
const REPLY: u64 = u64::MAX - 1;

struct Pipeline {
    ring: IoUring,
    stream: TcpStream,
    file: RingFile,
    batch_bytes: usize,
    depth: usize,
    /// Where bytes arrive: room for two groups, so that a receive is never without room while a group is copied.
    input: AlignedBuffer,
    input_start: usize,
    input_end: usize,
    receiving: bool,
    /// Write buffers, one per write in flight and one being filled.
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Being filled: slot.
    filling: Option<usize>,
    /// Slots whose writes are under way or done, in order.
    order: VecDeque<usize>,
    position: u64,
    replies: Box<[u8]>,
    /// Replies due and not handed to the socket.
    replies_due: usize,
    /// Bytes of replies under way.
    replying: usize,
    durable_bytes: u64,
}

struct Slot {
    buffer: AlignedBuffer,
    filled: usize,
    done: bool,
}

impl Pipeline {
    fn new(options: &Options, stream: TcpStream, file: RingFile) -> Result<Pipeline, LimitError> {
        let group_bytes = (options.group_bytes_max / options.batch_bytes).max(1) * options.batch_bytes;
        let slot = |_| Slot { buffer: AlignedBuffer::zeroed(group_bytes), filled: 0, done: false };
        Ok(Pipeline {
            ring: IoUring::builder()
                .setup_coop_taskrun()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .build((options.depth as u32 + 4).next_power_of_two())
                .map_err(io("make an io_uring"))?,
            stream,
            file,
            batch_bytes: options.batch_bytes,
            depth: options.depth,
            input: AlignedBuffer::zeroed(2 * group_bytes.max(1 << 20)),
            input_start: 0,
            input_end: 0,
            receiving: false,
            slots: (0..=options.depth).map(slot).collect(),
            free: (0..=options.depth).collect(),
            filling: None,
            order: VecDeque::new(),
            position: 0,
            replies: vec![0; REPLY_BYTES * options.unanswered].into_boxed_slice(),
            replies_due: 0,
            replying: 0,
            durable_bytes: 0,
        })
    }

    fn run(mut self, time: Duration) -> Result<(u64, Duration, Duration), LimitError> {
        let (started, cpu) = (Instant::now(), thread_cpu());
        let mut outcome = Ok(());
        while started.elapsed() < time && outcome.is_ok() {
            self.take_batches();
            self.submit();
            self.wait();
            outcome = self.complete();
        }
        let (bytes, elapsed, used) = (self.durable_bytes, started.elapsed(), thread_cpu() - cpu);
        self.finish();
        outcome.map(|()| (bytes, elapsed, used))
    }

    /// Checks and copies every whole batch that has arrived, as far as there are write buffers.
    fn take_batches(&mut self) {
        while self.input_end - self.input_start >= self.batch_bytes {
            // A full group waits here until its write may start.
            if self.filling_is_full() && !self.start_write() {
                return;
            }
            let Some(index) = self.filling.or_else(|| self.free.pop()) else { return };
            self.filling = Some(index);
            let slot = &mut self.slots[index];
            let batch = &self.input[self.input_start..self.input_start + self.batch_bytes];
            let stated = u32::from_le_bytes([batch[0], batch[1], batch[2], batch[3]]);
            assert_eq!(crc32c(&batch[CRC_BYTES..]), stated, "loopback does not damage batches");
            slot.buffer[slot.filled..slot.filled + self.batch_bytes].copy_from_slice(batch);
            slot.filled += self.batch_bytes;
            self.input_start += self.batch_bytes;
        }
        if self.input_start == self.input_end {
            (self.input_start, self.input_end) = (0, 0);
        }
    }

    fn filling_is_full(&self) -> bool {
        self.filling.is_some_and(|index| self.slots[index].filled == self.slots[index].buffer.len())
    }

    /// Starts the write of what is filled, if one more may be in flight.
    fn start_write(&mut self) -> bool {
        let in_flight = self.order.iter().filter(|&&index| !self.slots[index].done).count();
        if in_flight >= self.depth {
            return false;
        }
        let Some(index) = self.filling.take() else { return false };
        let slot = &self.slots[index];
        if self.position + slot.filled as u64 > self.file.bytes() {
            self.position = 0;
        }
        let entry = opcode::Write::new(self.file.fd(), slot.buffer.pointer(), slot.filled as u32).offset(self.position).build();
        self.position += slot.filled as u64;
        self.order.push_back(index);
        self.push(&entry.user_data(index as u64));
        true
    }

    /// Queues everything that may start now: a partly filled group when the disk would idle, a receive, replies.
    fn submit(&mut self) {
        let idle = self.order.iter().all(|&index| self.slots[index].done);
        if idle || self.filling_is_full() {
            self.start_write();
        }
        if !self.receiving {
            if self.input_start > 0 && self.input.len() - self.input_end < self.batch_bytes {
                self.input.copy_within(self.input_start..self.input_end, 0);
                (self.input_start, self.input_end) = (0, self.input_end - self.input_start);
            }
            let room = self.input.len() - self.input_end;
            if room > 0 {
                let place = self.input[self.input_end..].as_mut_ptr();
                let entry = opcode::Recv::new(types::Fd(self.stream.as_raw_fd()), place, room as u32).build();
                self.receiving = true;
                self.push(&entry.user_data(RECEIVE));
            }
        }
        if self.replying == 0 && self.replies_due > 0 {
            self.replying = (self.replies_due * REPLY_BYTES).min(self.replies.len());
            self.replies_due -= self.replying / REPLY_BYTES;
            self.push_reply();
        }
    }

    fn push_reply(&mut self) {
        let entry = opcode::Send::new(types::Fd(self.stream.as_raw_fd()), self.replies.as_ptr(), self.replying as u32).build();
        self.push(&entry.user_data(REPLY));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: buffers, file and socket are owned by self; `finish` waits for every operation before they go.
        unsafe { self.ring.submission().push(entry) }.expect("the ring has room for every write, a receive and a reply");
    }

    fn wait(&mut self) {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => panic!("waiting for operations in flight failed, their buffers cannot be freed: {error}"),
        }
    }

    fn complete(&mut self) -> Result<(), LimitError> {
        let completed: Vec<(u64, i32)> = self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        let mut outcome = Ok(());
        for (what, result) in completed {
            let done = usize::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result));
            outcome = outcome.and(match what {
                RECEIVE => {
                    self.receiving = false;
                    done.map_err(io("receive")).and_then(|bytes| {
                        self.input_end += bytes;
                        if bytes == 0 { Err(io("receive")(std::io::ErrorKind::UnexpectedEof.into())) } else { Ok(()) }
                    })
                }
                REPLY => {
                    let sent = done.map_err(io("reply"));
                    self.replying -= sent.as_ref().copied().unwrap_or(self.replying);
                    if self.replying > 0 {
                        self.push_reply();
                    }
                    sent.map(|_| ())
                }
                slot => self.written(slot as usize, done),
            });
        }
        outcome
    }

    /// A write is durable. Batches are answered in order: those of the durable prefix.
    fn written(&mut self, index: usize, done: std::io::Result<usize>) -> Result<(), LimitError> {
        let wanted = self.slots[index].filled;
        self.slots[index].done = true;
        let done = done.map_err(io("write durably"))?;
        if done != wanted {
            return Err(LimitError::Short { operation: "write durably".to_owned(), done, wanted });
        }
        while let Some(&first) = self.order.front().filter(|&&index| self.slots[index].done) {
            self.order.pop_front();
            let slot = &mut self.slots[first];
            self.durable_bytes += slot.filled as u64;
            self.replies_due += slot.filled / self.batch_bytes;
            (slot.filled, slot.done) = (0, false);
            self.free.push(first);
        }
        Ok(())
    }

    /// Waits for everything in flight: its buffers go with self.
    fn finish(mut self) {
        // A socket that is shut down completes its receive.
        let _closed = self.stream.shutdown(std::net::Shutdown::Both);
        while self.receiving || self.replying > 0 || self.order.iter().any(|&index| !self.slots[index].done) {
            self.wait();
            let completed: Vec<u64> = self.ring.completion().map(|entry| entry.user_data()).collect();
            for what in completed {
                match what {
                    RECEIVE => self.receiving = false,
                    REPLY => self.replying = 0,
                    slot => self.slots[slot as usize].done = true,
                }
            }
        }
    }
}
