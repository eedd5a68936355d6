//! What a power cut leaves of everything that was not durable.

use std::rc::Rc;

use super::file_node::{Change, Image, PAGE_BYTES, Page, SECTOR_BYTES};
use crate::simulated::random::Random;

/// How the machine goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashMode {
    /// The power goes: each sector that was not durable is drawn to be kept, dropped or garbage, each directory change to be kept or not.
    PowerCut,
    /// The power goes, and nothing that was not durable survives.
    PowerCutDropsAll,
    /// The process is killed. What it wrote stays readable, and what it did not sync a later power cut can still take.
    Kill,
}

/// Counts of what crashes did, for tests that must not go vacuous.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashCounts {
    /// Power cuts and kills.
    pub crashes: u64,
    /// Writes that were not durable and survived whole.
    pub writes_kept: u64,
    /// Writes that were not durable and left no trace.
    pub writes_dropped: u64,
    /// Writes of which some sectors landed and others did not.
    pub writes_torn: u64,
    /// Sectors that hold neither the old nor the new bytes.
    pub sectors_garbage: u64,
    /// Creations, renames and removals that survived without a sync.
    pub entries_kept: u64,
    /// Creations, renames and removals that were undone.
    pub entries_dropped: u64,
}

pub(super) struct CrashDraw<'a> {
    pub(super) mode: CrashMode,
    pub(super) random: &'a mut Random,
    pub(super) counts: &'a mut CrashCounts,
}

enum Fate {
    Kept,
    Dropped,
    Torn,
}

impl CrashDraw<'_> {
    /// Whether a change of one directory entry or of a file's length survives.
    pub(super) fn keeps(&mut self) -> bool {
        match self.mode {
            CrashMode::PowerCut => self.random.chance(1, 2),
            CrashMode::PowerCutDropsAll => false,
            CrashMode::Kill => self.random.chance(1, 2),
        }
    }

    /// Applies what survives of `change` to the durable image.
    pub(super) fn settle(&mut self, durable: &mut Image, change: &Change) {
        let Change::Data { first_page, pages } = change else {
            if self.keeps() {
                durable.apply(change);
            }
            return;
        };
        match self.fate() {
            Fate::Kept => {
                self.counts.writes_kept += 1;
                durable.apply(change);
            }
            Fate::Dropped => self.counts.writes_dropped += 1,
            Fate::Torn => {
                self.counts.writes_torn += 1;
                let torn = (*first_page..).zip(pages).map(|(number, page)| self.tear(&durable.page(number), page)).collect();
                let length = durable.length;
                durable.apply(&Change::Data { first_page: *first_page, pages: torn });
                if durable.length > length && self.random.chance(1, 2) {
                    // The data landed and the inode that says so did not.
                    durable.apply(&Change::Length(length));
                }
            }
        }
    }

    fn fate(&mut self) -> Fate {
        match self.mode {
            CrashMode::Kill => Fate::Kept,
            CrashMode::PowerCutDropsAll => Fate::Dropped,
            // Torn most often: that is where the bugs are. Whole and nothing are what real disks mostly do.
            CrashMode::PowerCut => match self.random.below(4) {
                0 => Fate::Kept,
                1 => Fate::Dropped,
                _ => Fate::Torn,
            },
        }
    }

    fn tear(&mut self, old: &Page, new: &Rc<Page>) -> Rc<Page> {
        let mut page = *old;
        for at in (0..PAGE_BYTES).step_by(SECTOR_BYTES) {
            let sector = at..at + SECTOR_BYTES;
            match self.random.below(16) {
                0..8 => page[sector.clone()].copy_from_slice(&new[sector]),
                8..15 => {}
                _ => {
                    self.counts.sectors_garbage += 1;
                    self.garble(&mut page[sector.clone()], &new[sector]);
                }
            }
        }
        Rc::new(page)
    }

    /// Neither old nor new: noise, zeroes, or a sector cut in two.
    fn garble(&mut self, sector: &mut [u8], new: &[u8]) {
        match self.random.below(3) {
            0 => self.random.fill(sector),
            1 => sector.fill(0),
            _ => {
                let cut = usize::try_from(self.random.between(1, SECTOR_BYTES as u64 - 1)).expect("less than a sector");
                sector[..cut].copy_from_slice(&new[..cut]);
            }
        }
    }
}
