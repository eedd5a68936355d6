//! Which segments a pass looks at, and which become one. Pure.
//!
//! ```text
//!   segments   │ clean │ clean │ s │ s │ dirty │ dirty │ dirty │ active
//!                                                      └ too new, or above the high watermark: it and all behind it stay
//!   groups     [ alone ] [ alone ] [ s   s ] [ alone ] [ alone ]
//! ```
//!
//! A segment at least half as large as the topic's segments stands alone, smaller neighbours become one: so there are at most some four files
//! for each full segment's worth of bytes, and a large one is not written again for the sake of a small one.

use std::ops::Range;

use wire::Offset;

/// A sealed segment, as a plan needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) bytes: u64,
    pub(crate) max_timestamp_ms: i64,
    pub(crate) tombstones_since_ms: Option<i64>,
}

/// Tombstones above a segment that could not be cleaned are never clean: it may hold older values.
pub(crate) const NEVER_MS: i64 = i64::MAX;

/// Times of becoming clean are told apart as finely as this part of the time for which tombstones stay. Segments of different times do not become one:
/// small new ones, merged in again and again, would keep the tombstones of old ones young for ever.
const TOMBSTONE_CLASSES: i64 = 8;

/// What the caller wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) now_ms: i64,
    /// A record younger than this is not looked at.
    pub(crate) lag_ms: i64,
    /// How long a tombstone stays after it has become clean.
    pub(crate) tombstone_retention_ms: i64,
    /// Everything below may be looked at.
    pub(crate) below: Offset,
    pub(crate) clean_end: u64,
    pub(crate) segment_bytes: u64,
}

impl Terms {
    /// How many of the segments a pass looks at: all before the first that it may not.
    pub(crate) fn scope(&self, parts: &[Part]) -> usize {
        let may_look = |part: &Part| {
            let is_old = self.lag_ms == 0 || part.max_timestamp_ms <= self.now_ms.saturating_sub(self.lag_ms);
            part.end <= self.below.0 && (part.end <= self.clean_end || is_old)
        };
        parts.iter().take_while(|part| may_look(part)).count()
    }

    /// Tombstones below this offset in the segment have been clean for long enough.
    pub(crate) fn expired_below(&self, part: &Part) -> u64 {
        if part.tombstones_since_ms.is_some_and(|since_ms| self.is_expired(since_ms)) { self.clean_end } else { 0 }
    }

    fn is_expired(&self, since_ms: i64) -> bool {
        since_ms != NEVER_MS && since_ms <= self.now_ms.saturating_sub(self.tombstone_retention_ms)
    }

    /// Which segments become one first: a range of `parts`, which are those of the scope that were not dealt with, without those left as they are.
    /// Nothing of a segment that begins at or above `judged_end` goes.
    pub(crate) fn first_group(&self, parts: &[Part], judged_end: u64) -> Option<Range<usize>> {
        let first = parts.first().filter(|part| part.base < judged_end)?;
        let is_small = |part: &Part| part.bytes < self.segment_bytes / 2;
        let (mut bytes, mut class) = (first.bytes, self.class(first));
        let mut end = 1;
        for (before, part) in parts.iter().zip(&parts[1..]) {
            let of_part = self.class(part);
            let joins = before.end == part.base
                && part.base < judged_end
                && is_small(before)
                && is_small(part)
                && bytes + part.bytes <= self.segment_bytes
                && (class.is_none() || of_part.is_none() || class == of_part);
            if !joins {
                break;
            }
            end += 1;
            bytes += part.bytes;
            class = class.or(of_part);
        }
        Some(0..end)
    }

    /// Segments whose tombstones go at about the same time. `None`: it has none, or they go now.
    fn class(&self, part: &Part) -> Option<i64> {
        let since_ms = if part.end > self.clean_end { Some(self.now_ms) } else { part.tombstones_since_ms };
        let since_ms = since_ms.filter(|since_ms| !self.is_expired(*since_ms))?;
        Some(since_ms.div_euclid((self.tombstone_retention_ms / TOMBSTONE_CLASSES).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TERMS: Terms =
        Terms { now_ms: 10_000, lag_ms: 0, tombstone_retention_ms: 800, below: Offset(1000), clean_end: 50, segment_bytes: 100 };

    /// All groups, as a pass takes them one after the other.
    fn groups(terms: Terms, parts: &[Part], judged_end: u64) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        loop {
            let from = groups.last().map_or(0, |group| group.end);
            let Some(group) = terms.first_group(&parts[from..], judged_end) else { return groups };
            groups.push(from + group.start..from + group.end);
        }
    }

    fn part(base: u64, bytes: u64) -> Part {
        Part { base, end: base + 10, bytes, max_timestamp_ms: base as i64, tombstones_since_ms: None }
    }

    #[test]
    fn the_scope_ends_at_what_is_too_new_or_not_visible() {
        let parts: Vec<Part> = (0..10).map(|number| part(number * 10, 10)).collect();
        assert_eq!(TERMS.scope(&parts), 10);
        assert_eq!(Terms { below: Offset(69), ..TERMS }.scope(&parts), 6);
        // Clean ones are looked at whatever their age.
        assert_eq!(Terms { lag_ms: 9_940, ..TERMS }.scope(&parts), 7);
        assert_eq!(Terms { lag_ms: 20_000, ..TERMS }.scope(&parts), 5);
    }

    #[test]
    fn tombstones_go_after_their_time_and_only_where_they_are_clean() {
        let with = |since_ms| Part { tombstones_since_ms: Some(since_ms), ..part(0, 10) };
        assert_eq!(TERMS.expired_below(&with(9_200)), 50);
        assert_eq!(TERMS.expired_below(&with(9_201)), 0);
        assert_eq!(TERMS.expired_below(&with(NEVER_MS)), 0);
        assert_eq!(TERMS.expired_below(&part(0, 10)), 0);
    }

    #[test]
    fn small_neighbours_become_one_and_large_ones_stand_alone() {
        let parts: Vec<Part> = [40, 40, 40, 60, 10, 10].iter().zip(0..).map(|(bytes, at)| part(at * 10, *bytes)).collect();
        let terms = Terms { clean_end: 100, ..TERMS };
        assert_eq!(groups(terms, &parts, 100), [0..2, 2..3, 3..4, 4..6]);
        assert_eq!(groups(terms, &parts, 45), [0..2, 2..3, 3..4, 4..5]);
        // With one between them that is left as it is.
        assert_eq!(groups(terms, &[parts[0], parts[5]], 100), [0..1, 1..2]);
    }

    #[test]
    fn tombstones_of_different_times_do_not_become_one() {
        let with = |base, since_ms| Part { tombstones_since_ms: since_ms, ..part(base, 10) };
        let parts =
            [with(0, None), with(10, Some(9_000)), with(20, Some(9_300)), with(30, Some(9_390)), with(40, None), part(50, 10)];
        // The second has had its time; the third and fourth are of one time; the last becomes clean now.
        assert_eq!(groups(TERMS, &parts, 100), [0..5, 5..6]);
        let parts = [with(0, Some(9_300)), with(10, Some(9_900)), with(20, Some(NEVER_MS))];
        assert_eq!(groups(TERMS, &parts, 100), [0..1, 1..2, 2..3]);
    }

    proptest! {
        #[test]
        fn groups_hold_every_part_in_order_and_leave_few_files(sizes in prop::collection::vec(1u64..120, 0..60)) {
            let parts: Vec<Part> = sizes.iter().zip(0..).map(|(bytes, at)| part(at * 10, *bytes)).collect();
            let groups = groups(Terms { clean_end: 1000, ..TERMS }, &parts, 1000);
            let held: Vec<usize> = groups.iter().cloned().flatten().collect();
            prop_assert_eq!(held, (0..parts.len()).collect::<Vec<_>>());
            let bytes: u64 = sizes.iter().sum();
            prop_assert!(groups.len() as u64 <= 4 * bytes / TERMS.segment_bytes + 2, "{} groups of {} bytes", groups.len(), bytes);
        }
    }
}
