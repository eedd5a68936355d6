//! Replay against a model: whatever was appended, cut and flushed in whatever way comes out, and a second replay comes to the same log.
//!
//! A history draws appends (through the log or straight into a segment), cuts, flushes, checkpoints, log starts and compactions; a crash may
//! come after any of them, and another in the middle of the recovery.

mod case;
mod model;
mod recovery;

use proptest::prelude::*;
use wire::Offset;

use model::{Batch, Live, steps};
use recovery::{content, recover, recover_without};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn everything_acknowledged_comes_back_and_again(steps in steps(), writes_max in 0usize..40) {
        let mut live = Live::new();
        for step in &steps {
            live.step(step);
            // A crash here, and another in the middle of the recovery.
            let mut files = live.files.clone();
            recover(&live, &mut files, writes_max);
            let state = recover(&live, &mut files, usize::MAX).unwrap();
            let expected: Vec<Batch> = live.batches.clone();
            prop_assert_eq!(content(&state, &files), expected, "after {:?}", step);
            prop_assert!(!state.lossy, "{:?}", state);
            prop_assert_eq!(state.end(), Offset(live.end));
            let mut again = files.clone();
            let second = recover(&live, &mut again, usize::MAX).unwrap();
            prop_assert_eq!(content(&second, &again), content(&state, &files));
            prop_assert_eq!(second.end(), state.end());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the lost blocks held, the partition is marked, and everything that was acknowledged and is gone lies in a lost range or behind the
    /// end.
    #[test]
    fn lost_records_mark_the_partition(steps in steps(), at in any::<prop::sample::Index>(), count in 1usize..6) {
        let mut live = Live::new();
        steps.iter().for_each(|step| live.step(step));
        if live.log.is_empty() {
            return Ok(());
        }
        let start = at.index(live.log.len());
        let mut files = live.files.clone();
        let Some(state) = recover_without(&live, &mut files, usize::MAX, start..start + count) else { return Ok(()) };
        prop_assert!(state.lossy, "{:?}", state);
        let is_held = |offset: u64| state.segments.iter().any(|segment| segment.base.0 <= offset && offset < segment.end.0);
        let is_lost = |offset: u64| state.lost.iter().any(|range| range.start.0 <= offset && offset < range.end.0);
        for offset in state.log_start.0..state.end().0 {
            prop_assert!(is_held(offset) || is_lost(offset), "{} is nowhere: {:?}", offset, state);
        }
    }
}
