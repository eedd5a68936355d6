//! Does what the producer's core decides: builds batches, writes requests, brings replies back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wire::{InitProducerReply, ProducePartition, ProduceReply, ProduceRequest, ProducerIdentity};

use super::{ProducerShared, State};
use crate::client::{ClientShared, random};
use crate::core::producing::{PartitionPlan, ProduceActions, ProducePlan};
use crate::error::{ClientError, Result};
use crate::requests::{Event, Requests};

pub(super) struct Driver {
    shared: Arc<ProducerShared>,
    requests: Requests<Answer>,
}

/// What comes back.
enum Answer {
    Produced(ProducePlan, Result<ProduceReply>),
    Identified(Result<ProducerIdentity>),
}

impl Driver {
    pub(super) fn new(shared: Arc<ProducerShared>, client: Arc<ClientShared>) -> Self {
        Self { shared, requests: Requests::new(client) }
    }

    /// Runs until the producer is closed and nothing is left.
    pub(super) async fn run(mut self) {
        let metadata_age_max = self.requests.client().metadata_age_max();
        let mut refresh_at = Instant::now() + metadata_age_max;
        loop {
            let actions = self.decide();
            self.requests.connect(actions.connect);
            if let Some(request) = actions.identify {
                self.requests.ask_any("identify producer", request, |reply| Answer::Identified(reply.and_then(into_identity)));
            }
            for plan in actions.requests {
                self.request(plan);
            }
            let (timer, done) = {
                let core = self.shared.core();
                (core.next_timer(), *self.shared.state() == State::Closing && core.unfinished_batches() == 0)
            };
            if done {
                return;
            }
            let timer = timer.map_or(refresh_at, |timer| refresh_at.min(Instant::from_std(timer)));
            self.requests.wait(&self.shared.wake, timer, |event| self.shared.on_event(event)).await;
            if Instant::now() >= refresh_at {
                refresh_at = Instant::now() + metadata_age_max;
                self.requests.refresh(None);
            }
        }
    }

    fn decide(&mut self) -> ProduceActions {
        let map = self.requests.client().map();
        let mut core = self.shared.core();
        let connected = |target| self.requests.is_connected(target);
        let actions = core.next_actions(Instant::now().into_std(), &map, connected, random());
        let wanted = core.take_metadata_wanted();
        drop(core);
        if let Some(topics) = wanted {
            self.requests.refresh(Some(topics));
        }
        // Deciding may have ended batches that were too late.
        self.shared.progress.notify_waiters();
        actions
    }

    fn request(&mut self, mut plan: ProducePlan) {
        let mut attachments = Vec::with_capacity(plan.partitions.len());
        let partitions = plan.partitions.iter_mut().map(|partition| build(partition, &mut attachments)).collect();
        let (acks, delivery_timeout) = {
            let core = self.shared.core();
            (core.options().acks, core.options().delivery_timeout)
        };
        let timeout = self.requests.client().options().request_timeout.min(delivery_timeout).max(Duration::from_millis(1));
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).min(wire::limits::WAIT_MS_MAX);
        let request = ProduceRequest { acks, timeout_ms, partitions };
        let target = plan.target;
        let answer = move |result: Result<_>| Answer::Produced(plan, result.map(|(reply, _)| reply));
        self.requests.send(target, "produce", &request, attachments, timeout, answer);
    }
}

impl ProducerShared {
    fn on_event(&self, event: Event<Answer>) {
        let now = Instant::now().into_std();
        match event {
            Event::Answered(Answer::Produced(plan, reply)) => {
                self.core().on_reply(now, plan, reply, random());
                self.progress.notify_waiters();
            }
            Event::Answered(Answer::Identified(result)) => {
                self.core().identified(now, result, random());
                self.progress.notify_waiters();
            }
            Event::Connected(target, Ok(())) => self.core().connection_opened(target),
            Event::Refreshed(_) => {}
            Event::Connected(target, Err(error)) => self.core().connection_failed(now, target, &error, random()),
        }
    }
}

fn into_identity(reply: InitProducerReply) -> Result<ProducerIdentity> {
    if reply.error.is_none() {
        return Ok(ProducerIdentity { id: reply.producer_id, epoch: reply.producer_epoch });
    }
    Err(ClientError::broker(reply.error, "identify producer", "", reply.message.as_deref()))
}

fn build(partition: &mut PartitionPlan, attachments: &mut Vec<bytes::Bytes>) -> ProducePartition {
    let first = attachments.len();
    attachments.extend(partition.batches.iter_mut().map(crate::core::producing::Batch::build));
    let length = |batch: &bytes::Bytes| u32::try_from(batch.len()).expect("batches are limited to 32 bits");
    ProducePartition {
        topic: partition.key.topic,
        partition: partition.key.partition,
        batch_lengths: attachments[first..].iter().map(length).collect(),
    }
}
