//! Damage at rest, and whether it can be told from a torn tail.

use std::path::{Path, PathBuf};

use commit_log::format::block::{BlockHeader, BlockPlace};
use commit_log::format::file_header;
use shards::simulated::{Disk, Random};

/// A whole block found in a write-ahead file.
#[derive(Debug, Clone)]
pub(crate) struct FoundBlock {
    pub(crate) path: PathBuf,
    pub(crate) file_sequence: u64,
    pub(crate) position: u64,
    pub(crate) length: u64,
    pub(crate) sequence: u64,
    pub(crate) durable_sequence: u64,
}

/// Every whole block that stands where it says it belongs, in order of the files and positions.
pub(crate) fn blocks(disk: &Disk) -> Vec<FoundBlock> {
    let mut found = Vec::new();
    for (path, _) in disk.files() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(file_sequence) = file_header::parse_file_name(name) else { continue };
        let bytes = disk.contents(&path).unwrap();
        let mut position = 4096;
        while position + 4096 <= bytes.len() {
            let block = &bytes[position..];
            let storage_id = u64::from_le_bytes(block[8..16].try_into().unwrap());
            let place = BlockPlace { storage_id, file_sequence, position: position as u64 };
            match BlockHeader::decode(block, place) {
                Ok(header) if header.verify_body(block).is_ok() => {
                    found.push(FoundBlock {
                        path: path.clone(),
                        file_sequence,
                        position: position as u64,
                        length: header.length_bytes.into(),
                        sequence: header.block_sequence,
                        durable_sequence: header.durable_sequence,
                    });
                    position += header.length_bytes as usize;
                }
                _ => position += 4096,
            }
        }
    }
    found
}

/// Whether some whole block says that `sequence` was durable: then its loss cannot pass for a torn tail.
fn is_recorded(blocks: &[FoundBlock], sequence: u64) -> bool {
    blocks.iter().any(|block| block.durable_sequence >= sequence && block.sequence > sequence)
}

/// Whether a missing block could be a torn tail. Only a hole between two blocks of one file, recorded by a later block of it, surely is not.
pub(crate) fn hole_is_ambiguous(disk: &Disk) -> bool {
    let blocks = blocks(disk);
    let recorded = blocks.windows(2).any(|pair| {
        let hole = pair[0].sequence + 1;
        pair[0].file_sequence == pair[1].file_sequence
            && pair[1].sequence > hole
            && blocks.iter().any(|block| block.file_sequence == pair[0].file_sequence && block.durable_sequence >= hole)
    });
    !recorded
}

/// Damages a block of the write-ahead log; returns whether it may look like a torn tail. None when there is none.
pub(crate) fn damage_block(disk: &Disk, random: &mut Random, flip: bool) -> Option<bool> {
    let before = blocks(disk);
    // The newest blocks are those that a recovery needs.
    let reach = random.between(1, 12).min(before.len() as u64);
    if reach == 0 {
        return None;
    }
    let mut newest = before;
    newest.sort_by_key(|block| std::cmp::Reverse(block.sequence));
    let victim = &newest[usize::try_from(random.below(reach)).unwrap()];
    if flip {
        let byte = victim.position + random.below(victim.length);
        assert!(disk.flip_bit(&victim.path, byte, random.below(8) as u8));
    } else {
        let sector = victim.position + 512 * random.below(victim.length / 512);
        assert!(disk.damage(&victim.path, sector, 512, |bytes| random.fill(bytes)));
    }
    Some(!is_recorded(&blocks(disk), victim.sequence))
}

/// Flips a bit in a file whose path contains `text`. False when there is none.
pub(crate) fn flip_in(disk: &Disk, random: &mut Random, text: &str) -> bool {
    let fits = |path: &Path, length: u64| length > 0 && path.to_string_lossy().contains(text);
    let files: Vec<_> = disk.files().into_iter().filter(|(path, length)| fits(path, *length)).collect();
    if files.is_empty() {
        return false;
    }
    let (path, length) = &files[usize::try_from(random.below(files.len() as u64)).unwrap()];
    disk.flip_bit(path, random.below(*length), random.below(8) as u8)
}
