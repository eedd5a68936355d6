//! Does what the producer's core decides: builds batches, writes requests, brings replies back.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;
use wire::{ProducePartition, ProduceReply, ProduceRequest};

use super::{ProducerShared, State};
use crate::client::{ClientShared, random};
use crate::core::cluster_map::Target;
use crate::core::producing::{PartitionPlan, ProduceActions, ProducePlan};
use crate::error::{ClientError, ErrorKind, Result};
use crate::transport::Frame;

pub(super) struct Driver {
    shared: Arc<ProducerShared>,
    client: Arc<ClientShared>,
    /// What is awaited, each at most until its own timeout.
    events: FuturesUnordered<BoxFuture<'static, Event>>,
    connecting: HashSet<Target>,
    refreshing: bool,
}

enum Event {
    Replied(ProducePlan, Result<ProduceReply>),
    Connected(Target, Result<()>),
    Refreshed,
}

impl Driver {
    pub(super) fn new(shared: Arc<ProducerShared>, client: Arc<ClientShared>) -> Self {
        Self { shared, client, events: FuturesUnordered::new(), connecting: HashSet::new(), refreshing: false }
    }

    /// Runs until the producer is closed and nothing is left.
    pub(super) async fn run(mut self) {
        let mut refresh_at = Instant::now() + self.client.metadata_age_max();
        loop {
            let actions = self.decide();
            self.act(actions);
            let (timer, done) = {
                let core = self.shared.core();
                (core.next_timer(), *self.shared.state() == State::Closing && core.unfinished_batches() == 0)
            };
            if done {
                return;
            }
            let timer = timer.map_or(refresh_at, |timer| refresh_at.min(Instant::from_std(timer)));
            tokio::select! {
                event = self.events.next(), if !self.events.is_empty() => {
                    self.on_event(event.expect("events are not empty"));
                    // Take all that is ready before deciding: what failed together is retried together.
                    while let Some(Some(event)) = self.events.next().now_or_never() {
                        self.on_event(event);
                    }
                }
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep_until(timer) => {}
            }
            if Instant::now() >= refresh_at {
                refresh_at = Instant::now() + self.client.metadata_age_max();
                self.refresh(None);
            }
        }
    }

    fn decide(&mut self) -> ProduceActions {
        let map = self.client.map();
        let pool = self.client.pool();
        let connected = |target| pool.open_connection(target).is_some();
        let mut core = self.shared.core();
        let actions = core.next_actions(Instant::now().into_std(), &map, connected, random());
        let wanted = core.take_metadata_wanted();
        drop(core);
        if let Some(topics) = wanted {
            self.refresh(Some(topics));
        }
        // Deciding may have ended batches that were too late.
        self.shared.progress.notify_waiters();
        actions
    }

    fn act(&mut self, actions: ProduceActions) {
        for target in actions.connect {
            if self.connecting.insert(target) {
                let client = Arc::clone(&self.client);
                let connect = async move { Event::Connected(target, client.connect(target).await.map(drop)) };
                self.events.push(connect.boxed());
            }
        }
        for plan in actions.requests {
            self.request(plan);
        }
    }

    fn request(&mut self, mut plan: ProducePlan) {
        let mut attachments = Vec::with_capacity(plan.partitions.len());
        let partitions = plan.partitions.iter_mut().map(|partition| build(partition, &mut attachments)).collect();
        let (acks, delivery_timeout) = {
            let core = self.shared.core();
            (core.options().acks, core.options().delivery_timeout)
        };
        let timeout = self.client.options().request_timeout.min(delivery_timeout).max(Duration::from_millis(1));
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).min(wire::limits::WAIT_MS_MAX);
        let request = ProduceRequest { acks, timeout_ms, partitions };
        let call = match self.client.pool().open_connection(plan.target) {
            Some(connection) => connection.call("produce", &request, attachments, timeout),
            None => Err(ClientError::new(ErrorKind::Disconnected, "produce", "", "the connection ended")),
        };
        let event = async move {
            let reply = match call {
                Ok(call) => call.await.map(|(reply, _): (ProduceReply, Frame)| reply),
                Err(error) => Err(error),
            };
            Event::Replied(plan, reply)
        };
        self.events.push(event.boxed());
    }

    fn on_event(&mut self, event: Event) {
        let now = Instant::now().into_std();
        match event {
            Event::Replied(plan, reply) => {
                if let Err(error) = &reply {
                    tracing::debug!(%error, "produce request failed");
                }
                self.shared.core().on_reply(now, plan, reply, random());
                self.shared.progress.notify_waiters();
            }
            Event::Connected(target, result) => {
                self.connecting.remove(&target);
                match result {
                    Ok(()) => self.shared.core().connection_opened(target),
                    Err(error) => {
                        tracing::debug!(%error, "connecting failed");
                        self.shared.core().connection_failed(now, target, &error, random());
                    }
                }
            }
            Event::Refreshed => self.refreshing = false,
        }
    }

    fn refresh(&mut self, topics: Option<Vec<String>>) {
        if std::mem::replace(&mut self.refreshing, true) {
            return;
        }
        let client = Arc::clone(&self.client);
        let asked = Instant::now();
        let refresh = async move {
            let known = topics.unwrap_or_else(|| client.map().topic_names());
            if let Err(error) = client.refresh(&known, asked).await {
                tracing::debug!(%error, "metadata not refreshed");
            }
            Event::Refreshed
        };
        self.events.push(refresh.boxed());
    }
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
