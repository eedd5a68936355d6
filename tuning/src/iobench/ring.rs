//! A small io_uring loop that keeps a fixed number of operations in flight.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};

use super::IobenchError;

/// Largest operation that is measured.
pub(super) const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Alignment of buffers for O_DIRECT.
const ALIGN_BYTES: usize = 4096;

/// Memory aligned for direct I/O.
pub(super) struct AlignedBlock {
    pointer: NonNull<u8>,
    layout: Layout,
}

impl AlignedBlock {
    /// A block filled with bytes that neither compress nor repeat within it, since some drives do both.
    pub(super) fn patterned(len_bytes: usize) -> Self {
        assert!(len_bytes > 0);
        let layout = Layout::from_size_align(len_bytes, ALIGN_BYTES).expect("a block of at most 1 MiB has a layout");
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout) };
        let mut block = AlignedBlock { pointer, layout };
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for word in block.bytes_mut().chunks_mut(8) {
            // xorshift64 (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        block
    }

    /// The block's bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is ours, initialised by alloc_zeroed, and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.layout.size()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and self is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBlock {
    fn drop(&mut self) {
        // SAFETY: allocated in `patterned` with this layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

/// What each operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    /// A write with RWF_DSYNC: durable when it completes.
    WriteDurable,
    /// A write, then fdatasync; timed together.
    WriteThenSync,
}

/// What a loop did.
pub(super) struct Run {
    /// Time of each operation.
    pub(super) latencies: Vec<Duration>,
    /// From the first submission to the last completion.
    pub(super) elapsed: Duration,
}

/// Keeps `depth` operations in flight for about `time`, at the positions that `next_position` names, then waits for all.
///
/// Stops early when `next_position` returns `None`.
pub(super) fn drive(
    file: &File,
    operation: Operation,
    block_bytes: u32,
    depth: u32,
    time: Duration,
    mut next_position: impl FnMut() -> Option<u64>,
) -> Result<Run, IobenchError> {
    assert!(block_bytes <= BLOCK_BYTES_MAX);
    let mut ring = IoUring::new(depth.next_power_of_two().max(2)).map_err(IobenchError::Ring)?;
    let blocks: Vec<AlignedBlock> = (0..depth).map(|_| AlignedBlock::patterned(block_bytes as usize)).collect();
    let failed = |source| IobenchError::Io { operation: name(operation), block_bytes, source };
    let started = Instant::now();
    let mut begun = vec![started; depth as usize];
    let mut free: Vec<usize> = (0..depth as usize).collect();
    let mut run = Run { latencies: Vec::new(), elapsed: Duration::ZERO };
    // A failed operation ends the loop only after all others are back: the kernel still uses their blocks.
    let mut failure = None;
    loop {
        while failure.is_none() && started.elapsed() < time {
            let (Some(&slot), Some(position)) = (free.last(), (!free.is_empty()).then(&mut next_position).flatten()) else {
                break;
            };
            free.pop();
            begun[slot] = Instant::now();
            let entry = entry(file, operation, &blocks[slot], position).user_data(slot as u64);
            // SAFETY: the block and the file outlive the operation, because this function returns only when none is in flight.
            unsafe { ring.submission().push(&entry) }.expect("the ring has room for every slot");
        }
        if free.len() == depth as usize {
            break;
        }
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => panic!("waiting for operations in flight failed, their buffers cannot be freed: {error}"),
        }
        let done: Vec<(usize, i32)> = ring.completion().map(|entry| (entry.user_data() as usize, entry.result())).collect();
        for (slot, result) in done {
            free.push(slot);
            match completed(file, operation, block_bytes, result) {
                Ok(()) => run.latencies.push(begun[slot].elapsed()),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
    }
    run.elapsed = started.elapsed();
    match failure {
        Some(error) => Err(failed(error)),
        None => Ok(run),
    }
}

fn entry(file: &File, operation: Operation, block: &AlignedBlock, position: u64) -> io_uring::squeue::Entry {
    let fd = types::Fd(file.as_raw_fd());
    let (pointer, len_bytes) = (block.pointer.as_ptr(), block.layout.size() as u32);
    match operation {
        Operation::Read => opcode::Read::new(fd, pointer, len_bytes).offset(position).build(),
        Operation::Write | Operation::WriteThenSync => opcode::Write::new(fd, pointer, len_bytes).offset(position).build(),
        Operation::WriteDurable => opcode::Write::new(fd, pointer, len_bytes).offset(position).rw_flags(libc::RWF_DSYNC).build(),
    }
}

fn completed(file: &File, operation: Operation, block_bytes: u32, result: i32) -> std::io::Result<()> {
    if result < 0 {
        return Err(std::io::Error::from_raw_os_error(-result));
    }
    if result as u32 != block_bytes {
        return Err(std::io::Error::new(std::io::ErrorKind::WriteZero, format!("only {result} bytes were moved")));
    }
    if operation == Operation::WriteThenSync {
        file.sync_data()?;
    }
    Ok(())
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "reading",
        Operation::Write | Operation::WriteDurable | Operation::WriteThenSync => "writing",
    }
}
