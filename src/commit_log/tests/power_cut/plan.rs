//! One seed: which lives, crashes, faults and damage.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use commit_log::LogOptions;
use shards::simulated::{Concern, CrashMode, CrashPoint, Disk, DiskOptions, Fault, FaultKind, Random, Target};

use crate::coverage::Coverage;
use crate::damage;
use crate::life::{Ended, Life, World};
use crate::oracle::{Existence, Judgement, Oracle};

/// Room for every segment's fallocated steps.
const CAPACITY_BYTES: u64 = 64 << 30;

/// Runs the lives of one seed; returns the trace of all.
pub(crate) fn run(seed: u64, coverage: &mut Coverage) -> u64 {
    let mut random = Random::new(seed, Concern::Workload);
    let disk = Disk::new(DiskOptions { capacity_bytes: CAPACITY_BYTES, ..DiskOptions::default() });
    let oracle = Rc::new(RefCell::new(Oracle { coverage: std::mem::take(coverage), ..Oracle::default() }));
    let world = World { disk: disk.clone(), oracle: oracle.clone(), next_partition: Rc::new(Cell::new(0)), trace: seed };
    // A stream of its own: the other draws of a seed do not depend on it.
    let mut sizes = Random::new(seed, Concern::Schedule);
    let shards_max = if sizes.chance(1, 4) { 3 } else { 1 };
    let mut options = options(&mut random);
    if sizes.chance(1, 3) {
        options.compaction_table_bytes_max = 0;
    }
    if sizes.chance(1, 3) {
        (options.scrub_bytes_per_second, options.scrub_pause_ms) = (16 << 20, 5);
    }
    let mut plan = Plan { world, options, random, sizes, shards_max };
    for _ in 0..plan.random.between(2, 5) {
        plan.ordinary_life();
    }
    match plan.random.below(8) {
        // Which directory is damaged, and what it knew, is judged for one.
        _ if shards_max > 1 => {}
        0 | 1 => plan.damaged_log(),
        2 => plan.damaged_segment(),
        3 => plan.damaged_checkpoint(),
        4 | 5 => plan.lying_disk(),
        _ => {}
    }
    let trace = plan.world.trace;
    drop(plan);
    oracle.borrow_mut().coverage.add_disk(disk.crash_counts(), disk.fault_counts());
    *coverage = std::mem::take(&mut oracle.borrow_mut().coverage);
    trace
}

struct Plan {
    world: World,
    options: LogOptions,
    random: Random,
    sizes: Random,
    /// Each life has up to this many shards.
    shards_max: u64,
}

/// Small bounds, so that files are recycled, segments roll and the queue fills within a short run.
fn options(random: &mut Random) -> LogOptions {
    let wal_file_bytes = (128 << 10) << random.below(3);
    LogOptions {
        commit_groups_in_flight: u32::try_from(random.between(1, 4)).unwrap(),
        direct_write_threshold_bytes: (16 << 10) << random.below(2),
        wal_file_bytes,
        wal_bytes_max: wal_file_bytes * random.between(3, 6),
        append_queue_bytes_max: 1 << 20,
        in_place_bytes_min: 16 << 10,
        tail_cache_bytes_max: 128 << 10,
        unflushed_bytes_max: (128 << 10) << random.below(4),
        read_cache_bytes_max: 256 << 10,
        open_files_max: 16,
        free_bytes_min: 1 << 20,
        free_bytes_resume: 2 << 20,
        ..LogOptions::default()
    }
}

impl Plan {
    /// A life that power loss, a failing disk or an orderly close ends, and whose successor must find everything acknowledged.
    fn ordinary_life(&mut self) {
        if self.random.chance(1, 3) {
            self.crash_in_recovery(Judgement::Strict);
        }
        let faulty = self.random.chance(1, 4);
        if faulty {
            self.arm_fault();
        }
        let crash = if faulty || self.random.chance(1, 6) { None } else { Some(self.crash_point()) };
        let steps = self.random.between(20, 80);
        let ended = self.live(crash, Judgement::Strict, steps);
        let struck = self.world.disk.fault_counts();
        self.world.disk.clear_faults();
        self.world.disk.set_capacity_bytes(CAPACITY_BYTES);
        match ended {
            Ended::Crashed | Ended::Closed => {}
            Ended::Refused(_) | Ended::Failed(_) => {
                assert!(faulty, "{ended:?} without a fault");
                let coverage = &mut self.world.oracle.borrow_mut().coverage;
                coverage.failed_by_error += u64::from(struck.errors > 0);
                coverage.failed_by_short_write += u64::from(struck.short_writes > 0);
                coverage.failed_by_full_disk += u64::from(struck.disk_full > 0);
            }
        }
        // The process is gone in any case; sometimes the power too.
        let mode = if self.random.chance(1, 2) { CrashMode::Kill } else { CrashMode::PowerCut };
        self.world.disk.crash(mode, self.random.next_u64());
    }

    fn crash_point(&mut self) -> CrashPoint {
        if self.random.chance(1, 3) {
            CrashPoint::Time(Duration::from_secs(1) + Duration::from_micros(self.random.between(500, 400_000)))
        } else {
            CrashPoint::IoCount(self.random.between(10, 1_500))
        }
    }

    /// Starts that end at an early I/O, again and again.
    fn crash_in_recovery(&mut self, judgement: Judgement) {
        for _ in 0..self.random.between(1, 3) {
            let crash = CrashPoint::IoCount(self.random.between(1, 80));
            self.live(Some(crash), judgement, 0);
        }
    }

    fn arm_fault(&mut self) {
        let after = self.random.between(0, 250);
        let target =
            [Target::Write, Target::Sync, Target::Create, Target::Change, Target::Allocate][self.random.below(5) as usize];
        let fault = match self.random.below(4) {
            0 => Fault::once(Target::Write, FaultKind::ShortWrite).after(after),
            1 => Fault::once(target, FaultKind::Errno(libc_eio())).after(after / 4).always(),
            2 => {
                let (total, available) = self.world.disk.space();
                self.world.disk.set_capacity_bytes(total - available + self.random.between(1 << 20, 4 << 20));
                return;
            }
            _ => Fault::once(target, FaultKind::Errno(libc_eio())).after(after / 4),
        };
        self.world.disk.inject(fault);
    }

    fn live(&mut self, crash: Option<CrashPoint>, judgement: Judgement, steps: u64) -> Ended {
        self.live_with(crash, judgement, steps, None)
    }

    fn live_with(&mut self, crash: Option<CrashPoint>, judgement: Judgement, steps: u64, fault: Option<Fault>) -> Ended {
        let crash_mode = match self.random.below(6) {
            0 => CrashMode::Kill,
            1 => CrashMode::PowerCutDropsAll,
            _ => CrashMode::PowerCut,
        };
        let shards = u16::try_from(self.sizes.between(1, self.shards_max)).unwrap();
        let (seed, options) = (self.random.next_u64(), self.options.clone());
        let life = Life { seed, crash, crash_mode, judgement, steps, fault, options, shards };
        let ended = self.world.live(life);
        if ended == Ended::Crashed {
            let mut oracle = self.world.oracle.borrow_mut();
            let truncating = oracle.partitions.values().any(|expected| expected.truncating.is_some());
            let deleting = oracle.partitions.values().any(|expected| expected.existence == Existence::Deleting);
            oracle.coverage.crashes_in_truncation += u64::from(truncating);
            oracle.coverage.crashes_in_deletion += u64::from(deleting);
        }
        ended
    }

    /// A life whose end leaves blocks to replay.
    fn leave_blocks(&mut self) {
        let crash = CrashPoint::IoCount(self.random.between(100, 1_500));
        self.live(Some(crash), Judgement::Strict, 200);
    }

    fn close_in_order(&mut self) {
        let ended = self.live(None, Judgement::Strict, 30);
        assert_eq!(ended, Ended::Closed);
        self.world.disk.crash(CrashMode::PowerCut, self.random.next_u64());
    }

    fn damaged_log(&mut self) {
        self.leave_blocks();
        let flip = self.random.chance(1, 2);
        if let Some(ambiguous) = damage::damage_block(&self.world.disk, &mut self.random, flip) {
            self.world.oracle.borrow_mut().coverage.garbled_blocks += u64::from(!flip);
            self.judge_damage(ambiguous);
        }
    }

    fn damaged_segment(&mut self) {
        self.close_in_order();
        if damage::flip_in(&self.world.disk, &mut self.random, ".seg") {
            self.judge_damage(false);
        }
    }

    fn damaged_checkpoint(&mut self) {
        self.close_in_order();
        let text = if self.random.chance(1, 2) { "checkpoint-" } else { "superblock" };
        if damage::flip_in(&self.world.disk, &mut self.random, text) {
            self.judge_damage(false);
        }
    }

    /// A write that is reported done and is not where it belongs.
    fn lying_disk(&mut self) {
        let kind = if self.random.chance(1, 2) { FaultKind::LostWrite } else { FaultKind::MisdirectedWrite };
        let text = if self.random.chance(2, 3) { "wal-" } else { ".seg" };
        let fault = Fault::once(Target::Write, kind).on(text).after(self.random.between(0, 100));
        let crash = CrashPoint::IoCount(self.random.between(300, 2_500));
        self.live_with(Some(crash), Judgement::Strict, 300, Some(fault));
        self.world.disk.clear_faults();
        let ambiguous = text == ".seg" || damage::hole_is_ambiguous(&self.world.disk);
        self.judge_damage(ambiguous);
    }

    /// Starts on a damaged disk: nothing is missing without a word, and the verdict stays.
    fn judge_damage(&mut self, ambiguous: bool) {
        let judgement = Judgement::Damaged { ambiguous };
        if self.random.chance(1, 3) {
            self.crash_in_recovery(judgement);
        }
        match self.live(None, judgement, 0) {
            Ended::Closed => {}
            // Refusing to start is the loudest report.
            Ended::Refused(_) => return,
            ended => panic!("{ended:?}"),
        }
        self.world.disk.crash(CrashMode::PowerCut, self.random.next_u64());
        let ended = self.live(None, judgement, 0);
        assert_eq!(ended, Ended::Closed);
    }
}

fn libc_eio() -> i32 {
    5
}
