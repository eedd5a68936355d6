//! Where the next block of the write-ahead log goes.
//!
//! ```text
//!   live:   wal-7 (full)   wal-8 (full)   wal-9 (being written)        ready: wal-a      spare: old files to be renamed
//!           └ recycled when a checkpoint has passed its last block
//! ```

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;

use shards::disk::File;

use crate::format::BLOCK_BYTES;
use crate::format::block::{BlockChain, BlockPlace};
use crate::format::checkpoint::ReplayStart;
use crate::format::file_header::{FileHeader, PreviousFile};

/// A file with blocks that a crash now would replay.
#[derive(Debug)]
struct LiveFile {
    sequence: u64,
    file: Rc<File>,
    /// Position after its last block.
    position: u64,
    /// Its last block; 0 when it has none.
    last_block: u64,
}

/// A file made ready: new or recycled under its name, all its space allocated, its name on stable storage, open.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    pub(crate) sequence: u64,
    pub(crate) file: Rc<File>,
}

/// Where a block is written.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) file: Rc<File>,
    /// Set for the first block of a file: it is written together with the file's header.
    pub(crate) header: Option<FileHeader>,
    pub(crate) place: BlockPlace,
    pub(crate) chain: BlockChain,
}

#[derive(Debug)]
pub(crate) struct Wal {
    pub(crate) storage_id: u64,
    pub(crate) file_bytes: u64,
    /// Highest block that is durable with all before it.
    pub(crate) durable_block: u64,
    /// Blocks were written and no later block says yet that they are durable.
    pub(crate) trailer_due: bool,
    next_block: u64,
    previous_crc: u32,
    previous: PreviousFile,
    live: VecDeque<LiveFile>,
    pub(crate) ready: Option<ReadyFile>,
    /// Names of files that may be renamed and written over.
    pub(crate) spare: Vec<u64>,
    pub(crate) next_file_sequence: u64,
    is_closed: bool,
}

/// Where the log goes on after a start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WalStart {
    pub(crate) storage_id: u64,
    pub(crate) file_bytes: u64,
    pub(crate) next_block: u64,
    pub(crate) next_file_sequence: u64,
    pub(crate) previous: PreviousFile,
}

impl Wal {
    /// Lets go of every file: nothing is written any more.
    pub(crate) fn close_files(&mut self) {
        self.live.clear();
        self.ready = None;
        self.is_closed = true;
    }

    pub(crate) fn new(start: WalStart, spare: Vec<u64>) -> Self {
        assert!(start.next_block > 0, "blocks are numbered from 1 on");
        assert!(start.next_file_sequence > start.previous.file_sequence, "files are numbered upwards");
        Self {
            storage_id: start.storage_id,
            file_bytes: start.file_bytes,
            durable_block: start.next_block - 1,
            trailer_due: false,
            next_block: start.next_block,
            previous_crc: 0,
            previous: start.previous,
            live: VecDeque::new(),
            ready: None,
            spare,
            next_file_sequence: start.next_file_sequence,
            is_closed: false,
        }
    }

    /// Number of the block that comes next.
    pub(crate) fn next_block(&self) -> u64 {
        self.next_block
    }

    /// Whether a block of `length` bytes has to start a new file.
    pub(crate) fn needs_file(&self, length: u64) -> bool {
        self.live.back().is_none_or(|file| file.position + length > self.file_bytes)
    }

    /// The longest block of batches that stays within `files_max` files. Beyond them only structural records are written.
    pub(crate) fn room(&self, files_max: usize) -> u64 {
        match self.live.len().cmp(&files_max) {
            Ordering::Less => self.file_bytes - BLOCK_BYTES as u64,
            Ordering::Equal => self.live.back().map_or(0, |file| self.file_bytes - file.position),
            Ordering::Greater => 0,
        }
    }

    /// Takes the place for a block of `length` bytes. `None` when it needs a file and none is ready.
    pub(crate) fn place(&mut self, length: u64) -> Option<Placement> {
        assert!(length + BLOCK_BYTES as u64 <= self.file_bytes, "a block fits a file");
        let mut header = None;
        if self.needs_file(length) {
            let ready = self.ready.take()?;
            if let Some(full) = self.live.back() {
                self.previous = PreviousFile {
                    file_sequence: full.sequence,
                    end_position: full.position,
                    end_block_sequence: self.next_block,
                };
            }
            header = Some(FileHeader {
                storage_id: self.storage_id,
                file_sequence: ready.sequence,
                first_block_sequence: self.next_block,
                previous: self.previous,
            });
            let position = BLOCK_BYTES as u64;
            self.live.push_back(LiveFile { sequence: ready.sequence, file: ready.file, position, last_block: 0 });
        }
        let current = self.live.back_mut().expect("a file was there or was just added");
        let place = BlockPlace { storage_id: self.storage_id, file_sequence: current.sequence, position: current.position };
        let chain =
            BlockChain { block_sequence: self.next_block, durable_sequence: self.durable_block, previous_crc: self.previous_crc };
        current.position += length;
        current.last_block = self.next_block;
        self.next_block += 1;
        Some(Placement { file: current.file.clone(), header, place, chain })
    }

    /// The block just placed was built and has this header checksum.
    pub(crate) fn chained(&mut self, header_crc: u32) {
        self.previous_crc = header_crc;
    }

    /// Files, live and ready.
    pub(crate) fn file_count(&self) -> usize {
        self.live.len() + usize::from(self.ready.is_some())
    }

    /// Bytes of the live files that hold blocks.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.iter().map(|file| file.position).sum()
    }

    /// The last block of the oldest third of the live files: partitions with batches at or below it are flushed by the next checkpoint.
    pub(crate) fn old_block(&self) -> u64 {
        // Not the one being written: it is not let go whatever is flushed.
        let old = self.live.len().div_ceil(3).min(self.live.len().saturating_sub(1));
        if old == 0 { 0 } else { self.live[old - 1].last_block }
    }

    /// Where a replay that needs `block` and everything after it begins: at the start of the file that holds it. `None` when nothing knows any more
    /// which file that is.
    pub(crate) fn replay_start(&self, block: u64) -> Option<ReplayStart> {
        if self.is_closed {
            return None;
        }
        let first = self.live.iter().find(|file| file.last_block >= block);
        let file_sequence = match first {
            Some(file) => file.sequence,
            // Not written yet: it goes behind the last block, or into the file made ready, or into one still to be made.
            None => match (self.live.back(), &self.ready) {
                (Some(current), _) => current.sequence,
                (None, Some(ready)) => ready.sequence,
                (None, None) => self.next_file_sequence,
            },
        };
        Some(ReplayStart { file_sequence, position: BLOCK_BYTES as u64, block_sequence: block })
    }

    /// Lets go of live files whose blocks all stand below `block`; the one being written stays.
    pub(crate) fn recycle_below(&mut self, block: u64, spare_max: usize) -> Vec<u64> {
        let mut removed = Vec::new();
        while self.live.len() > 1 && self.live.front().is_some_and(|file| file.last_block < block) {
            let file = self.live.pop_front().expect("more than one");
            if self.spare.len() < spare_max { self.spare.push(file.sequence) } else { removed.push(file.sequence) }
        }
        removed
    }
}
