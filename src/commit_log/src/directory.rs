//! Where a shard's files stand on its disk.

use std::path::{Path, PathBuf};

use wire::{Offset, PartitionKey};

/// One shard's folder on one disk, and the disk that holds it.
///
/// ```text
/// <disk>/shard-0003/wal-00000000000000a1.log     the write-ahead log, recycled files
/// <disk>/shard-0003/checkpoint-0000000000000007  where its partitions stood
/// <disk>/topics/<topic id>/000012/00000000000000004711.seg
/// <disk>/topics/<topic id>/000012/00000000000000004711-00000001.seg     what compaction made of it, and of some after it
/// ```
///
/// Partition folders belong to the disk, not to a shard: a restart with another number of shards moves them by name only.
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

/// The folder of all topics on a disk.
pub(crate) fn topics_path(disk: &Path) -> PathBuf {
    disk.join("topics")
}

/// The folder of a topic's partitions.
pub(crate) fn topic_path(disk: &Path, key: PartitionKey) -> PathBuf {
    topics_path(disk).join(key.topic.to_hex())
}

/// The folder of a partition's segments.
pub(crate) fn partition_path(disk: &Path, key: PartitionKey) -> PathBuf {
    topic_path(disk, key).join(format!("{:06}", key.partition.0))
}

/// The file of the segment that starts at `base_offset`. Generation 0 is the one that appends were written into.
pub(crate) fn segment_path(disk: &Path, key: PartitionKey, base_offset: u64, generation: u32) -> PathBuf {
    let name = match generation {
        0 => format!("{base_offset:020}.seg"),
        _ => format!("{base_offset:020}-{generation:08x}.seg"),
    };
    partition_path(disk, key).join(name)
}

/// The file of a segment that is being copied.
pub(crate) fn unfinished_segment_path(disk: &Path, key: PartitionKey, base_offset: u64) -> PathBuf {
    segment_path(disk, key, base_offset, 0).with_extension("seg.new")
}

/// What the name of a file in a partition's folder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentName {
    pub(crate) base: Offset,
    pub(crate) generation: u32,
    /// Not a copy that a crash may have ended.
    pub(crate) is_finished: bool,
}

/// The reverse of both; `None` for any other name.
pub(crate) fn parse_segment_name(name: &str) -> Option<SegmentName> {
    let (stem, extension) = name.split_once('.')?;
    let is_finished = match extension {
        "seg" => true,
        "seg.new" => false,
        _ => return None,
    };
    let (digits, generation) = match stem.split_once('-') {
        Some((digits, generation)) => (digits, parse_generation(generation)?),
        None => (stem, 0),
    };
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return None;
    }
    Some(SegmentName { base: Offset(digits.parse().ok()?), generation, is_finished })
}

fn parse_generation(digits: &str) -> Option<u32> {
    let is_number = digits.len() == 8 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let generation = if is_number { u32::from_str_radix(digits, 16).ok()? } else { 0 };
    (generation > 0).then_some(generation)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use wire::{Offset, PartitionIndex, PartitionKey, TopicId};

    use super::{SegmentName, ShardDirectory, parse_segment_name, segment_path, unfinished_segment_path};

    #[test]
    fn folder_names_are_read_back() {
        let name = ShardDirectory::new("/x", 42).path();
        let name = name.file_name().and_then(|name| name.to_str()).unwrap();
        assert_eq!(ShardDirectory::parse_name(name), Some(42));
        for other in ["shard-", "shard-12", "shard-00x1", "topics", "shard-99999999"] {
            assert_eq!(ShardDirectory::parse_name(other), None, "{other}");
        }
    }

    #[test]
    fn segment_names_are_read_back() {
        let key = PartitionKey { topic: TopicId([1; 16]), partition: PartitionIndex(3) };
        let disk = Path::new("/x");
        let paths = [
            (segment_path(disk, key, 4711, 0), 0, true),
            (segment_path(disk, key, 4711, 0x2a), 0x2a, true),
            (unfinished_segment_path(disk, key, 4711), 0, false),
        ];
        for (path, generation, is_finished) in paths {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap();
            assert_eq!(parse_segment_name(name), Some(SegmentName { base: Offset(4711), generation, is_finished }));
        }
        for other in [
            "4711.seg",
            "00000000000000004711.idx",
            "00000000000000004711",
            "lost+found",
            "+0000000000000004711.seg",
            "00000000000000004711-00000000.seg",
            "00000000000000004711-2a.seg",
            "00000000000000004711-0000002A.seg",
        ] {
            assert_eq!(parse_segment_name(other), None, "{other}");
        }
    }
}
