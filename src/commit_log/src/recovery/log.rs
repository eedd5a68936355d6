//! Reads the write-ahead files: once to find the blocks, then as often as needed those that count, in their order.

use std::path::{Path, PathBuf};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use shards::buffer::Shared;
use shards::disk::{self, DiskError, File, OpenOptions};
use shards::executor;

use super::RecoverError;
use crate::format::BLOCK_BYTES;
use crate::format::block::{BlockHeader, BlockPlace};
use crate::format::file_header::{FileHeader, file_name};
use crate::wal_scan::{Candidate, ScannedFile, Step, look, zero_prefix};

/// One read. At this size the disk is as fast as it gets, and little is read twice when a block crosses its end.
const READ_BYTES: usize = 1 << 20;

/// Files scanned at the same time: the disk works while one of them is being checked.
const FILES_AT_ONCE: usize = 4;

/// Reads in flight ahead of the block that is being replayed.
const READS_AHEAD: usize = 4;

/// The files of one folder, open.
#[derive(Debug)]
pub(super) struct Log {
    storage_id: u64,
    files: Vec<(u64, File)>,
}

impl Log {
    /// Opens the files of `folder`, and syncs each and the folder: what is read is what a second crash would leave.
    pub(super) async fn open(folder: &Path, storage_id: u64, sequences: &[u64]) -> Result<Self, DiskError> {
        let mut files = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            let file = File::open(&folder.join(file_name(*sequence)), OpenOptions::writing()).await?;
            file.fdatasync().await?;
            files.push((*sequence, file));
        }
        disk::sync_dir(folder).await?;
        Ok(Self { storage_id, files })
    }

    /// What stands in the files.
    pub(super) async fn scan(&self) -> Result<Vec<ScannedFile>, DiskError> {
        let scans = self.files.iter().map(|(sequence, file)| scan_file(file, self.storage_id, *sequence));
        stream::iter(scans).buffered(FILES_AT_ONCE).try_collect().await
    }

    /// Calls for each of `blocks`, in order, through the reader that it returns.
    pub(super) fn blocks<'a>(&'a self, blocks: &'a [BlockHeader]) -> Blocks<'a> {
        let reads: Vec<Read<'a>> = gather(blocks);
        let stream = stream::iter(reads).map(move |read| async move {
            let bytes = self.file(read.file_sequence).read_at(read.position, read.length).await?;
            Ok::<_, DiskError>((read, bytes))
        });
        Blocks { log: self, stream: Box::pin(stream.buffered(READS_AHEAD)) }
    }

    fn file(&self, sequence: u64) -> &File {
        let at = self.files.binary_search_by_key(&sequence, |(sequence, _)| *sequence).expect("the block was found in this file");
        &self.files[at].1
    }

    fn path(&self, sequence: u64) -> PathBuf {
        self.file(sequence).path().to_path_buf()
    }

    pub(super) async fn close(self) -> Result<(), DiskError> {
        for (_, file) in self.files {
            file.close().await?;
        }
        Ok(())
    }
}

/// Blocks that follow each other in a file, read together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read<'a> {
    file_sequence: u64,
    position: u64,
    length: usize,
    blocks: &'a [BlockHeader],
}

fn gather(blocks: &[BlockHeader]) -> Vec<Read<'_>> {
    let mut reads: Vec<Read<'_>> = Vec::new();
    let mut first = 0;
    for (at, block) in blocks.iter().enumerate() {
        let length = block.length_bytes as usize;
        match reads.last_mut() {
            Some(read)
                if read.file_sequence == block.place.file_sequence
                    && read.position + read.length as u64 == block.place.position
                    && read.length + length <= READ_BYTES =>
            {
                read.length += length;
                read.blocks = &blocks[first..=at];
            }
            _ => {
                first = at;
                let (file_sequence, position) = (block.place.file_sequence, block.place.position);
                reads.push(Read { file_sequence, position, length, blocks: &blocks[at..=at] });
            }
        }
    }
    reads
}

type ReadStream<'a> = std::pin::Pin<Box<dyn stream::Stream<Item = Result<(Read<'a>, Shared), DiskError>> + 'a>>;

/// Gives blocks in order.
pub(super) struct Blocks<'a> {
    log: &'a Log,
    stream: ReadStream<'a>,
}

impl<'a> Blocks<'a> {
    /// The next blocks, each with its records; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<(BlockHeader, Shared)>>, RecoverError> {
        let Some((read, bytes)) = self.stream.try_next().await? else { return Ok(None) };
        let mut found = Vec::with_capacity(read.blocks.len());
        for block in read.blocks {
            let start = (block.place.position - read.position) as usize;
            let end = bytes.len().min(start + block.length_bytes as usize);
            let bytes = bytes.slice(start.min(end)..end);
            let records = block.verify_body(&bytes);
            let records = records.map_err(|error| RecoverError::format(&self.log.path(read.file_sequence), error))?;
            let records_start = records.as_ptr() as usize - bytes.as_ptr() as usize;
            let records = bytes.slice(records_start..records_start + records.len());
            found.push((*block, records));
        }
        executor::yield_if_needed().await;
        Ok(Some(found))
    }
}

async fn scan_file(file: &File, storage_id: u64, file_sequence: u64) -> Result<ScannedFile, DiskError> {
    let length = file.len()?;
    let first = file.read_at(0, BLOCK_BYTES).await?;
    let header = FileHeader::decode(&first, storage_id, file_sequence).ok();
    let mut candidates = Vec::new();
    let mut position = BLOCK_BYTES as u64;
    let mut wanted = READ_BYTES;
    while position < length {
        let bytes = file.read_at(position, wanted).await?;
        if bytes.is_empty() {
            break;
        }
        let start = position;
        let last = start + bytes.len() as u64 >= length;
        wanted = READ_BYTES;
        loop {
            let rest = bytes.get((position - start) as usize..).unwrap_or(&[]);
            let zeros = zero_prefix(rest);
            position += zeros as u64;
            let rest = &rest[zeros..];
            if rest.len() < BLOCK_BYTES {
                break;
            }
            let (step, next) = look(rest, BlockPlace { storage_id, file_sequence, position }, last);
            position = next;
            match step {
                Step::Nothing => {}
                Step::Block(header, records) => candidates.push(Candidate { header, whole: records.is_some() }),
                Step::Need(bytes) => {
                    wanted = bytes.next_multiple_of(BLOCK_BYTES).max(READ_BYTES);
                    break;
                }
            }
        }
        if last && position + (BLOCK_BYTES as u64) > length {
            break;
        }
        executor::yield_if_needed().await;
    }
    Ok(ScannedFile { file_sequence, header, candidates })
}
