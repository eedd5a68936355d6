//! The five offsets of a partition, and the one place that moves them.

use wire::Offset;

use crate::Durability;

/// ```text
///  log_start ≤ high_watermark ≤ durable_end ≤ written_end ≤ appended_end
///  ├── may be read ──┤             │             │              │
///                                  │             │              └ has an offset (ordered)
///                                  │             └ its group's writes were given to the disk and completed
///                                  └ everything below is on stable storage
/// ```
///
/// Each is the first offset that does not have the property. For a relaxed partition the high watermark may run ahead of the durable end:
/// there the order is log_start ≤ high_watermark ≤ appended_end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watermarks {
    /// First offset still kept.
    pub log_start: Offset,
    /// End of what consumers may see. Moved by the caller.
    pub high_watermark: Offset,
    /// End of what is on stable storage, without a hole.
    pub durable_end: Offset,
    /// End of what the disk has taken, in any order of completion.
    pub written_end: Offset,
    /// End of what has an offset.
    pub appended_end: Offset,
}

impl Watermarks {
    /// A partition whose log holds `start..end`, all of it durable.
    pub(crate) fn recovered(log_start: Offset, high_watermark: Offset, end: Offset) -> Self {
        let marks = Self { log_start, high_watermark, durable_end: end, written_end: end, appended_end: end };
        marks.check(Durability::Stable);
        marks
    }

    /// The single setter: changes the marks and asserts their order.
    pub(crate) fn set(&mut self, durability: Durability, change: impl FnOnce(&mut Self)) {
        change(self);
        self.check(durability);
    }

    fn check(&self, durability: Durability) {
        assert!(self.log_start <= self.high_watermark, "the log starts above its high watermark: {self:?}");
        assert!(self.durable_end <= self.written_end, "durable beyond what was written: {self:?}");
        assert!(self.written_end <= self.appended_end, "written beyond what was appended: {self:?}");
        match durability {
            Durability::Stable => assert!(self.high_watermark <= self.durable_end, "visible before it is durable: {self:?}"),
            Durability::Relaxed => assert!(self.high_watermark <= self.appended_end, "visible before it exists: {self:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relaxed_partition_shows_what_is_not_durable() {
        let mut marks = Watermarks::default();
        marks.set(Durability::Relaxed, |marks| marks.appended_end = Offset(5));
        marks.set(Durability::Relaxed, |marks| marks.high_watermark = Offset(5));
        assert_eq!(marks.durable_end, Offset(0));
    }

    #[test]
    #[should_panic(expected = "visible before it is durable")]
    fn a_stable_partition_shows_only_what_is_durable() {
        let mut marks = Watermarks::default();
        marks.set(Durability::Stable, |marks| {
            marks.appended_end = Offset(5);
            marks.high_watermark = Offset(5);
        });
    }

    #[test]
    #[should_panic(expected = "written beyond")]
    fn written_follows_appended() {
        Watermarks::default().set(Durability::Stable, |marks| marks.written_end = Offset(1));
    }
}
