//! What the drivers of producer and consumer wait for: answers, connections being opened, metadata being refreshed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;
use tokio::time::Instant;
use wire::Request;

use crate::client::ClientShared;
use crate::core::cluster_map::Target;
use crate::error::{ClientError, ErrorKind, Result};
use crate::transport::Frame;

/// Requests under way; `A` is an answer as the driver takes it.
pub(crate) struct Requests<A> {
    client: Arc<ClientShared>,
    /// Each at most until its own timeout.
    waiting: FuturesUnordered<BoxFuture<'static, Event<A>>>,
    connecting: HashSet<Target>,
    refreshing: bool,
}

/// Something that was waited for.
pub(crate) enum Event<A> {
    Answered(A),
    Connected(Target, Result<()>),
    /// Metadata was asked for; these are the topics of which it was answered.
    Refreshed(Vec<String>),
}

impl<A: Send + 'static> Requests<A> {
    pub(crate) fn new(client: Arc<ClientShared>) -> Self {
        Self { client, waiting: FuturesUnordered::new(), connecting: HashSet::new(), refreshing: false }
    }

    pub(crate) fn client(&self) -> &Arc<ClientShared> {
        &self.client
    }

    /// Whether a request to `target` can leave at once.
    pub(crate) fn is_connected(&self, target: Target) -> bool {
        self.client.pool().open_connection(target).is_some()
    }

    /// Opens connections, unless they are being opened.
    pub(crate) fn connect(&mut self, targets: impl IntoIterator<Item = Target>) {
        for target in targets {
            if self.connecting.insert(target) {
                let client = Arc::clone(&self.client);
                let connecting = async move { Event::Connected(target, client.connect(target).await.map(drop)) };
                self.waiting.push(connecting.boxed());
            }
        }
    }

    /// Refreshes the metadata of `topics` (`None`: of all that are known), unless it is being refreshed.
    pub(crate) fn refresh(&mut self, topics: Option<Vec<String>>) {
        if std::mem::replace(&mut self.refreshing, true) {
            return;
        }
        let client = Arc::clone(&self.client);
        let asked = Instant::now();
        let refreshing = async move {
            let topics = topics.unwrap_or_else(|| client.map().topic_names());
            match client.refresh(&topics, asked).await {
                Ok(true) => return Event::Refreshed(topics),
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "metadata not refreshed"),
            }
            Event::Refreshed(Vec::new())
        };
        self.waiting.push(refreshing.boxed());
    }

    /// Asks any broker that answers; the result comes as an event.
    pub(crate) fn ask_any<R: Request + Send + Sync + 'static>(
        &mut self,
        operation: &'static str,
        request: R,
        answer: impl FnOnce(Result<R::Reply>) -> A + Send + 'static,
    ) where
        R::Reply: Send + 'static,
    {
        let client = Arc::clone(&self.client);
        let asking = async move {
            let result = client.call_any(operation, &request).await;
            if let Err(error) = &result {
                tracing::debug!(%error, "request failed");
            }
            Event::Answered(answer(result.map(|(reply, _)| reply)))
        };
        self.waiting.push(asking.boxed());
    }

    /// Queues the request at once; its result comes as an event.
    pub(crate) fn send<R: Request>(
        &mut self,
        target: Target,
        operation: &'static str,
        request: &R,
        attachments: Vec<Bytes>,
        timeout: Duration,
        answer: impl FnOnce(Result<(R::Reply, Frame)>) -> A + Send + 'static,
    ) where
        R::Reply: Send + 'static,
    {
        let call = match self.client.pool().open_connection(target) {
            Some(connection) => connection.call(operation, request, attachments, timeout),
            None => Err(ClientError::new(ErrorKind::Disconnected, operation, "", "the connection ended")),
        };
        let answered = async move {
            let result = async { call?.await }.await;
            if let Err(error) = &result {
                tracing::debug!(%error, "request failed");
            }
            Event::Answered(answer(result))
        };
        self.waiting.push(answered.boxed());
    }

    /// Waits until something ends, `wake` is told, or `until`; then takes all that has ended, because what comes back together is
    /// decided about together.
    pub(crate) async fn wait(&mut self, wake: &Notify, until: Instant, mut on_event: impl FnMut(Event<A>)) {
        tokio::select! {
            mut event = self.waiting.next(), if !self.waiting.is_empty() => {
                while let Some(one) = event {
                    self.note(&one);
                    on_event(one);
                    event = self.waiting.next().now_or_never().flatten();
                }
            }
            () = wake.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }

    fn note(&mut self, event: &Event<A>) {
        match event {
            Event::Answered(_) => {}
            Event::Refreshed(_) => self.refreshing = false,
            Event::Connected(target, result) => {
                self.connecting.remove(target);
                if let Err(error) = result {
                    tracing::debug!(%error, "connecting failed");
                }
            }
        }
    }
}
