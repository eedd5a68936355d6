//! The task of a member: heartbeats, fetches, settling, retries.

mod begin;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rand::Rng;
use tokio::time::Instant;
use wire::limits::RETRIES_PER_REPLY_MAX;
use wire::{
    ErrorCode, FetchOffsetsReply, FetchPartition, FetchRequest, FindCoordinatorRequest, GroupHeartbeatReply, ListOffsetsReply,
    MemberEpoch, Offset, PartitionKey, Request, SettleReply, SettleRequest, TakeRetriesReply, TakeRetriesRequest,
};

use super::record::Held;
use super::{Rebalance, Shared};
use crate::client::{ClientShared, random};
use crate::consumer::{Consumer, FetchedBatch};
use crate::core::beginning::{Beginning, StandPlan, StartPlan};
use crate::core::cluster_map::Target;
use crate::core::membership::{Change, Membership, MembershipCore};
use crate::core::retrying::{Assignment, PollPlan, RetryFetch, SettlePlan};
use crate::error::{ClientError, ErrorKind, Result};
use crate::options::GroupOptions;

/// How long the coordinator may hold a heartbeat or a poll while there is no news: far below the shortest session.
const HOLD: Duration = Duration::from_millis(500);
/// Offsets that may be done without a commit, however long the interval: the window of the coordinator must not run out.
const UNCOMMITTED_OFFSETS_MAX: u64 = wire::limits::SETTLE_WINDOW_OFFSETS / 4;
/// Leaving is tried for so long.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Driver {
    shared: Arc<Shared>,
    client: Arc<ClientShared>,
    options: GroupOptions,
    consumer: Consumer,
    membership: MembershipCore,
    /// Given, and not read yet.
    beginning: Beginning,
    is_refreshing: bool,
    coordinator: Option<Target>,
    is_finding: bool,
    waiting: FuturesUnordered<BoxFuture<'static, Event>>,
    /// Read now, each under the name of its assignment.
    reading: BTreeMap<PartitionKey, Reading>,
    /// To be given up, at the latest by then.
    ending: BTreeMap<PartitionKey, Instant>,
    commit_at: Option<Instant>,
    /// Nothing is asked of the coordinator before then, after a failure.
    quiet_until: Instant,
    failures: u32,
}

struct Reading {
    assignment: Assignment,
    /// A batch that was fetched when there was no room for it.
    next: Option<Arc<FetchedBatch>>,
    is_paused: bool,
}

enum Event {
    Found(Result<Target>),
    /// The answer to a heartbeat of that member.
    Beat(String, Result<GroupHeartbeatReply>),
    Stood(StandPlan, Result<FetchOffsetsReply>),
    Started(StartPlan, Result<ListOffsetsReply>),
    Refreshed,
    Settled(SettlePlan, Result<SettleReply>),
    Polled(PollPlan, Result<TakeRetriesReply>),
    Read(RetryFetch, Result<Held>),
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, client: Arc<ClientShared>, options: GroupOptions) -> Self {
        let now = Instant::now();
        let member = Membership {
            group: options.group.clone(),
            instance_id: options.instance_id.clone(),
            topics: options.topics.clone(),
            assignor: options.assignor,
            session_timeout: options.session_timeout,
            rebalance_timeout: options.rebalance_timeout,
        };
        let consumer = Consumer::start(Arc::clone(&client), options.fetch.clone());
        let beginning = Beginning::new(options.start, client.backoff());
        Self {
            shared,
            client,
            options,
            consumer,
            membership: MembershipCore::new(member, new_member_id(), now.into_std()),
            beginning,
            is_refreshing: false,
            coordinator: None,
            is_finding: false,
            waiting: FuturesUnordered::new(),
            reading: BTreeMap::new(),
            ending: BTreeMap::new(),
            commit_at: None,
            quiet_until: now,
            failures: 0,
        }
    }

    /// Runs until the consumer is closed or the group cannot be gone on with.
    pub(super) async fn run(mut self) {
        loop {
            if self.shared.state().is_closing {
                return self.leave().await;
            }
            if self.shared.state().failure.is_some() {
                self.shared.arrived.notify_all();
                return;
            }
            let now = Instant::now();
            let lost = self.membership.expire(now.into_std(), new_member_id());
            self.apply(lost);
            self.end_revoked(now);
            self.offer_kept();
            self.ask(now);
            self.ask_leaders(now);
            let timer = self.next_timer(now);
            let wants = self.reading.values().any(|reading| reading.next.is_none() && !reading.is_paused);
            tokio::select! {
                Some(event) = self.waiting.next(), if !self.waiting.is_empty() => self.take(event),
                batch = self.consumer.next_batch(), if wants => self.fetched(batch),
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep_until(timer) => {}
            }
        }
    }

    /// Sends whatever there is to send.
    fn ask(&mut self, now: Instant) {
        if now < self.quiet_until {
            return;
        }
        let Some(coordinator) = self.coordinator else {
            if !std::mem::replace(&mut self.is_finding, true) {
                self.waiting.push(find(Arc::clone(&self.client), self.options.group.clone()).map(Event::Found).boxed());
            }
            return;
        };
        if let Some(beat) = self.membership.next_beat(now.into_std(), HOLD) {
            let of = beat.member_id.clone();
            self.call(coordinator, "heartbeat", beat, HOLD, move |reply| Event::Beat(of, reply));
        }
        if self.membership.epoch() == MemberEpoch::JOIN {
            return;
        }
        self.ask_where_to_begin(coordinator, now);
        let is_commit_time = self.is_commit_time(now);
        let settle = self.shared.state().core.next_settle(now.into_std(), is_commit_time);
        if is_commit_time {
            self.commit_at = None;
        }
        if let Some(plan) = settle {
            let request = SettleRequest {
                group: self.options.group.clone(),
                member_id: self.membership.member_id().to_owned(),
                member_epoch: self.membership.epoch(),
                partitions: plan.partitions.clone(),
            };
            self.call(coordinator, "settle", request, Duration::ZERO, move |reply| Event::Settled(plan, reply));
        }
        let poll = self.shared.state().core.next_poll();
        if let Some(plan) = poll {
            let request = TakeRetriesRequest {
                group: self.options.group.clone(),
                member_id: self.membership.member_id().to_owned(),
                member_epoch: self.membership.epoch(),
                poll: plan.poll,
                received: plan.received,
                partitions: plan.partitions().collect(),
                max_records: RETRIES_PER_REPLY_MAX,
                max_wait_ms: u32::try_from(HOLD.as_millis()).unwrap_or(u32::MAX),
            };
            self.call(coordinator, "take retries", request, HOLD, move |reply| Event::Polled(plan, reply));
        }
    }

    /// Commits move at intervals, and sooner when somebody waits, partitions are to be given up, or much was done.
    fn is_commit_time(&mut self, now: Instant) -> bool {
        let state = self.shared.state();
        if !state.commits.is_empty() || !self.ending.is_empty() {
            return true;
        }
        let Some(interval) = self.options.auto_commit else { return false };
        let behind = |key: &PartitionKey| {
            let position = state.core.position(*key).map_or(0, |offset| offset.0);
            position.saturating_sub(state.core.committed(*key).map_or(0, |offset| offset.0))
        };
        let moved = self.reading.keys().map(behind).max().unwrap_or(0);
        if moved == 0 {
            return false;
        }
        let at = *self.commit_at.get_or_insert(now + interval);
        moved >= UNCOMMITTED_OFFSETS_MAX || now >= at
    }

    fn next_timer(&mut self, now: Instant) -> Instant {
        let state = self.shared.state();
        let settle = state.core.next_settle_at().map(Instant::from_std);
        drop(state);
        let beat = Instant::from_std(self.membership.next_timer(now.into_std()));
        let ending = self.ending.values().min().copied();
        let begin = self.beginning.next_timer().map(Instant::from_std);
        let next = [Some(beat), settle, ending, begin, self.commit_at].into_iter().flatten().min().unwrap_or(beat);
        // What is due while nothing may be asked comes after that.
        if next <= now || next < self.quiet_until { next.max(self.quiet_until).max(now + Duration::from_millis(1)) } else { next }
    }

    fn call<R: Request + Send + Sync + 'static>(
        &mut self,
        target: Target,
        operation: &'static str,
        request: R,
        hold: Duration,
        event: impl FnOnce(Result<R::Reply>) -> Event + Send + 'static,
    ) where
        R::Reply: Send + 'static,
    {
        let client = Arc::clone(&self.client);
        let timeout = client.options().request_timeout + hold;
        // Queued at once where that is possible: what is asked leaves in the order in which it was decided.
        let connection = client.pool().open_connection(target);
        let queued = connection.as_ref().map(|connection| connection.call(operation, &request, Vec::new(), timeout));
        let answered = async move {
            let reply = async {
                let (reply, _) = match queued {
                    Some(call) => call?.await?,
                    None => client.connect(target).await?.call(operation, &request, Vec::new(), timeout)?.await?,
                };
                Ok(reply)
            };
            event(reply.await)
        };
        self.waiting.push(answered.boxed());
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Found(found) => {
                self.is_finding = false;
                match found {
                    Ok(target) => self.coordinator = Some(target),
                    Err(error) => self.failed(&error),
                }
            }
            Event::Beat(of, Ok(reply)) => self.beaten(&of, &reply),
            Event::Beat(of, Err(error)) => {
                self.failed(&error);
                let delay = self.client.backoff().delay(self.failures, random());
                self.membership.failed(std::time::Instant::now(), &of, delay);
            }
            Event::Stood(plan, reply) => self.stood(&plan, reply),
            Event::Started(plan, reply) => self.started(&plan, reply),
            Event::Refreshed => self.is_refreshing = false,
            Event::Settled(plan, reply) => self.settled(plan, reply),
            Event::Polled(plan, reply) => self.polled(&plan, reply),
            Event::Read(fetch, Ok(record)) => self.shared.state().core.fetched(fetch, record),
            Event::Read(fetch, Err(error)) => self.shared.state().core.fetch_failed(fetch, error.cause()),
        }
        self.shared.arrived.notify();
    }

    /// A request of the coordinator failed: a pause, and the coordinator is looked for again.
    fn failed(&mut self, error: &ClientError) {
        tracing::debug!(group = self.options.group, %error, "the coordinator does not answer");
        self.failures = self.failures.saturating_add(1);
        self.coordinator = None;
        self.quiet_until = Instant::now() + self.client.backoff().delay(self.failures, random());
        if !error.retryable() {
            self.shared.state().fail(error);
        }
    }

    /// The coordinator refused a request; what that says of the whole membership the next heartbeat will tell.
    fn refused(&mut self, code: ErrorCode) {
        if code == ErrorCode::NotCoordinator {
            self.coordinator = None;
        }
        self.failures = self.failures.saturating_add(1);
        self.quiet_until = Instant::now() + self.client.backoff().delay(self.failures, random());
    }

    fn beaten(&mut self, of: &str, reply: &GroupHeartbeatReply) {
        let now = std::time::Instant::now();
        if reply.error == ErrorCode::NotCoordinator {
            self.coordinator = None;
        }
        match self.membership.answered(now, of, reply, new_member_id()) {
            Ok(changes) => {
                self.failures = 0;
                self.apply(changes);
            }
            Err(code) => {
                let place = self.options.group.clone();
                let error = ClientError::broker(code, "join group", place, reply.message.as_deref());
                self.shared.state().fail(&error);
            }
        }
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Given(keys) => {
                    self.tell(Rebalance::Given, &keys);
                    for key in keys {
                        let name = self.membership.name(key.topic).expect("what is given is named");
                        self.beginning.given(key, name);
                    }
                }
                Change::Revoked(keys) => {
                    let until = Instant::now() + self.options.rebalance_timeout * 3 / 4;
                    for key in &keys {
                        self.stop_reading(*key);
                        self.shared.state().core.stop(*key);
                        self.ending.insert(*key, until);
                    }
                    self.tell(Rebalance::Revoked, &keys);
                }
                Change::Lost(keys) => {
                    for key in &keys {
                        self.stop_reading(*key);
                        self.shared.state().core.unassign(*key);
                        self.ending.remove(key);
                    }
                    self.tell(Rebalance::Lost, &keys);
                    self.shared.state().answer_commits();
                }
            }
        }
    }

    fn tell(&self, kind: fn(Vec<(Arc<str>, u32)>) -> Rebalance, keys: &[PartitionKey]) {
        let named = |key: &PartitionKey| Some((Arc::clone(self.membership.name(key.topic)?), key.partition.0));
        self.shared.state().assignment = self.membership.held().filter_map(|key| named(&key)).collect();
        if let Some(on_rebalance) = &self.options.on_rebalance {
            on_rebalance(&kind(keys.iter().filter_map(named).collect()));
        }
    }

    fn stop_reading(&mut self, key: PartitionKey) {
        self.beginning.taken(key);
        self.reading.remove(&key);
        self.consumer.unassign_key(key);
    }

    /// Gives up what is settled, or what has taken too long.
    fn end_revoked(&mut self, now: Instant) {
        let state = self.shared.state();
        let ended: Vec<PartitionKey> = {
            let ended = self.ending.iter().filter(|(key, until)| **until <= now || state.core.is_settled(**key));
            ended.map(|(key, _)| *key).collect()
        };
        drop(state);
        if ended.is_empty() {
            return;
        }
        let mut state = self.shared.state();
        // Who waits for these has them committed, as long as they are here.
        state.answer_commits();
        for key in &ended {
            self.ending.remove(key);
            state.core.unassign(*key);
        }
        state.answer_commits();
        drop(state);
        self.membership.given_up(&ended);
    }

    /// A batch of the log has come.
    fn fetched(&mut self, batch: Result<FetchedBatch>) {
        match batch {
            Ok(batch) => {
                if let Some(reading) = self.reading.get_mut(&batch.key()) {
                    reading.next = Some(Arc::new(batch));
                }
            }
            Err(error) => {
                self.shared.state().errors.push_back(error);
                self.shared.arrived.notify();
            }
        }
    }

    /// Offers what was fetched, as far as there is room; fetches no more of a partition that has none.
    fn offer_kept(&mut self) {
        let mut state = self.shared.state();
        let mut offered = false;
        for (key, reading) in &mut self.reading {
            let wants = state.core.wants(*key);
            if wants && let Some(batch) = reading.next.take() {
                let epoch = batch.header().leader_epoch;
                for (place, record) in batch.numbered() {
                    let held = Held { batch: Arc::clone(&batch), place };
                    state.core.offer(reading.assignment, record.offset, epoch, record.key, held);
                }
                state.core.passed(reading.assignment, batch.next_offset());
                offered = true;
            }
            // Where the position was lost and set anew nothing may come for long, and yet the group stands there from now on.
            if reading.next.is_none()
                && let Some(next) = self.consumer.position_of(*key)
            {
                state.core.passed(reading.assignment, next);
            }
            let pause = reading.next.is_some() || !state.core.wants(*key);
            if pause != reading.is_paused {
                reading.is_paused = pause;
                self.consumer.hold(*key, pause);
            }
        }
        drop(state);
        if offered {
            self.shared.arrived.notify();
        }
    }

    fn settled(&mut self, plan: SettlePlan, reply: Result<SettleReply>) {
        let now = std::time::Instant::now();
        let refusal = {
            let mut state = self.shared.state();
            match &reply {
                Ok(reply) if reply.error.is_none() => {
                    state.core.settled(now, &plan, &reply.partitions);
                    state.answer_commits();
                    None
                }
                Ok(reply) => {
                    state.core.settle_lost(plan);
                    Some(Ok(reply.error))
                }
                Err(error) => {
                    state.core.settle_lost(plan);
                    Some(Err(error.clone()))
                }
            }
        };
        match refusal {
            None => self.failures = 0,
            Some(Ok(code)) => self.refused(code),
            Some(Err(error)) => self.failed(&error),
        }
    }

    fn polled(&mut self, plan: &PollPlan, reply: Result<TakeRetriesReply>) {
        let refusal = match reply {
            Ok(reply) if reply.error.is_none() => {
                let fetches = self.shared.state().core.polled(plan, &reply.records);
                fetches.into_iter().for_each(|fetch| self.read_again(fetch));
                return;
            }
            Ok(reply) => Ok(reply.error),
            Err(error) => Err(error),
        };
        self.shared.state().core.poll_lost(plan);
        match refusal {
            Ok(code) => self.refused(code),
            Err(error) => self.failed(&error),
        }
    }

    /// Reads a record that is due again.
    fn read_again(&mut self, fetch: RetryFetch) {
        let key = fetch.assignment.partition;
        let Some(name) = self.membership.name(key.topic).cloned() else { return };
        let client = Arc::clone(&self.client);
        let shared = Arc::clone(&self.shared);
        let read = async move {
            let is_wanted = || shared.state().core.is_assigned(fetch.assignment);
            Event::Read(fetch, read_one(&client, key, &name, fetch.offset, is_wanted).await)
        };
        self.waiting.push(read.boxed());
    }

    /// Leaves the group, for a while if it is a static member.
    async fn leave(self) {
        let (Some(beat), Some(coordinator)) = (self.membership.leave(), self.coordinator) else { return };
        let left = async {
            let connection = self.client.connect(coordinator).await?;
            connection.call("leave group", &beat, Vec::new(), LEAVE_WITHIN)?.await
        };
        match tokio::time::timeout(LEAVE_WITHIN, left).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the group was not left: its session ends it"),
            Err(_) => tracing::debug!("the group was not left in time: its session ends it"),
        }
    }
}

/// Like no other: 122 random bits, as a UUID of version 4.
fn new_member_id() -> String {
    let bits = rand::rng().next_u64();
    let more = rand::rng().next_u64();
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        bits >> 32,
        (bits >> 16) & 0xffff,
        bits & 0xfff,
        0x8000 | (more >> 48 & 0x3fff),
        more & 0xffff_ffff_ffff
    )
}

/// The shard that keeps the group.
async fn find(client: Arc<ClientShared>, group: String) -> Result<Target> {
    const OPERATION: &str = "find coordinator";
    let request = FindCoordinatorRequest { groups: vec![group.clone()] };
    let (reply, _) = client.call_any(OPERATION, &request).await?;
    let Some(found) = reply.groups.into_iter().next() else {
        return Err(ClientError::new(ErrorKind::Protocol, OPERATION, group, "the answer does not name the group"));
    };
    match found.error {
        ErrorCode::None => Ok(Target { broker: found.broker, shard: found.shard }),
        code => Err(ClientError::broker(code, OPERATION, group, found.message.as_deref())),
    }
}

/// The shard that leads a partition, by metadata that is asked for when it does not say.
async fn leader(client: &Arc<ClientShared>, key: PartitionKey, topic: &str) -> Result<Target> {
    if client.map().leader(key).is_none() {
        client.refresh(&[topic.to_owned()], Instant::now()).await?;
    }
    let place = || format!("{topic}/{}", key.partition.0);
    let unknown = || ClientError::broker(ErrorCode::UnknownTopicOrPartition, "find leader", place(), None);
    client.map().leader(key).ok_or_else(unknown)
}

/// Reads one record from the log, however long that takes: as long as it is leased to this member nobody else can read it.
async fn read_one(
    client: &Arc<ClientShared>,
    key: PartitionKey,
    name: &Arc<str>,
    offset: Offset,
    is_wanted: impl Fn() -> bool,
) -> Result<Held> {
    let mut failures = 0;
    loop {
        match try_read_one(client, key, name, offset).await {
            Err(error) if error.retryable() && is_wanted() => {
                failures += 1;
                tracing::debug!(%error, "a record that is due again cannot be read yet");
                tokio::time::sleep(client.backoff().delay(failures, random())).await;
                // The leader may be another. What is known stays until there is an answer: others read by it.
                if let Err(error) = client.refresh(&[name.to_string()], Instant::now()).await {
                    tracing::debug!(%error, "metadata not refreshed");
                }
            }
            other => return other,
        }
    }
}

async fn try_read_one(client: &Arc<ClientShared>, key: PartitionKey, name: &Arc<str>, offset: Offset) -> Result<Held> {
    const OPERATION: &str = "read a record again";
    let place = || format!("{name}/{} at offset {}", key.partition.0, offset.0);
    let leader = leader(client, key, name).await?;
    let part = FetchPartition { topic: key.topic, partition: key.partition, offset, max_bytes: 1, leader_epoch: None };
    let request = FetchRequest { max_wait_ms: 0, min_bytes: 0, max_bytes: 1, partitions: vec![part] };
    let connection = client.connect(leader).await?;
    let (reply, frame) = connection.call(OPERATION, &request, Vec::new(), client.options().request_timeout)?.await?;
    let missing = || ClientError::new(ErrorKind::Corrupt, OPERATION, place(), "the record is not in the log any more");
    let part = reply.partitions.first().ok_or_else(missing)?;
    if !part.error.is_none() {
        return Err(ClientError::broker(part.error, OPERATION, place(), part.message.as_deref()));
    }
    if frame.attachments().is_empty() {
        return Err(missing());
    }
    let batch = FetchedBatch::read(&frame, frame.attachments().start, Arc::clone(name), key, offset, part.high_watermark)?;
    let found = batch.numbered().find(|(_, record)| record.offset == offset).map(|(place, _)| place);
    Ok(Held { place: found.ok_or_else(missing)?, batch: Arc::new(batch) })
}
