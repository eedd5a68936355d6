//! One file: what reads see, what is durable, and the changes between the two.
//!
//! ```text
//!   current   ── what a read returns
//!   pending   ── completed changes that no sync has covered, in the order in which they completed
//!   durable   ── what a power cut cannot take
//!
//!   current == durable + pending, applied in order
//! ```

use std::collections::BTreeMap;
use std::rc::Rc;

use super::crash::{CrashDraw, CrashMode};

pub(super) const PAGE_BYTES: usize = 4096;
pub(super) const SECTOR_BYTES: usize = 512;
const PAGE: u64 = PAGE_BYTES as u64;

pub(super) type Page = [u8; PAGE_BYTES];
/// A page that was never written is absent and reads as zeroes.
pub(super) type Pages = BTreeMap<u64, Rc<Page>>;

#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    pub(super) current: Image,
    pub(super) durable: Image,
    pub(super) pending: Vec<Pending>,
    pub(super) handles: u32,
}

/// Contents and length.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    pub(super) pages: Pages,
    pub(super) length: u64,
    /// End of the extents given to the file, written or not.
    pub(super) allocated_end: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Pending {
    /// When the change completed, in operations of the disk.
    pub(super) sequence: u64,
    /// A sync failed over this change: no later sync makes it durable, although reads still see it.
    pub(super) abandoned: bool,
    pub(super) change: Change,
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Data { first_page: u64, pages: Vec<Rc<Page>> },
    Length(u64),
    Allocated(u64),
}

impl Change {
    fn is_metadata(&self) -> bool {
        !matches!(self, Change::Data { .. })
    }
}

impl Image {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Data { first_page, pages } => {
                for (number, page) in (*first_page..).zip(pages) {
                    self.pages.insert(number, page.clone());
                }
                self.length = self.length.max((first_page + pages.len() as u64) * PAGE);
            }
            Change::Length(length) => {
                if *length < self.length {
                    self.cut(*length);
                }
                self.length = *length;
            }
            Change::Allocated(end) => {
                self.length = self.length.max(*end);
                self.allocated_end = self.allocated_end.max(*end);
            }
        }
    }

    fn cut(&mut self, length: u64) {
        self.pages.split_off(&length.div_ceil(PAGE));
        self.allocated_end = self.allocated_end.min(length.next_multiple_of(PAGE));
        let kept = usize::try_from(length % PAGE).expect("less than a page");
        if kept > 0
            && let Some(page) = self.pages.get_mut(&(length / PAGE))
        {
            Rc::make_mut(page)[kept..].fill(0);
        }
    }

    pub(super) fn read(&self, position: u64, length: usize) -> Vec<u8> {
        let end = self.length.min(position.saturating_add(length as u64));
        let mut bytes = Vec::with_capacity(length);
        let mut at = position;
        while at < end {
            let offset = usize::try_from(at % PAGE).expect("less than a page");
            let count = (PAGE_BYTES - offset).min(usize::try_from(end - at).unwrap_or(usize::MAX));
            match self.pages.get(&(at / PAGE)) {
                Some(page) => bytes.extend_from_slice(&page[offset..offset + count]),
                None => bytes.resize(bytes.len() + count, 0),
            }
            at += count as u64;
        }
        bytes
    }

    pub(super) fn page(&self, number: u64) -> Rc<Page> {
        self.pages.get(&number).cloned().unwrap_or_else(zero_page)
    }

    fn occupied_pages(&self) -> u64 {
        self.length.max(self.allocated_end).div_ceil(PAGE)
    }
}

impl FileNode {
    /// A change that completed and awaits a sync.
    pub(super) fn change(&mut self, sequence: u64, change: Change) {
        self.current.apply(&change);
        self.pending.push(Pending { sequence, abandoned: false, change });
    }

    /// A write that had to be durable and whose sync failed: reads see it, and no later sync covers it.
    pub(super) fn change_in_cache(&mut self, sequence: u64, change: Change) {
        self.current.apply(&change);
        self.pending.push(Pending { sequence, abandoned: true, change });
    }

    /// A write that was durable when it completed. The inode goes with it, and so does every earlier change of the length.
    pub(super) fn write_durably(&mut self, first_page: u64, pages: Vec<Rc<Page>>) {
        let range = first_page..first_page + pages.len() as u64;
        let mut waiting = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            if pending.change.is_metadata() {
                if !pending.abandoned {
                    self.durable.apply(&pending.change);
                }
            } else {
                waiting.extend(pending.without(&range));
            }
        }
        self.pending = waiting;
        let change = Change::Data { first_page, pages };
        self.current.apply(&change);
        self.durable.apply(&change);
    }

    /// Everything that completed before `sequence` is durable, except what a failed sync gave up, unless it was written anew.
    pub(super) fn sync(&mut self, sequence: u64) {
        for pending in std::mem::take(&mut self.pending) {
            if pending.sequence < sequence && !pending.abandoned {
                self.replace_abandoned(&pending.change);
                self.durable.apply(&pending.change);
            } else {
                self.pending.push(pending);
            }
        }
    }

    /// A crash must not put older bytes, which no sync will ever cover, over these.
    fn replace_abandoned(&mut self, newer: &Change) {
        if self.pending.is_empty() {
            return;
        }
        let older = std::mem::take(&mut self.pending);
        self.pending = match newer {
            Change::Data { first_page, pages } => {
                let range = *first_page..first_page + pages.len() as u64;
                older.into_iter().flat_map(|pending| pending.without(&range)).collect()
            }
            Change::Length(_) | Change::Allocated(_) => {
                older.into_iter().filter(|pending| !pending.change.is_metadata()).collect()
            }
        };
    }

    /// A sync failed: the kernel forgets that these changes were dirty.
    pub(super) fn abandon(&mut self, sequence: u64) {
        for pending in self.pending.iter_mut().filter(|pending| pending.sequence < sequence) {
            pending.abandoned = true;
        }
    }

    pub(super) fn occupied_pages(&self) -> u64 {
        self.current.occupied_pages()
    }

    /// What a power cut leaves, after the writes in flight were added to what is pending.
    pub(super) fn crash(&mut self, draw: &mut CrashDraw<'_>) {
        self.handles = 0;
        if draw.mode == CrashMode::Kill {
            return;
        }
        for pending in std::mem::take(&mut self.pending) {
            draw.settle(&mut self.durable, &pending.change);
        }
        self.current = self.durable.clone();
    }
}

impl Pending {
    /// The parts of a data change outside `range`: a later durable write replaced the rest.
    fn without(self, range: &std::ops::Range<u64>) -> Vec<Pending> {
        let Change::Data { first_page, pages } = &self.change else { return vec![self] };
        let end = first_page + pages.len() as u64;
        if end <= range.start || *first_page >= range.end {
            return vec![self];
        }
        let part = |from: u64, to: u64| {
            let index = |page: u64| usize::try_from(page - first_page).expect("a page of this write");
            (from < to).then(|| Pending {
                sequence: self.sequence,
                abandoned: self.abandoned,
                change: Change::Data { first_page: from, pages: pages[index(from)..index(to)].to_vec() },
            })
        };
        [part(*first_page, range.start), part(range.end, end)].into_iter().flatten().collect()
    }
}

pub(super) fn zero_page() -> Rc<Page> {
    thread_local! {
        static ZERO: Rc<Page> = Rc::new([0; PAGE_BYTES]);
    }
    ZERO.with(Rc::clone)
}

pub(super) fn to_pages(bytes: &[u8]) -> Vec<Rc<Page>> {
    let (pages, rest) = bytes.as_chunks::<PAGE_BYTES>();
    assert!(rest.is_empty(), "direct I/O writes whole pages, not {} bytes", bytes.len());
    let zero = zero_page();
    pages.iter().map(|page| if *page == *zero { zero.clone() } else { Rc::new(*page) }).collect()
}

#[cfg(test)]
mod tests {
    use super::{Change, FileNode, PAGE_BYTES, to_pages};

    fn data(first_page: u64, byte: u8, count: usize) -> Change {
        Change::Data { first_page, pages: to_pages(&vec![byte; count * PAGE_BYTES]) }
    }

    #[test]
    fn a_sync_covers_what_completed_before_it_began() {
        let mut file = FileNode::default();
        file.change(1, data(0, 1, 1));
        file.change(5, data(1, 2, 1));
        file.sync(5);
        assert_eq!(file.durable.read(0, 2 * PAGE_BYTES), vec![1; PAGE_BYTES]);
        assert_eq!(file.current.read(PAGE_BYTES as u64, 1), [2]);
    }

    #[test]
    fn an_older_write_never_covers_a_newer_durable_one() {
        let mut file = FileNode::default();
        file.change(1, data(0, 1, 3));
        file.write_durably(1, to_pages(&[2; PAGE_BYTES]));
        file.sync(9);
        assert_eq!(file.durable.pages[&0][0], 1);
        assert_eq!(file.durable.pages[&1][0], 2);
        assert_eq!(file.durable.pages[&2][0], 1);
    }

    #[test]
    fn a_sync_after_a_failed_sync_does_not_bring_the_lost_writes_back() {
        let mut file = FileNode::default();
        file.change(1, data(0, 1, 1));
        file.abandon(2);
        file.sync(3);
        assert_eq!(file.durable.length, 0);
        assert_eq!(file.current.length, PAGE_BYTES as u64);
    }

    #[test]
    fn what_was_written_anew_after_a_failed_sync_replaces_what_it_gave_up() {
        let mut file = FileNode::default();
        file.change(1, data(0, 1, 2));
        file.abandon(2);
        file.change(3, data(0, 2, 1));
        file.sync(4);
        assert_eq!(file.durable.pages[&0][0], 2);
        let Change::Data { first_page, .. } = file.pending[0].change else { panic!("the rest of the first write") };
        assert_eq!((file.pending.len(), first_page), (1, 1));
    }

    #[test]
    fn a_cut_file_that_grows_again_reads_zeroes() {
        let mut file = FileNode::default();
        file.change(1, data(0, 7, 2));
        file.change(2, Change::Length(5000));
        file.change(3, Change::Length(8192));
        let bytes = file.current.read(4096, 4096);
        assert_eq!(bytes[903], 7);
        assert!(bytes[904..].iter().all(|byte| *byte == 0));
    }
}
