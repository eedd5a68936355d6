//! What a log must hold, from what it acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use commit_log::{EpochStart, PartitionLog, ReadError};
use wire::batch::HEADER_BYTES;
use wire::{BatchHeader, BatchView, Offset, PartitionKey, verify_batch};

use crate::coverage::Coverage;

/// Every partition that was ever asked for.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) partitions: BTreeMap<PartitionKey, Expected>,
    pub(crate) coverage: Coverage,
    /// Shards of the last start.
    pub(crate) shards: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Existence {
    /// Asked for; nothing says yet that it is durable.
    Creating,
    Present,
    Deleting,
    Deleted,
}

/// One partition.
///
/// ```text
///   log_start ≤ … acknowledged_end ≤ appended_end
///                 must be there      may be there, in order, without a hole
/// ```
pub(crate) struct Expected {
    pub(crate) existence: Existence,
    pub(crate) batches: Vec<Batch>,
    pub(crate) acknowledged_end: u64,
    pub(crate) appended_end: u64,
    pub(crate) log_start: u64,
    /// A move of the log start that was asked for.
    pub(crate) log_start_wanted: u64,
    pub(crate) high_watermark: u64,
    /// A truncation that was asked for.
    pub(crate) truncating: Option<u64>,
    /// Truncations so far: a ticket from before one says nothing.
    pub(crate) cuts: u64,
    pub(crate) epoch: u32,
    /// It is compacted: its records have keys, and of each the newest counts.
    pub(crate) compacts: bool,
    /// Its deletion was asked for, and a crash undid that; its files may be gone.
    pub(crate) was_deleted: bool,
}

pub(crate) struct Batch {
    pub(crate) base: u64,
    pub(crate) next: u64,
    pub(crate) epoch: u32,
    pub(crate) bytes: Rc<[u8]>,
}

impl Batch {
    fn is(&self, header: &BatchHeader, bytes: &[u8]) -> bool {
        let place = (header.base_offset.0, header.next_offset().0, header.leader_epoch.0);
        place == (self.base, self.next, self.epoch) && bytes[HEADER_BYTES..] == self.bytes[HEADER_BYTES..]
    }
}

/// How strictly a recovered log is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Only power was lost: every acknowledged batch is there and nothing is called lossy.
    Strict,
    /// Stored bytes were changed, or a write was lost by the disk: what is missing must be reported.
    Damaged {
        /// The damage may look like a torn tail.
        ambiguous: bool,
    },
}

impl Expected {
    pub(crate) fn new(existence: Existence) -> Self {
        Self {
            existence,
            batches: Vec::new(),
            acknowledged_end: 0,
            appended_end: 0,
            log_start: 0,
            log_start_wanted: 0,
            high_watermark: 0,
            truncating: None,
            cuts: 0,
            epoch: 1,
            compacts: false,
            was_deleted: false,
        }
    }

    pub(crate) fn appended(&mut self, batch: Batch) {
        assert_eq!(batch.base, self.appended_end, "offsets are given out without a hole");
        assert!(self.truncating.is_none(), "a batch was accepted during a truncation");
        self.appended_end = batch.next;
        self.batches.push(batch);
    }

    pub(crate) fn acknowledged(&mut self, end: u64) {
        assert!(end <= self.appended_end, "acknowledged to {end}, appended to {}", self.appended_end);
        self.acknowledged_end = self.acknowledged_end.max(end);
        if self.existence == Existence::Creating {
            self.existence = Existence::Present;
        }
    }

    pub(crate) fn truncated(&mut self, to: u64) {
        self.truncating = None;
        self.cuts += 1;
        self.cut(to);
    }

    fn cut(&mut self, to: u64) {
        self.batches.retain(|batch| batch.next <= to);
        self.appended_end = self.appended_end.min(to);
        self.acknowledged_end = self.acknowledged_end.min(to);
    }

    fn allows_end(&self, end: u64) -> bool {
        let truncated = self.truncating.is_some_and(|to| end == to.min(self.appended_end));
        let boundary = end == self.log_start || self.batches.iter().any(|batch| batch.next == end);
        truncated || (boundary && (self.acknowledged_end..=self.appended_end).contains(&end))
    }

    /// The epochs are those that the batches from `start` to `end` bear, but for those that have no batch (yet, or any more).
    fn check_epochs(&self, key: PartitionKey, start: u64, end: u64, found: &[EpochStart]) {
        let mut due: Vec<(u32, u64)> = Vec::new();
        for batch in self.batches.iter().filter(|batch| batch.next > start && batch.next <= end) {
            if due.last().is_none_or(|(epoch, _)| *epoch != batch.epoch) {
                due.push((batch.epoch, batch.base.max(start)));
            }
        }
        let next = found.iter().skip(1).map(|entry| entry.start.0).chain([u64::MAX]);
        let held = found.iter().zip(next).filter(|(entry, next)| start.max(entry.start.0) < end.min(*next));
        let found: Vec<(u32, u64)> = held.map(|(entry, _)| (entry.epoch.0, entry.start.0.max(start))).collect();
        assert_eq!(found, due, "{key:?}: epochs of {start}..{end}");
    }

    /// Checks that `bytes` are whole batches of this partition, the first of which holds `from`. Returns where they end. `revived`: batches that
    /// were cut may be back, because the record of the cut was damaged and that was reported.
    pub(crate) fn check_bytes(&self, key: PartitionKey, from: u64, bytes: &[u8], revived: bool) -> u64 {
        if self.compacts {
            return self.check_compacted(key, from, bytes, revived);
        }
        let mut at = 0;
        let mut next = from;
        while at < bytes.len() {
            let header = BatchHeader::decode(&bytes[at..]).unwrap_or_else(|error| panic!("{key:?}: no batch at {next}: {error}"));
            let batch = &bytes[at..at + header.total_length()];
            let mut aligned = wire::AlignedVec::new();
            aligned.extend_from_slice(batch);
            verify_batch(&aligned).unwrap_or_else(|error| panic!("{key:?}: a bad batch at {next} was returned: {error}"));
            let place = self.batches.partition_point(|batch| batch.next <= next);
            let known = self.batches.get(place).is_some_and(|known| known.is(&header, batch));
            if revived && !known {
                assert!(header.base_offset.0 <= next && next < header.next_offset().0, "{key:?}: {next} is read");
                next = header.next_offset().0;
                at += header.total_length();
                continue;
            }
            let expected = self.batches.get(place).unwrap_or_else(|| panic!("{key:?}: offset {next} was never appended"));
            if at == 0 {
                assert!(expected.base <= next, "{key:?}: {next} is read");
            } else {
                assert_eq!(header.base_offset, Offset(next), "{key:?}: batches follow each other");
            }
            assert_eq!(header.base_offset, Offset(expected.base), "{key:?}: the batch with {next}");
            assert_eq!(header.next_offset(), Offset(expected.next), "{key:?}: the batch with {next}");
            assert_eq!(header.leader_epoch.0, expected.epoch, "{key:?}: epoch of the batch with {next}");
            assert_eq!(batch[HEADER_BYTES..], expected.bytes[HEADER_BYTES..], "{key:?}: payload of the batch with {next}");
            next = expected.next;
            at += header.total_length();
        }
        next
    }
}

/// A record of a compacted partition: offset, timestamp, key, value.
type Row = (u64, i64, Vec<u8>, Option<Vec<u8>>);

/// Its records in whole batches that were checked before.
fn rows(bytes: &[u8]) -> Vec<(BatchHeader, Vec<Row>)> {
    let mut aligned = wire::AlignedVec::new();
    aligned.extend_from_slice(bytes);
    let mut found = Vec::new();
    let mut at = 0;
    while at < aligned.len() {
        let view = BatchView::new(&aligned[at..]).unwrap();
        let row = |record: wire::RecordView<'_>| {
            (record.offset.0, record.timestamp_ms.0, record.key.unwrap().to_vec(), record.value.map(<[u8]>::to_vec))
        };
        found.push((*view.header(), view.records().map(row).collect()));
        at += view.header().total_length();
    }
    found
}

impl Batch {
    /// As it was appended, with its offsets.
    fn rows(&self) -> Vec<Row> {
        let (_, mut rows) = rows(&self.bytes).pop().unwrap();
        rows.iter_mut().for_each(|row| row.0 += self.base);
        rows
    }
}

impl Expected {
    /// The same as [`Expected::check_bytes`], where batches may have become smaller or empty, and neighbours one.
    fn check_compacted(&self, key: PartitionKey, from: u64, bytes: &[u8], revived: bool) -> u64 {
        let mut next = from;
        for (at, (header, rows)) in rows(bytes).into_iter().enumerate() {
            let (base, end) = (header.base_offset.0, header.next_offset().0);
            assert!(if at == 0 { base <= next } else { base == next }, "{key:?}: {base}..{end} is read at {next}");
            next = end;
            for row in rows {
                let place = self.batches.partition_point(|batch| batch.next <= row.0);
                let expected = self.batches.get(place).filter(|batch| batch.base <= row.0);
                let is_known = expected.is_some_and(|batch| batch.epoch == header.leader_epoch.0 && batch.rows().contains(&row));
                assert!(is_known || revived, "{key:?}: the record at {} was never appended", row.0);
            }
        }
        next
    }

    /// Of `start..end` these offsets have records. What has none was superseded, or its key was deleted. Returns how many tombstones are gone.
    fn check_newest(&self, key: PartitionKey, start: u64, end: u64, found: &BTreeSet<u64>) -> u64 {
        let mut newest: BTreeMap<Vec<u8>, (u64, bool)> = BTreeMap::new();
        let rows: Vec<Row> = self.batches.iter().filter(|batch| batch.next <= end).flat_map(Batch::rows).collect();
        for row in &rows {
            newest.insert(row.2.clone(), (row.0, row.3.is_none()));
        }
        let mut gone = 0;
        for (offset, is_tombstone) in newest.values().filter(|(offset, _)| *offset >= start) {
            assert!(*is_tombstone || found.contains(offset), "{key:?}: the newest record of a key, at {offset}, is gone");
            gone += u64::from(!found.contains(offset));
        }
        for row in rows.iter().filter(|row| found.contains(&row.0)) {
            let (newest, _) = newest[&row.2];
            assert!(newest < start || found.contains(&newest), "{key:?}: the key at {} is back: its tombstone is gone", row.0);
        }
        gone
    }
}

impl Oracle {
    /// A start got as far as open logs.
    pub(crate) fn opened(&mut self, shards: u16) {
        let last = self.shards.replace(shards);
        self.coverage.shard_counts_changed += u64::from(last.is_some_and(|last| last != shards));
    }

    pub(crate) fn expect(&mut self, key: PartitionKey) -> &mut Expected {
        self.partitions.get_mut(&key).unwrap_or_else(|| panic!("{key:?} was never created"))
    }

    /// Before a log is checked: which partitions must, may and must not be there. `loud`: recovery reported losses.
    pub(crate) fn check_names(&self, found: &[PartitionKey], judgement: Judgement, loud: bool) {
        let excused = match judgement {
            Judgement::Strict => false,
            Judgement::Damaged { ambiguous } => loud || ambiguous,
        };
        for key in found {
            let expected = self.partitions.get(key).unwrap_or_else(|| panic!("{key:?} came from nowhere"));
            assert!(expected.existence != Existence::Deleted || excused, "{key:?} came back after it was deleted");
        }
        for (key, expected) in &self.partitions {
            let missing = expected.existence == Existence::Present && !found.contains(key);
            assert!(!missing || excused, "{key:?} is gone");
        }
    }

    /// Takes over what recovery decided: from here on that is what was acknowledged.
    pub(crate) fn adopt(&mut self, found: &[PartitionKey]) {
        self.partitions.retain(|key, _| found.contains(key));
        for expected in self.partitions.values_mut() {
            expected.was_deleted |= expected.existence > Existence::Present;
            expected.existence = Existence::Present;
        }
    }
}

/// Reads all of one recovered partition and compares.
pub(crate) async fn check_partition(
    oracle: &std::cell::RefCell<Oracle>,
    log: &PartitionLog,
    judgement: Judgement,
    reported: bool,
) {
    let key = log.key();
    let marks = log.watermarks();
    let (start, end) = (marks.log_start.0, marks.durable_end.0);
    let lossy = log.is_lossy();
    assert_eq!(marks.appended_end, marks.durable_end, "{key:?}: what recovery kept is durable");
    let damaged = judgement != Judgement::Strict;
    let mut unreadable = 0;
    {
        let oracle = oracle.borrow();
        let expected = &oracle.partitions[&key];
        let story = format!(
            "{key:?}: {start}..{end} hw {} found; acknowledged to {}, appended to {}, log start {}..{}, truncating {:?}, {:?}",
            marks.high_watermark,
            expected.acknowledged_end,
            expected.appended_end,
            expected.log_start,
            expected.log_start_wanted,
            expected.truncating,
            expected.existence,
        );
        match judgement {
            Judgement::Strict => {
                assert!(!lossy && !reported, "called lossy without damage. {story}");
                assert!(expected.allows_end(end), "the end is wrong. {story}");
                assert!((expected.log_start..=expected.log_start_wanted).contains(&start), "the log start is wrong. {story}");
                assert!(
                    marks.high_watermark.0 <= expected.high_watermark.max(expected.log_start_wanted),
                    "the high watermark ran ahead. {story}"
                );
            }
            Judgement::Damaged { ambiguous } => {
                let silent = !expected.allows_end(end) && !lossy;
                assert!(!silent || ambiguous, "silently cut or grown. {story}");
                // What looks like a torn tail may have held a truncation: what it cut is there again.
                let revived = lossy || ambiguous;
                assert!(end <= expected.appended_end || revived, "an end that was never there. {story}");
            }
        }
    }
    let appended_end = oracle.borrow().partitions[&key].appended_end;
    let end = if !lossy && judgement == (Judgement::Damaged { ambiguous: true }) && end > appended_end {
        // As its leader would: cut again what came back.
        log.truncate(Offset(appended_end)).await.unwrap_or_else(|failed| panic!("{key:?}: {failed}"));
        appended_end
    } else {
        end
    };
    let mut from = start;
    let mut found = BTreeSet::new();
    while from < end {
        let read = log.read(Offset(from), 64 << 10, Offset(end)).await;
        let next_batch = |offset: u64| {
            let oracle = oracle.borrow();
            let batches = &oracle.partitions[&key].batches;
            batches.iter().map(|batch| batch.next).find(|next| *next > offset).unwrap_or(end)
        };
        match read {
            Ok(slices) => {
                let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                assert!(!bytes.is_empty(), "{key:?}: nothing at {from} below {end}");
                if oracle.borrow().partitions[&key].compacts {
                    found.extend(rows(&bytes).into_iter().flat_map(|(_, rows)| rows).map(|row| row.0));
                }
                from = oracle.borrow().partitions[&key].check_bytes(key, from, &bytes, damaged && lossy);
            }
            Err(ReadError::Lost { end: lost_end, .. }) if damaged => {
                assert!(lossy, "{key:?}: lost offsets in a partition that is not lossy");
                assert!(lost_end.0 > from, "{key:?}: a lost range goes on");
                unreadable += 1;
                from = lost_end.0;
            }
            Err(ReadError::Corrupt { .. }) if damaged => {
                unreadable += 1;
                from = next_batch(from);
            }
            Err(ReadError::Io(error)) if damaged && error.is_not_found() && oracle.borrow().partitions[&key].was_deleted => {
                unreadable += 1;
                from = next_batch(from);
            }
            Err(error) => panic!("{key:?}: cannot read {from} of {start}..{end}: {error}"),
        }
    }
    let mut oracle = oracle.borrow_mut();
    let is_whole = unreadable == 0 && !lossy && oracle.expect(key).allows_end(end);
    if is_whole && oracle.expect(key).compacts {
        let gone = oracle.expect(key).check_newest(key, start, end, &found);
        oracle.coverage.tombstones_gone += gone;
    }
    if judgement == Judgement::Strict {
        oracle.expect(key).check_epochs(key, start, end, &log.epochs());
    }
    let checked = {
        let expected = oracle.expect(key);
        let kept = expected.batches.iter().filter(|batch| batch.next <= end).count();
        let acknowledged = expected.batches.iter().filter(|batch| batch.next <= expected.acknowledged_end).count();
        let appended = expected.batches.len();
        expected.cut(end);
        expected.appended_end = end;
        expected.acknowledged_end = end;
        expected.log_start = start;
        expected.log_start_wanted = start;
        expected.high_watermark = marks.high_watermark.0;
        expected.truncating = None;
        expected.cuts += 1;
        (kept, acknowledged, appended)
    };
    let (kept, acknowledged, appended) = checked;
    oracle.coverage.acknowledged_batches_checked += acknowledged.min(kept) as u64;
    oracle.coverage.unacknowledged_batches_kept += kept.saturating_sub(acknowledged) as u64;
    oracle.coverage.unacknowledged_batches_cut += appended.saturating_sub(kept.max(acknowledged)) as u64;
    oracle.coverage.unreadable_batches_reported += unreadable;
    oracle.coverage.lossy_verdicts += u64::from(lossy);
    oracle.coverage.ambiguous_tails += u64::from(damaged && !lossy && kept < acknowledged);
}
