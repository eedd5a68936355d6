//! Segment files held open: a bounded cache, least recently used goes first.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hashbrown::HashMap;
use shards::disk::{DiskError, File, OpenOptions};
use wire::PartitionKey;

use crate::directory::segment_path;

/// A segment file of a partition, by its base offset and generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentKey {
    pub(crate) partition: PartitionKey,
    pub(crate) base: u64,
    /// 0, or how often compaction has replaced the segments that began here.
    pub(crate) generation: u32,
}

impl SegmentKey {
    pub(crate) fn path(self, disk: &Path) -> PathBuf {
        segment_path(disk, self.partition, self.base, self.generation)
    }
}

#[derive(Debug)]
struct Open {
    file: Rc<File>,
    used: u64,
}

#[derive(Debug, Default)]
struct Files {
    open: HashMap<SegmentKey, Open>,
    /// Time of last use → file. Times are unique.
    by_use: BTreeMap<u64, SegmentKey>,
    clock: u64,
}

/// At most `files_max` files; a file in use by somebody stays open until that use ends.
#[derive(Debug)]
pub(crate) struct FileCache {
    files: RefCell<Files>,
    files_max: usize,
}

impl FileCache {
    pub(crate) fn new(files_max: usize) -> Self {
        assert!(files_max > 0, "a cache of no files would open one for each read");
        Self { files: RefCell::default(), files_max }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.borrow().open.len()
    }

    /// The open file, or opens it for reading and writing.
    pub(crate) async fn get(&self, key: SegmentKey, disk: &Path) -> Result<Rc<File>, DiskError> {
        if let Some(file) = self.touch(key) {
            return Ok(file);
        }
        let file = Rc::new(File::open(&key.path(disk), OpenOptions::writing()).await?);
        // Another may have opened it meanwhile: then that one is kept.
        if let Some(other) = self.touch(key) {
            return Ok(other);
        }
        self.insert(key, file.clone());
        Ok(file)
    }

    /// Adds a file that was just created.
    pub(crate) fn insert(&self, key: SegmentKey, file: Rc<File>) {
        let mut files = self.files.borrow_mut();
        files.clock += 1;
        let used = files.clock;
        files.by_use.insert(used, key);
        if let Some(old) = files.open.insert(key, Open { file, used }) {
            files.by_use.remove(&old.used);
        }
        while files.open.len() > self.files_max {
            let (_, oldest) = files.by_use.pop_first().expect("each open file has a time of use");
            files.open.remove(&oldest);
        }
        debug_assert_eq!(files.open.len(), files.by_use.len());
    }

    /// Forgets a file: it was removed or sealed.
    pub(crate) fn forget(&self, key: SegmentKey) {
        let mut files = self.files.borrow_mut();
        if let Some(open) = files.open.remove(&key) {
            files.by_use.remove(&open.used);
        }
    }

    /// Forgets all files.
    pub(crate) fn close_all(&self) {
        drop(self.files.take());
    }

    fn touch(&self, key: SegmentKey) -> Option<Rc<File>> {
        let mut files = self.files.borrow_mut();
        files.clock += 1;
        let now = files.clock;
        let open = files.open.get_mut(&key)?;
        let before = std::mem::replace(&mut open.used, now);
        let file = open.file.clone();
        files.by_use.remove(&before);
        files.by_use.insert(now, key);
        Some(file)
    }
}
