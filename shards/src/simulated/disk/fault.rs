//! Faults that a test arms ahead of time.

use std::path::Path;
use std::time::Duration;

/// What an operation on the disk is, as far as faults are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A write into a file, zeroes included.
    Write,
    /// A read from a file.
    Read,
    /// A sync of a file, a directory or the whole disk.
    Sync,
    /// A fallocate.
    Allocate,
    /// The creation of a file or folder.
    Create,
    /// A rename, a removal or a change of length.
    Change,
}

/// How the operation goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It fails with this errno. A failed write may have landed in part, or, if it had to be durable, whole in a cache; a failed sync loses track of
    /// what it should have synced.
    Errno(i32),
    /// The write ends early, at a page.
    ShortWrite,
    /// The write is reported as done and never reaches the disk.
    LostWrite,
    /// The write is reported as done and lands elsewhere in the same file.
    MisdirectedWrite,
    /// It takes this much longer.
    Stall(Duration),
}

/// One armed fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Which operations it hits.
    pub target: Target,
    /// Only paths that contain this text; the empty text fits all.
    pub path_contains: String,
    /// Fitting operations that go well before it strikes.
    pub after: u64,
    /// Operations it hits; `u64::MAX` for always.
    pub times: u64,
    /// How they go wrong.
    pub kind: FaultKind,
}

impl Fault {
    /// A fault that hits the next fitting operation, once.
    pub fn once(target: Target, kind: FaultKind) -> Self {
        Self { target, path_contains: String::new(), after: 0, times: 1, kind }
    }

    /// The same, for operations on paths that contain `text`.
    #[must_use]
    pub fn on(mut self, text: impl Into<String>) -> Self {
        self.path_contains = text.into();
        self
    }

    /// The same, after `count` fitting operations.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.after = count;
        self
    }

    /// The same, for every later fitting operation too.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = u64::MAX;
        self
    }
}

/// How often each fault struck.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Operations that failed with an errno.
    pub errors: u64,
    /// Writes that ended early.
    pub short_writes: u64,
    /// Writes that never landed.
    pub lost_writes: u64,
    /// Writes that landed elsewhere.
    pub misdirected_writes: u64,
    /// Operations that were held up.
    pub stalls: u64,
    /// Operations refused because the disk was full.
    pub disk_full: u64,
    /// Bits flipped at rest.
    pub bit_flips: u64,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    armed: Vec<Fault>,
    pub(super) counts: FaultCounts,
}

impl Faults {
    pub(super) fn arm(&mut self, fault: Fault) {
        self.armed.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }

    /// The fault that strikes this operation, the first armed one that fits.
    pub(super) fn strike(&mut self, target: Target, path: &Path) -> Option<FaultKind> {
        let text = path.to_string_lossy();
        let mut struck = None;
        for fault in self.armed.iter_mut().filter(|fault| fault.target == target && text.contains(&fault.path_contains)) {
            if fault.after > 0 {
                fault.after -= 1;
            } else if struck.is_none() && fault.times > 0 {
                fault.times = if fault.times == u64::MAX { u64::MAX } else { fault.times - 1 };
                struck = Some(fault.kind);
            }
        }
        self.armed.retain(|fault| fault.times > 0);
        match struck {
            Some(FaultKind::Errno(_)) => self.counts.errors += 1,
            Some(FaultKind::ShortWrite) => self.counts.short_writes += 1,
            Some(FaultKind::LostWrite) => self.counts.lost_writes += 1,
            Some(FaultKind::MisdirectedWrite) => self.counts.misdirected_writes += 1,
            Some(FaultKind::Stall(_)) => self.counts.stalls += 1,
            None => {}
        }
        struck
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Fault, FaultKind, Faults, Target};

    #[test]
    fn a_fault_strikes_where_and_when_it_was_armed() {
        let mut faults = Faults::default();
        faults.arm(Fault::once(Target::Write, FaultKind::LostWrite).on("wal").after(1));
        assert_eq!(faults.strike(Target::Write, Path::new("/d/seg")), None);
        assert_eq!(faults.strike(Target::Write, Path::new("/d/wal-1")), None);
        assert_eq!(faults.strike(Target::Read, Path::new("/d/wal-1")), None);
        assert_eq!(faults.strike(Target::Write, Path::new("/d/wal-1")), Some(FaultKind::LostWrite));
        assert_eq!(faults.strike(Target::Write, Path::new("/d/wal-1")), None);
        assert_eq!(faults.counts.lost_writes, 1);
    }
}
