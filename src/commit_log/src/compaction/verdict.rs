//! What becomes of one batch. Pure.

use wire::batch::{BatchHeader, BatchView, PayloadKind};
use wire::{AlignedVec, RecordView};

use super::judge::{Fate, Judge, Looked};

/// What becomes of a batch.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) becomes: Becomes,
    /// Records that go.
    pub(crate) removed: u64,
    /// The last tombstone that stays.
    pub(crate) tombstone: Option<u64>,
    /// It holds records that could not be judged: later tombstones may be of keys that have values here.
    pub(crate) is_closed: bool,
}

/// What a batch becomes.
#[derive(Debug)]
pub(crate) enum Becomes {
    Itself,
    /// These bytes, with the same offsets.
    Smaller(AlignedVec),
    Nothing,
}

impl Verdict {
    fn itself(is_closed: bool) -> Self {
        Self { becomes: Becomes::Itself, removed: 0, tombstone: None, is_closed }
    }
}

fn looked<'a>(record: &RecordView<'a>) -> Looked<'a> {
    let is_tombstone = record.key.is_some() && record.value.is_none();
    Looked { offset: record.offset.0, key: record.key, is_tombstone }
}

/// Tells the judge of the records of a checked batch that are not below the clean end. False when there is no more room for keys. A batch that cannot
/// be opened (what producers sent is only looked into for compacted topics, and a topic may become one) has nothing to tell.
pub(crate) fn learn(judge: &mut Judge, header: &BatchHeader, bytes: &[u8]) -> bool {
    if header.payload_kind != PayloadKind::Records {
        return true;
    }
    let Ok(view) = BatchView::new(bytes) else { return true };
    let begin = judge.judged_end();
    view.records().filter(|record| record.offset.0 >= begin).all(|record| judge.learn(looked(&record)))
}

/// Judges the records of a checked batch.
pub(crate) fn judge_batch(judge: &Judge, header: &BatchHeader, bytes: &[u8], expired_below: u64) -> Verdict {
    match header.payload_kind {
        PayloadKind::Records => {}
        PayloadKind::KafkaV2 => return Verdict::itself(true),
        PayloadKind::Control | PayloadKind::Padding => return Verdict::itself(false),
    }
    let Ok(view) = BatchView::new(bytes) else { return Verdict::itself(true) };
    let fates: Vec<Fate> = view.records().map(|record| judge.fate(looked(&record), expired_below)).collect();
    let removed = fates.iter().filter(|fate| **fate == Fate::Goes).count();
    let with_fates = || view.records().zip(&fates);
    let tombstone = with_fates().filter(|(_, fate)| **fate == Fate::StaysAsTombstone).last().map(|(record, _)| record.offset.0);
    let becomes = if removed == fates.len() {
        Becomes::Nothing
    } else if removed == 0 {
        Becomes::Itself
    } else {
        let mut next = fates.iter();
        match view.retain(|_| next.next().is_some_and(|fate| *fate != Fate::Goes)) {
            Some(smaller) => Becomes::Smaller(smaller),
            // It would be longer than a batch may be.
            None => return Verdict { tombstone, ..Verdict::itself(true) },
        }
    };
    Verdict { becomes, removed: removed as u64, tombstone, is_closed: false }
}
