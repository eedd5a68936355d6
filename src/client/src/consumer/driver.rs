//! Does what the consumer's core decides: fetches, looks offsets up, brings answers back.

use std::sync::Arc;

use tokio::time::Instant;
use wire::{FetchPartition, FetchReply, FetchRequest, ListOffsetsPartition, ListOffsetsReply, ListOffsetsRequest};

use super::ConsumerShared;
use crate::client::{ClientShared, random};
use crate::core::fetching::{FetchActions, FetchPlan, LookupPlan};
use crate::error::Result;
use crate::options::ConsumerOptions;
use crate::requests::{Event, Requests};
use crate::transport::Frame;

pub(super) struct Driver {
    shared: Arc<ConsumerShared>,
    options: ConsumerOptions,
    requests: Requests<Answer>,
}

enum Answer {
    Fetched(FetchPlan, Result<(FetchReply, Frame)>),
    LookedUp(LookupPlan, Result<ListOffsetsReply>),
}

impl Driver {
    pub(super) fn new(shared: Arc<ConsumerShared>, client: Arc<ClientShared>) -> Self {
        let options = shared.core().options().clone();
        Self { shared, options, requests: Requests::new(client) }
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        let client = Arc::clone(self.requests.client());
        let mut refresh_at = Instant::now() + client.metadata_age_max();
        loop {
            let actions = self.decide();
            self.act(actions);
            let timer = self.shared.core().next_timer(Instant::now().into_std());
            let timer = timer.map_or(refresh_at, |timer| refresh_at.min(Instant::from_std(timer)));
            self.requests.wait(&self.shared.wake, timer, |event| self.shared.on_event(&client, event)).await;
            if Instant::now() >= refresh_at {
                refresh_at = Instant::now() + client.metadata_age_max();
                self.requests.refresh(None);
            }
        }
    }

    fn decide(&mut self) -> FetchActions {
        let map = self.requests.client().map();
        let mut core = self.shared.core();
        let connected = |target| self.requests.is_connected(target);
        let actions = core.next_actions(Instant::now().into_std(), &map, connected, random());
        let wanted = core.take_metadata_wanted();
        let can_pop = core.can_pop();
        drop(core);
        if can_pop {
            self.shared.arrived.notify();
        }
        if let Some(topics) = wanted {
            self.requests.refresh(Some(topics));
        }
        actions
    }

    fn act(&mut self, actions: FetchActions) {
        self.requests.connect(actions.connect);
        let timeout = self.requests.client().options().request_timeout;
        for plan in actions.lookups {
            let partitions = plan.partitions.iter().map(|part| ListOffsetsPartition {
                topic: part.key.topic,
                partition: part.key.partition,
                at: part.at,
            });
            let request = ListOffsetsRequest { partitions: partitions.collect() };
            let target = plan.target;
            let answer = move |result: Result<_>| Answer::LookedUp(plan, result.map(|(reply, _)| reply));
            self.requests.send(target, "list offsets", &request, Vec::new(), timeout, answer);
        }
        for plan in actions.fetches {
            let request = self.fetch_request(&plan);
            let target = plan.target;
            let answer = move |result| Answer::Fetched(plan, result);
            self.requests.send(target, "fetch", &request, Vec::new(), timeout + self.options.max_wait, answer);
        }
    }

    fn fetch_request(&self, plan: &FetchPlan) -> FetchRequest {
        let max_bytes = self.options.max_bytes.clamp(1, wire::limits::FETCH_BYTES_MAX);
        let max_wait_ms = u32::try_from(self.options.max_wait.as_millis()).unwrap_or(u32::MAX);
        let partitions = plan.partitions.iter().map(|part| FetchPartition {
            topic: part.key.topic,
            partition: part.key.partition,
            offset: part.offset,
            max_bytes: self.options.partition_max_bytes.clamp(1, max_bytes),
            leader_epoch: part.leader_epoch,
        });
        FetchRequest {
            max_wait_ms: max_wait_ms.min(wire::limits::WAIT_MS_MAX),
            min_bytes: self.options.min_bytes,
            max_bytes,
            partitions: partitions.collect(),
        }
    }
}

impl ConsumerShared {
    fn on_event(&self, client: &ClientShared, event: Event<Answer>) {
        let now = Instant::now().into_std();
        let mut core = self.core();
        match event {
            Event::Answered(Answer::Fetched(plan, reply)) => core.on_fetched(now, plan, reply, random()),
            Event::Answered(Answer::LookedUp(plan, reply)) => core.on_looked_up(now, plan, reply, random()),
            Event::Connected(_, Ok(())) => {}
            Event::Refreshed(topics) => core.metadata_answered(&topics, &client.map()),
            Event::Connected(target, Err(error)) => core.connection_failed(now, target, &client.map(), &error, random()),
        }
    }
}
