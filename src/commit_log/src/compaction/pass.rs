//! One pass over a partition: learn the keys of what is not clean, then clean everything below.

use std::rc::Rc;
use std::sync::Arc;

use shards::{clock, executor, random};
use wire::batch::BatchHeader;
use wire::{AlignedVec, Offset};

use super::judge::Judge;
use super::output::{Made, Output, OutputError};
use super::pace::Pace;
use super::plan::{NEVER_MS, Part, Terms};
use super::rewrite::Rewriter;
use super::switch::{self, Switched};
use super::verdict::{self, Becomes, Verdict};
use super::walk::{Walk, WalkError};
use super::{CompactError, Compacted, CompactionTerms};
use crate::failure::LogFailed;
use crate::file_cache::SegmentKey;
use crate::partition::{Partition, SealedSegment};
use crate::partition_state::OffsetRange;
use crate::shard::Shard;

/// A batch with more than this is opened, and made smaller, on the blocking thread: to decompress and compress a megabyte takes milliseconds, in which the
/// shard would serve nobody.
const INLINE_BYTES_MAX: u32 = 64 << 10;

/// One pass.
struct Pass<'a> {
    shard: &'a Rc<Shard>,
    partition: &'a Rc<Partition>,
    pace: &'a Pace<'a>,
    terms: Terms,
    judge: Arc<Judge>,
    /// Nothing at or above is looked at.
    scope_end: u64,
    /// Segments that are left as they are.
    left: Vec<SegmentKey>,
    /// The first offset of a segment or batch that could not be cleaned: tombstones above it never become clean.
    uncertain_from: Option<u64>,
    done: Compacted,
}

/// Why a group was not cleaned.
enum Failed {
    /// This segment does not hold.
    Damaged(SegmentKey, WalkError),
    /// One of the segments is no longer there.
    Changed,
    Ended(CompactError),
}

impl From<CompactError> for Failed {
    fn from(error: CompactError) -> Self {
        Self::Ended(error)
    }
}

impl From<LogFailed> for Failed {
    fn from(failed: LogFailed) -> Self {
        Self::Ended(failed.into())
    }
}

pub(crate) async fn run(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    wanted: CompactionTerms,
) -> Result<Compacted, CompactError> {
    if shard.closing.get() || shard.failure.get().is_some() || partition.inner.borrow().deleted {
        return Err(stopped(shard, partition));
    }
    let (terms, sealed) = {
        let inner = partition.inner.borrow();
        (super::terms(&inner, wanted), inner.sealed.clone())
    };
    let parts: Vec<Part> = sealed.iter().map(Part::of).collect();
    let scope = &sealed[..terms.scope(&parts)];
    let Some(last) = scope.last() else { return Ok(Compacted::default()) };
    let pace = Pace::new(shard, partition);
    let secret = [random::u64(), random::u64()];
    let judge = Judge::new(terms.clean_end, secret, shard.options.compaction_table_bytes_max);
    let mut pass = Pass {
        shard,
        partition,
        pace: &pace,
        terms,
        judge: Arc::new(judge),
        scope_end: last.end,
        left: Vec::new(),
        uncertain_from: None,
        done: Compacted::default(),
    };
    pass.learn(scope).await?;
    pass.clean().await?;
    shard.counters.add(|stats| stats.compaction_passes += 1);
    Ok(pass.done)
}

impl Part {
    pub(super) fn of(segment: &SealedSegment) -> Self {
        Self {
            base: segment.key.base,
            end: segment.end,
            bytes: segment.bytes,
            max_timestamp_ms: segment.max_timestamp_ms,
            tombstones_since_ms: segment.tombstones_since_ms,
        }
    }
}

impl Pass<'_> {
    /// Reads the segments that are not clean, until all their keys are known, or as many as there is room for.
    async fn learn(&mut self, scope: &[SealedSegment]) -> Result<(), CompactError> {
        let clean_end = self.terms.clean_end;
        for segment in scope.iter().filter(|segment| segment.end > clean_end) {
            match self.learn_segment(segment).await {
                Ok(()) => {}
                Err(WalkError::Stopped) => return Err(stopped(self.shard, self.partition)),
                // The log start has passed it, or a cut: what was learnt of it is learnt.
                Err(WalkError::Gone) if !self.is_kept(segment.key) => {}
                Err(error) => self.leave(segment.key, &error),
            }
            let judge = Arc::get_mut(&mut self.judge).expect("nobody else has it now");
            judge.learnt_to(segment.end.max(judge.judged_end()));
            if judge.is_full() {
                break;
            }
        }
        self.done.keys = self.judge.keys() as u64;
        self.done.is_complete = !self.judge.is_full();
        Ok(())
    }

    async fn learn_segment(&mut self, segment: &SealedSegment) -> Result<(), WalkError> {
        let mut walk = Walk::begin(self.pace, segment).await?;
        while let Some((header, bytes)) = walk.next().await? {
            if header.next_offset().0 <= self.terms.clean_end {
                continue;
            }
            if header.uncompressed_length_bytes <= INLINE_BYTES_MAX {
                let judge = Arc::get_mut(&mut self.judge).expect("nobody else has it now");
                if !verdict::learn(judge, &header, &bytes) {
                    break;
                }
            } else {
                let judge = std::mem::replace(&mut self.judge, Arc::new(Judge::new(0, [0; 2], 0)));
                let (judge, has_room) = apart(&header, &bytes, judge, |mut judge, header, bytes| {
                    let inner = Arc::get_mut(&mut judge).expect("nobody else has it now");
                    let has_room = verdict::learn(inner, header, bytes);
                    (judge, has_room)
                })
                .await;
                self.judge = judge;
                if !has_room {
                    break;
                }
            }
            executor::yield_if_needed().await;
        }
        walk.finish().await
    }

    /// Cleans everything below the judged end, segment by segment from the first on, so that earlier values go before the tombstone that
    /// took them away becomes clean.
    async fn clean(&mut self) -> Result<(), CompactError> {
        let judged_end = self.judge.judged_end();
        let mut from = 0;
        while let Some(group) = self.next_group(from, judged_end) {
            let end = group.last().expect("a group has segments").end;
            match self.clean_group(&group).await {
                Ok(()) => from = end,
                Err(Failed::Changed) => {}
                Err(Failed::Damaged(key, error)) => self.leave(key, &error),
                Err(Failed::Ended(error)) => return Err(error),
            }
        }
        if self.partition.inner.borrow().deleted {
            return Err(CompactError::Deleted);
        }
        if judged_end > self.terms.clean_end {
            switch::cleaned(self.shard, self.partition, Offset(judged_end)).await?;
        }
        Ok(())
    }

    /// The segments from offset `from` on that become one next, as they stand now.
    fn next_group(&self, from: u64, judged_end: u64) -> Option<Vec<SealedSegment>> {
        let inner = self.partition.inner.borrow();
        if inner.deleted {
            return None;
        }
        let in_scope = |segment: &&SealedSegment| segment.key.base >= from && segment.end <= self.scope_end;
        let segments: Vec<&SealedSegment> =
            inner.sealed.iter().filter(in_scope).filter(|segment| !self.left.contains(&segment.key)).collect();
        let parts: Vec<Part> = segments.iter().map(|segment| Part::of(segment)).collect();
        let group = self.terms.first_group(&parts, judged_end)?;
        Some(segments[group].iter().map(|segment| (*segment).clone()).collect())
    }

    async fn clean_group(&mut self, group: &[SealedSegment]) -> Result<(), Failed> {
        if let [only] = group
            && (self.is_clean_already(only) || self.is_clean(only).await?)
        {
            return Ok(());
        }
        let bytes: u64 = group.iter().map(|segment| segment.bytes).sum();
        self.check_room(bytes)?;
        let (first, last) = (&group[0], &group[group.len() - 1]);
        let generation = group.iter().map(|segment| segment.key.generation).max().unwrap_or(0) + 1;
        let key = SegmentKey { generation, ..first.key };
        let mut output = Output::create(self.shard, self.pace, key).await.map_err(|error| self.output_failed(error))?;
        let mut seen = Seen::new(self.uncertain_from);
        let made = match self.write(group, &mut output, &mut seen).await {
            Ok(made) => made,
            Err(failed) => {
                output.abandon().await;
                return Err(failed);
            }
        };
        drop(output);
        assert_eq!(made.end, Offset(last.end), "it stands for all of them");
        if let Err(error) = self.verify(&made).await {
            let key = made.key;
            made.abandon().await;
            return Err(match error {
                WalkError::Stopped => Failed::Ended(stopped(self.shard, self.partition)),
                error => Failed::Ended(CompactError::NotReadBack(format!("{key:?}: {error}"))),
            });
        }
        let since_ms = seen.since_ms(clock::wall_ms());
        match switch::switch(self.shard, self.partition, group, made, since_ms).await? {
            Switched::Done => {}
            Switched::Changed => return Err(Failed::Changed),
        }
        self.uncertain_from = seen.uncertain_from;
        self.count(bytes, seen.removed);
        Ok(())
    }

    /// Whether nothing can go out of the segment: no key is news, and no tombstone has had its time.
    fn is_clean_already(&self, segment: &SealedSegment) -> bool {
        let is_clean = segment.end <= self.terms.clean_end;
        is_clean && self.judge.keys() == 0 && self.terms.expired_below(&Part::of(segment)) == 0
    }

    /// Whether nothing goes out of the segment. What is known of its tombstones is noted.
    async fn is_clean(&mut self, segment: &SealedSegment) -> Result<bool, Failed> {
        let mut seen = Seen::new(self.uncertain_from);
        let mut is_changed = false;
        let walked = async {
            let mut walk = Walk::begin(self.pace, segment).await?;
            while let Some((header, bytes)) = walk.next().await? {
                let verdict = self.judge_batch(segment, &header, &bytes).await;
                is_changed = verdict.removed > 0;
                if is_changed {
                    break;
                }
                seen.add(&self.terms, segment, &header, &verdict);
                executor::yield_if_needed().await;
            }
            walk.finish().await
        };
        walked.await.map_err(|error| self.walk_failed(segment, error))?;
        if is_changed {
            return Ok(false);
        }
        let since_ms = seen.since_ms(clock::wall_ms());
        if since_ms != segment.tombstones_since_ms {
            match switch::note(self.shard, self.partition, segment, since_ms).await? {
                Switched::Done => {}
                Switched::Changed => return Err(Failed::Changed),
            }
        }
        self.uncertain_from = seen.uncertain_from;
        self.count(segment.bytes, 0);
        Ok(true)
    }

    async fn write(&self, group: &[SealedSegment], output: &mut Output<'_>, seen: &mut Seen) -> Result<Made, Failed> {
        let mut rewriter = Rewriter::new(Offset(group[0].key.base));
        for segment in group {
            let failed = |error| self.walk_failed(segment, error);
            let mut walk = Walk::begin(self.pace, segment).await.map_err(failed)?;
            while let Some((header, bytes)) = walk.next().await.map_err(failed)? {
                let verdict = self.judge_batch(segment, &header, &bytes).await;
                seen.add(&self.terms, segment, &header, &verdict);
                let goes = matches!(verdict.becomes, Becomes::Nothing);
                let before = if goes { rewriter.goes(&header) } else { rewriter.stays(&header) };
                let result = async {
                    if let Some(empty) = before {
                        output.push(&empty).await?;
                    }
                    match &verdict.becomes {
                        Becomes::Itself => output.push(&bytes).await,
                        Becomes::Smaller(smaller) => output.push(smaller).await,
                        Becomes::Nothing => Ok(()),
                    }
                };
                result.await.map_err(|error| self.output_failed(error))?;
                executor::yield_if_needed().await;
            }
            walk.finish().await.map_err(failed)?;
        }
        if let Some(empty) = rewriter.close() {
            output.push(&empty).await.map_err(|error| self.output_failed(error))?;
        }
        output.finish().await.map_err(|error| self.output_failed(error))
    }

    /// Reads what was made: it takes the place of what there is no other copy of.
    async fn verify(&self, made: &Made) -> Result<(), WalkError> {
        let segment = switch::sealed(made, 0, None);
        let mut walk = Walk::begin(self.pace, &segment).await?;
        while walk.next().await?.is_some() {
            executor::yield_if_needed().await;
        }
        walk.finish().await
    }

    async fn judge_batch(&self, segment: &SealedSegment, header: &BatchHeader, bytes: &[u8]) -> Verdict {
        let expired_below = self.terms.expired_below(&Part::of(segment));
        if header.uncompressed_length_bytes <= INLINE_BYTES_MAX {
            return verdict::judge_batch(&self.judge, header, bytes, expired_below);
        }
        let judge = self.judge.clone();
        apart(header, bytes, judge, move |judge, header, bytes| verdict::judge_batch(&judge, header, bytes, expired_below)).await
    }

    fn is_kept(&self, key: SegmentKey) -> bool {
        self.partition.inner.borrow().sealed.iter().any(|segment| segment.key == key)
    }

    /// Leaves a segment as it is, for this pass, and says so.
    fn leave(&mut self, key: SegmentKey, error: &WalkError) {
        tracing::error!(segment = ?key, %error, "a segment is damaged: compaction leaves it as it is");
        self.left.push(key);
        self.uncertain_from = Some(self.uncertain_from.unwrap_or(u64::MAX).min(key.base));
        self.shard.counters.add(|stats| stats.compaction_damaged_segments += 1);
        let mut inner = self.partition.inner.borrow_mut();
        if let Some(segment) = inner.sealed.iter().find(|segment| segment.key == key) {
            self.done.damaged.push(OffsetRange { start: Offset(key.base), end: Offset(segment.end) });
            inner.lossy = true;
        }
    }

    fn walk_failed(&self, segment: &SealedSegment, error: WalkError) -> Failed {
        match error {
            WalkError::Stopped => Failed::Ended(stopped(self.shard, self.partition)),
            // As it was when the group was made, or removed since.
            WalkError::Gone if !self.is_kept(segment.key) => Failed::Changed,
            error => Failed::Damaged(segment.key, error),
        }
    }

    fn output_failed(&self, error: OutputError) -> Failed {
        match error {
            OutputError::Stopped => Failed::Ended(stopped(self.shard, self.partition)),
            OutputError::Full(error) => Failed::Ended(CompactError::NoRoom(error.to_string())),
            OutputError::Disk(error) => Failed::Ended(self.shard.fail(&error).into()),
        }
    }

    /// What is made stands beside what it is made of for a while, and appends come first.
    fn check_room(&self, bytes: u64) -> Result<(), CompactError> {
        let (free, kept) = (self.shard.free_bytes.get(), self.shard.options.free_bytes_resume);
        if free.saturating_sub(kept) >= bytes {
            return Ok(());
        }
        Err(CompactError::NoRoom(format!("{bytes} bytes are needed, {free} are free, of which {kept} are for appends")))
    }

    fn count(&mut self, read_bytes: u64, removed: u64) {
        self.done.bytes += read_bytes;
        self.done.removed_records += removed;
        self.shard.counters.add(|stats| {
            stats.compacted_bytes += read_bytes;
            stats.compaction_removed_records += removed;
        });
    }
}

/// Why a pass stops early.
fn stopped(shard: &Shard, partition: &Partition) -> CompactError {
    match shard.failure.get() {
        Some(failed) => CompactError::Failed(failed),
        None if partition.inner.borrow().deleted => CompactError::Deleted,
        None => CompactError::Closing,
    }
}

/// Opens a large batch on the blocking thread.
async fn apart<J: Send + 'static, T: Send + 'static>(
    header: &BatchHeader,
    bytes: &[u8],
    judge: J,
    work: impl FnOnce(J, &BatchHeader, &[u8]) -> T + Send + 'static,
) -> T {
    let mut copy = AlignedVec::with_capacity(bytes.len());
    copy.extend_from_slice(bytes);
    let header = *header;
    executor::blocking(move || work(judge, &header, &copy)).await.expect("a checked batch is opened without a panic")
}

/// What was seen of a group's records.
#[derive(Debug)]
struct Seen {
    removed: u64,
    /// Of tombstones that were clean before.
    since_ms: Option<i64>,
    /// There are tombstones that become clean now.
    has_new: bool,
    /// There are some that never do.
    has_uncertain: bool,
    uncertain_from: Option<u64>,
}

impl Seen {
    fn new(uncertain_from: Option<u64>) -> Self {
        Self { removed: 0, since_ms: None, has_new: false, has_uncertain: false, uncertain_from }
    }

    fn add(&mut self, terms: &Terms, segment: &SealedSegment, header: &BatchHeader, verdict: &Verdict) {
        self.removed += verdict.removed;
        if verdict.is_closed {
            self.uncertain_from = Some(self.uncertain_from.unwrap_or(u64::MAX).min(header.base_offset.0));
        }
        let Some(tombstone) = verdict.tombstone else { return };
        match segment.tombstones_since_ms {
            Some(since_ms) if tombstone < terms.clean_end => self.since_ms = self.since_ms.max(Some(since_ms)),
            _ if self.uncertain_from.is_some_and(|from| from <= tombstone) => self.has_uncertain = true,
            _ => self.has_new = true,
        }
    }

    /// Since when the tombstones of the segment made of the group are clean.
    fn since_ms(&self, now_ms: i64) -> Option<i64> {
        let new = self.has_new.then_some(now_ms);
        let uncertain = self.has_uncertain.then_some(NEVER_MS);
        self.since_ms.max(new).max(uncertain)
    }
}
