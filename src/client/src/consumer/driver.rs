//! Does what the consumer's core decides: fetches, looks offsets up, brings answers back.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;
use wire::{FetchPartition, FetchReply, FetchRequest, ListOffsetsPartition, ListOffsetsReply, ListOffsetsRequest, Request};

use super::ConsumerShared;
use crate::client::{ClientShared, random};
use crate::core::cluster_map::Target;
use crate::core::fetching::{FetchActions, FetchPlan, LookupPlan};
use crate::error::{ClientError, ErrorKind, Result};
use crate::options::ConsumerOptions;
use crate::transport::Frame;

pub(super) struct Driver {
    shared: Arc<ConsumerShared>,
    client: Arc<ClientShared>,
    options: ConsumerOptions,
    events: FuturesUnordered<BoxFuture<'static, Event>>,
    connecting: HashSet<Target>,
    refreshing: bool,
}

enum Event {
    Fetched(FetchPlan, Result<(FetchReply, Frame)>),
    LookedUp(LookupPlan, Result<ListOffsetsReply>),
    Connected(Target, Result<()>),
    Refreshed,
}

impl Driver {
    pub(super) fn new(shared: Arc<ConsumerShared>, client: Arc<ClientShared>) -> Self {
        let options = shared.core().options().clone();
        Self { shared, client, options, events: FuturesUnordered::new(), connecting: HashSet::new(), refreshing: false }
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        loop {
            let actions = self.decide();
            self.act(actions);
            let now = Instant::now();
            let timer = self.shared.core().next_timer(now.into_std());
            let timer = timer.map_or(now + self.client.metadata_age_max(), Instant::from_std);
            tokio::select! {
                event = self.events.next(), if !self.events.is_empty() => {
                    self.on_event(event.expect("events are not empty"));
                    // Take all that is ready before deciding: partitions that come back together are asked for together.
                    while let Some(Some(event)) = self.events.next().now_or_never() {
                        self.on_event(event);
                    }
                }
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep_until(timer) => {}
            }
        }
    }

    fn decide(&mut self) -> FetchActions {
        let map = self.client.map();
        let pool = self.client.pool();
        let connected = |target| pool.open_connection(target).is_some();
        let mut core = self.shared.core();
        let actions = core.next_actions(Instant::now().into_std(), &map, connected, random());
        let wanted = core.take_metadata_wanted();
        let buffered = core.has_buffered();
        drop(core);
        if buffered {
            self.shared.arrived.notify_one();
        }
        if let Some(topics) = wanted
            && !std::mem::replace(&mut self.refreshing, true)
        {
            let client = Arc::clone(&self.client);
            let asked = Instant::now();
            let refresh = async move {
                if let Err(error) = client.refresh(&topics, asked).await {
                    tracing::debug!(%error, "metadata not refreshed");
                }
                Event::Refreshed
            };
            self.events.push(refresh.boxed());
        }
        actions
    }

    fn act(&mut self, actions: FetchActions) {
        for target in actions.connect {
            if self.connecting.insert(target) {
                let client = Arc::clone(&self.client);
                let connect = async move { Event::Connected(target, client.connect(target).await.map(drop)) };
                self.events.push(connect.boxed());
            }
        }
        for plan in actions.lookups {
            let partitions = plan.partitions.iter().map(|part| ListOffsetsPartition {
                topic: part.key.topic,
                partition: part.key.partition,
                at: part.at,
            });
            let request = ListOffsetsRequest { partitions: partitions.collect() };
            let call = self.call(plan.target, "list offsets", &request, std::time::Duration::ZERO);
            self.events.push(async move { Event::LookedUp(plan, call.await.map(|(reply, _)| reply)) }.boxed());
        }
        for plan in actions.fetches {
            let request = self.fetch_request(&plan);
            let call = self.call(plan.target, "fetch", &request, self.options.max_wait);
            self.events.push(async move { Event::Fetched(plan, call.await) }.boxed());
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

    /// Queues the request at once; the future is its answer.
    fn call<R: Request>(
        &self,
        target: Target,
        operation: &'static str,
        request: &R,
        wait: std::time::Duration,
    ) -> BoxFuture<'static, Result<(R::Reply, Frame)>>
    where
        R::Reply: Send + 'static,
    {
        let timeout = self.client.options().request_timeout + wait;
        let call = match self.client.pool().open_connection(target) {
            Some(connection) => connection.call(operation, request, Vec::new(), timeout),
            None => Err(ClientError::new(ErrorKind::Disconnected, operation, "", "the connection ended")),
        };
        async move { call?.await }.boxed()
    }

    fn on_event(&mut self, event: Event) {
        let now = Instant::now().into_std();
        let mut core = self.shared.core();
        match event {
            Event::Fetched(plan, reply) => core.on_fetched(now, plan, reply, random()),
            Event::LookedUp(plan, reply) => core.on_looked_up(now, plan, reply, random()),
            Event::Connected(target, result) => {
                self.connecting.remove(&target);
                if let Err(error) = result {
                    tracing::debug!(%error, "connecting failed");
                    core.connection_failed(now, target, &self.client.map(), &error, random());
                }
            }
            Event::Refreshed => self.refreshing = false,
        }
    }
}
