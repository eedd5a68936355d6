//! One start of the log: recover, check, work, and an end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use commit_log::{LogFailed, LogOptions, ShardLog};
use shards::simulated::{CrashMode, CrashPoint, Disk, Fault, Outcome, SimOptions, Simulation};
use shards::{clock, disk};

use crate::logs::{Found, Logs};
use crate::oracle::{Existence, Judgement, Oracle, check_partition};
use crate::work::Work;

pub(crate) const DISK: &str = "/disk";

/// No life takes half a second of virtual time without faults; the log's timers would tick for ever.
const TIME_MAX: Duration = Duration::from_secs(120);

/// What is drawn for one life.
pub(crate) struct Life {
    pub(crate) seed: u64,
    pub(crate) crash: Option<CrashPoint>,
    pub(crate) crash_mode: CrashMode,
    pub(crate) judgement: Judgement,
    pub(crate) steps: u64,
    /// Armed once the start has been checked.
    pub(crate) fault: Option<Fault>,
    pub(crate) options: LogOptions,
    pub(crate) shards: u16,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Crashed,
    Closed,
    Failed(LogFailed),
    Refused(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Recovering,
    Checking,
    Working,
    Closing,
}

/// What all lives of a seed share.
pub(crate) struct World {
    pub(crate) disk: Disk,
    pub(crate) oracle: Rc<RefCell<Oracle>>,
    pub(crate) next_partition: Rc<Cell<u32>>,
    pub(crate) trace: u64,
}

impl World {
    pub(crate) fn live(&mut self, life: Life) -> Ended {
        let stage = Rc::new(Cell::new(Stage::Recovering));
        let in_checkpoint = Rc::new(Cell::new(false));
        let in_compaction = Rc::new(Cell::new(0));
        let (crash, crash_mode) = (life.crash, life.crash_mode);
        let options = SimOptions { crash, crash_mode, time_max: TIME_MAX, ..SimOptions::default() };
        let doing = Rc::new(RefCell::new(Vec::new()));
        let opened = Rc::new(RefCell::new(Logs::default()));
        let program = Program {
            doing: doing.clone(),
            lying_disk: false,
            opened: opened.clone(),
            oracle: self.oracle.clone(),
            next_partition: self.next_partition.clone(),
            in_checkpoint: in_checkpoint.clone(),
            in_compaction: in_compaction.clone(),
            stage: stage.clone(),
            judgement: life.judgement,
            steps: life.steps,
            fault: life.fault.clone().map(|fault| (self.disk.clone(), fault)),
            options: life.options,
            shards: life.shards,
        };
        if std::env::var_os("CORELANE_STORY").is_some() {
            eprintln!(
                "life {:x}: {:?}, {:?}, {} steps, fault {:?}",
                life.seed, life.judgement, life.crash, life.steps, life.fault
            );
        }
        let report = Simulation::new(life.seed, options).mount("/", &self.disk).run(program.run());
        self.trace = self.trace.rotate_left(7) ^ report.trace_hash;
        if std::env::var_os("CORELANE_STORY").is_some() {
            let mode = life.crash_mode;
            let (ios, stage) = (report.io_count, stage.get());
            eprintln!("life {:x}: {:?} ({mode:?}) at I/O {ios}, {:?}, {stage:?}", life.seed, report.outcome, report.ended_at);
        }
        let opened = opened.take();
        let coverage = &mut self.oracle.borrow_mut().coverage;
        match report.outcome {
            Outcome::Finished(ended) => {
                coverage.graceful_closes += u64::from(ended == Ended::Closed);
                coverage.refused_starts += u64::from(matches!(ended, Ended::Refused(_)));
                ended
            }
            Outcome::Crashed => {
                coverage.kills += u64::from(life.crash_mode == CrashMode::Kill);
                coverage.power_cuts += u64::from(life.crash_mode != CrashMode::Kill);
                coverage.crashes_in_recovery += u64::from(stage.get() == Stage::Recovering);
                coverage.crashes_in_checkpoint += u64::from(in_checkpoint.get());
                coverage.crashes_in_compaction += u64::from(in_compaction.get() > 0);
                Ended::Crashed
            }
            Outcome::Stuck => {
                let stats: Vec<_> = opened.all().iter().map(ShardLog::stats).collect();
                panic!("the log is stuck while {:?}: {:?}, {stats:#?}", stage.get(), doing.borrow());
            }
        }
    }
}

struct Program {
    doing: Rc<RefCell<Vec<String>>>,
    oracle: Rc<RefCell<Oracle>>,
    next_partition: Rc<Cell<u32>>,
    in_checkpoint: Rc<Cell<bool>>,
    in_compaction: Rc<Cell<u32>>,
    stage: Rc<Cell<Stage>>,
    judgement: Judgement,
    steps: u64,
    fault: Option<(Disk, Fault)>,
    lying_disk: bool,
    opened: Rc<RefCell<Logs>>,
    options: LogOptions,
    shards: u16,
}

impl Program {
    async fn run(mut self) -> Ended {
        // Whoever configures a data directory makes it; the log begins below it.
        let made = async {
            disk::create_dir_all(DISK.as_ref()).await?;
            disk::sync_dir("/".as_ref()).await
        };
        if let Err(error) = made.await {
            return Ended::Refused(error.to_string());
        }
        let oracle = self.oracle.clone();
        let found = match Found::recover(DISK.as_ref(), move |count| count(&mut oracle.borrow_mut().coverage)).await {
            Ok(found) => found,
            Err(error) => return Ended::Refused(error),
        };
        let losses = found.lossy.clone();
        if self.judgement == Judgement::Strict {
            assert!(losses.is_empty(), "called lossy without damage: {losses:?}: {:#?}", found.hit());
        }
        let logs = match found.open(DISK.as_ref(), &self.options, self.shards).await {
            Ok(logs) => logs,
            Err(error) => return Ended::Refused(error),
        };
        *self.opened.borrow_mut() = logs.clone();
        self.oracle.borrow_mut().opened(self.shards);
        self.stage.set(Stage::Checking);
        let reported: Vec<_> = losses.iter().map(|(key, _)| *key).collect();
        let partitions = logs.partitions();
        let names: Vec<_> = partitions.iter().map(|partition| partition.key()).collect();
        self.oracle.borrow_mut().check_names(&names, self.judgement, !reported.is_empty());
        self.oracle.borrow_mut().adopt(&names);
        for partition in &partitions {
            check_partition(&self.oracle, partition, self.judgement, reported.contains(&partition.key())).await;
        }
        self.stage.set(Stage::Working);
        if let Some((disk, fault)) = self.fault.take() {
            self.lying_disk = true;
            disk.inject(fault);
        }
        let ended = self.work_and_close(&logs).await;
        let coverage = &mut self.oracle.borrow_mut().coverage;
        for stats in logs.all().iter().map(ShardLog::stats) {
            let is_sound = self.judgement == Judgement::Strict && !self.lying_disk;
            assert!(!is_sound || stats.scrub_damaged_ranges == 0, "called damaged without damage");
            assert!(!is_sound || stats.compaction_damaged_segments == 0, "left as damaged without damage");
            coverage.scrub_passes += stats.scrub_passes;
            coverage.direct_writes += stats.direct_writes;
            coverage.groups += stats.groups;
            coverage.checkpoints += stats.checkpoints;
        }
        match ended {
            Ok(()) => Ended::Closed,
            Err(failed) => Ended::Failed(failed),
        }
    }

    async fn work_and_close(&self, logs: &Logs) -> Result<(), LogFailed> {
        for (number, log) in logs.all().iter().enumerate() {
            // Through the cell, which is emptied at the end: a callback that owned its log would keep it for ever.
            let opened = self.opened.clone();
            log.on_commit(move |_| {
                let failure = opened.borrow().all().get(number).and_then(ShardLog::failure);
                assert_eq!(failure, None, "an acknowledgement after the storage failed");
            });
        }
        let work = Work {
            logs: logs.clone(),
            oracle: self.oracle.clone(),
            next_partition: self.next_partition.clone(),
            in_checkpoint: self.in_checkpoint.clone(),
            in_compaction: self.in_compaction.clone(),
            doing: self.doing.clone(),
            lying_disk: self.lying_disk,
        };
        let worked = if self.steps > 0 { work.run(self.steps).await } else { Ok(()) };
        self.stage.set(Stage::Closing);
        let closed = match worked {
            Ok(()) => logs.close().await,
            Err(failed) => Err(failed),
        };
        if closed.is_err() {
            // Whatever is under way must not acknowledge anything more.
            clock::sleep(Duration::from_millis(200)).await;
            return closed;
        }
        let mut oracle = self.oracle.borrow_mut();
        for (key, expected) in &mut oracle.partitions {
            if expected.existence == Existence::Creating {
                expected.existence = Existence::Present;
            }
            if expected.existence == Existence::Present {
                let marks = logs.partition(*key).map(|partition| partition.watermarks());
                let marks = marks.unwrap_or_else(|| panic!("{key:?} is gone at the close"));
                assert_eq!(marks.durable_end.0, expected.appended_end, "{key:?}: a close makes everything durable");
                expected.acknowledged(marks.durable_end.0);
            }
        }
        Ok(())
    }
}
