//! A moment in the life of a member: everything done and failed until then, and whether the coordinator knows it.

use super::assigned::Untold;
use super::{Assignment, RetryingCore};

/// Everything done and failed until [`RetryingCore::mark`], as far as the coordinator was not seen to know it.
#[derive(Debug)]
pub(crate) struct Mark {
    parts: Vec<(Assignment, Untold)>,
}

/// How far the coordinator has followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// It knows everything, durably.
    Told,
    /// There is something to tell, or to be answered.
    Open,
    /// It has no room for what failed.
    NoRoom,
    /// A partition has gone before it knew everything.
    Lost,
}

impl<T> RetryingCore<T> {
    /// Everything done and failed so far. What lies behind a record in hand is committed when that one is: the mark does not wait for it.
    pub(crate) fn mark(&self) -> Mark {
        Mark { parts: self.partitions.values().map(|assigned| (assigned.assignment, assigned.untold())).collect() }
    }

    /// Whether the coordinator knows everything up to a mark. A partition of which it does may go without loss.
    pub(crate) fn progress(&self, mark: &mut Mark) -> Progress {
        let mut all = Progress::Told;
        mark.parts.retain(|(assignment, untold)| {
            let assigned = self.partitions.get(&assignment.partition).filter(|assigned| assigned.assignment == *assignment);
            let progress = assigned.map_or(Progress::Lost, |assigned| assigned.progress(untold));
            all = all.max(progress);
            progress != Progress::Told
        });
        all
    }
}
