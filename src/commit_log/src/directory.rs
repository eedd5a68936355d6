//! Where a shard's files stand on its disk.

use std::path::{Path, PathBuf};

use wire::checksum::crc32c;
use wire::{Offset, PartitionIndex, PartitionKey, TopicId};

/// One shard's folder on one disk, and the disk that holds it.
///
/// ```text
/// <disk>/shard-0003/wal-00000000000000a1.log     the write-ahead log, recycled files
/// <disk>/shard-0003/checkpoint-0000000000000007  where its partitions stood
/// <disk>/segments/2b/<topic id>-000012-00000000000000004711.seg
/// <disk>/segments/2b/<topic id>-000012-00000000000000004711-00000001.seg     what compaction made of it, and of some after it
/// ```
///
/// Segments belong to the disk, not to a shard: a restart with another number of shards moves them by name only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardDirectory {
    disk: PathBuf,
    number: u16,
}

impl ShardDirectory {
    /// The folder of shard `number` on `disk` (a data directory). Touches no file.
    pub fn new(disk: impl Into<PathBuf>, number: u16) -> Self {
        Self { disk: disk.into(), number }
    }

    /// The data directory that holds this folder and the partition folders.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// The shard number in the folder's name.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The folder of the write-ahead log and the checkpoints.
    pub fn path(&self) -> PathBuf {
        self.disk.join(format!("shard-{:04}", self.number))
    }

    /// Reads a shard number out of a folder name such as `shard-0003`.
    pub fn parse_name(name: &str) -> Option<u16> {
        let digits = name.strip_prefix("shard-")?;
        if digits.len() < 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        digits.parse().ok()
    }
}

/// Folders of segments on a disk. They are made before the first file, so that a partition's first segment is one new name and nothing else: a folder
/// of its own costs twice as much again, and ten thousand partitions begin their first segments within one checkpoint. More than one,
/// because a folder is made longer by one writer at a time, and is listed as a whole: 16,000 names each with a million partitions.
const SEGMENT_FOLDERS: u32 = 64;

/// The folder of all segments on a disk.
pub(crate) fn segments_path(disk: &Path) -> PathBuf {
    disk.join("segments")
}

/// The names of the folders in it.
pub(crate) fn segment_folder_names() -> Vec<String> {
    (0..SEGMENT_FOLDERS).map(folder_name).collect()
}

/// The folder that holds a partition's segments, and those of others.
pub(crate) fn segment_folder_path(disk: &Path, key: PartitionKey) -> PathBuf {
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&key.topic.0);
    bytes[16..].copy_from_slice(&key.partition.0.to_le_bytes());
    segments_path(disk).join(folder_name(crc32c(&bytes) % SEGMENT_FOLDERS))
}

fn folder_name(number: u32) -> String {
    format!("{number:02x}")
}

/// The file of the segment that starts at `base_offset`. Generation 0 is the one that appends were written into.
pub(crate) fn segment_path(disk: &Path, key: PartitionKey, base_offset: u64, generation: u32) -> PathBuf {
    let mut name = format!("{}-{:06}-{base_offset:020}", key.topic.to_hex(), key.partition.0);
    if generation > 0 {
        name.push_str(&format!("-{generation:08x}"));
    }
    name.push_str(".seg");
    segment_folder_path(disk, key).join(name)
}

/// The file of a segment that is being copied.
pub(crate) fn unfinished_segment_path(disk: &Path, key: PartitionKey, base_offset: u64) -> PathBuf {
    segment_path(disk, key, base_offset, 0).with_extension("seg.new")
}

/// What the name of a segment's file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentName {
    pub(crate) key: PartitionKey,
    pub(crate) base: Offset,
    pub(crate) generation: u32,
    /// Not a copy that a crash may have ended.
    pub(crate) is_finished: bool,
}

impl SegmentName {
    /// The reverse of [`segment_path`] and [`unfinished_segment_path`]; `None` for any other name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (stem, extension) = name.split_once('.')?;
        let is_finished = match extension {
            "seg" => true,
            "seg.new" => false,
            _ => return None,
        };
        let mut parts = stem.split('-');
        let (topic, partition, base) = (parts.next()?, parts.next()?, parts.next()?);
        let generation = parts.next().map_or(Some(0), parse_generation)?;
        if parts.next().is_some() {
            return None;
        }
        let topic = TopicId::from_hex(topic)?;
        let partition = PartitionIndex(u32::try_from(number(partition, 6)?).ok()?);
        let base = Offset(number(base, 20)?);
        Some(Self { key: PartitionKey { topic, partition }, base, generation, is_finished })
    }
}

/// A number as it is written with at least `digits` digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    let is_padded = text.len() == digits || (text.len() > digits && !text.starts_with('0'));
    if is_padded && text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn parse_generation(digits: &str) -> Option<u32> {
    let is_number = digits.len() == 8 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let generation = if is_number { u32::from_str_radix(digits, 16).ok()? } else { 0 };
    (generation > 0).then_some(generation)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use wire::{Offset, PartitionIndex, PartitionKey, TopicId};

    use super::{SegmentName, ShardDirectory, segment_folder_names, segment_folder_path, segment_path, unfinished_segment_path};

    fn key(partition: u32) -> PartitionKey {
        PartitionKey { topic: TopicId([0x1f; 16]), partition: PartitionIndex(partition) }
    }

    fn file_name(path: &Path) -> String {
        path.file_name().and_then(|name| name.to_str()).unwrap().to_owned()
    }

    #[test]
    fn folder_names_are_read_back() {
        let name = file_name(&ShardDirectory::new("/x", 42).path());
        assert_eq!(ShardDirectory::parse_name(&name), Some(42));
        for other in ["shard-", "shard-12", "shard-00x1", "segments", "shard-99999999"] {
            assert_eq!(ShardDirectory::parse_name(other), None, "{other}");
        }
    }

    #[test]
    fn segment_names_are_read_back() {
        let disk = Path::new("/x");
        for partition in [0, 3, 999_999, 1_000_000, u32::MAX] {
            let key = key(partition);
            for base in [0, 4711, u64::MAX] {
                let names = [
                    (segment_path(disk, key, base, 0), 0, true),
                    (segment_path(disk, key, base, 0x2a), 0x2a, true),
                    (segment_path(disk, key, base, u32::MAX), u32::MAX, true),
                    (unfinished_segment_path(disk, key, base), 0, false),
                ];
                for (path, generation, is_finished) in names {
                    let expected = SegmentName { key, base: Offset(base), generation, is_finished };
                    assert_eq!(SegmentName::parse(&file_name(&path)), Some(expected), "{path:?}");
                }
            }
        }
    }

    /// A data directory outlives the program that made it: no file may be looked for elsewhere.
    #[test]
    fn a_segment_stands_where_it_always_did() {
        let path = segment_path(Path::new("/x"), key(3), 4711, 0);
        let expected = "/x/segments/3c/1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f-000003-00000000000000004711.seg";
        assert_eq!(path, Path::new(expected));
    }

    #[test]
    fn other_names_are_not_ours() {
        let own = file_name(&segment_path(Path::new("/x"), key(3), 4711, 0));
        let others = [
            own.replace(".seg", ".idx"),
            own.replace(".seg", ""),
            own.replace("1f1f", "1F1F"),
            own.replace("-000003-", "-3-"),
            own.replace("-000003-", "-0000003-"),
            own.replace("-000003-", "-4294967296-"),
            own.replace("-0000000000000000", "-+000000000000000"),
            own.replace("-000003-", "-000003-0-"),
            own.replace(".seg", "-00000000.seg"),
            own.replace(".seg", "-2a.seg"),
            own.replace(".seg", "-0000002A.seg"),
            own.replace(".seg", "-0000002a-0000002a.seg"),
            "00000000000000004711.seg".to_owned(),
            "lost+found".to_owned(),
        ];
        for other in others {
            assert_eq!(SegmentName::parse(&other), None, "{other}");
        }
    }

    #[test]
    fn partitions_spread_over_all_folders() {
        let disk = Path::new("/x");
        let used: BTreeSet<String> = (0..1000).map(|number| file_name(&segment_folder_path(disk, key(number)))).collect();
        assert_eq!(used.into_iter().collect::<Vec<_>>(), segment_folder_names());
    }
}
