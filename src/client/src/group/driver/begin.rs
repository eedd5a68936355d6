//! Asks where to begin in the partitions that were given, and begins.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use wire::{FetchOffsetsReply, FetchOffsetsRequest, ListOffsetsPartition, ListOffsetsReply, ListOffsetsRequest, PartitionKey};

use super::{Driver, Event, Reading};
use crate::client::random;
use crate::consumer::StartAt;
use crate::core::beginning::{Begun, StandPlan, StartPlan};
use crate::core::cluster_map::Target;
use crate::error::Result;

impl Driver {
    /// Where does the group stand?
    pub(super) fn ask_where_to_begin(&mut self, coordinator: Target, now: Instant) {
        while let Some(plan) = self.beginning.next_stand(now.into_std()) {
            let request = FetchOffsetsRequest { group: self.options.group.clone(), partitions: Some(plan.keys()), after: None };
            self.call(coordinator, "fetch offsets", request, Duration::ZERO, move |reply| Event::Stood(plan, reply));
        }
    }

    /// Where does the log of a partition begin in which the group never stood?
    pub(super) fn ask_leaders(&mut self, now: Instant) {
        for plan in self.beginning.next_starts(now.into_std(), &self.client.map(), random()) {
            let partitions = plan.partitions.iter().map(|part| ListOffsetsPartition {
                topic: part.key.topic,
                partition: part.key.partition,
                at: part.at,
            });
            let request = ListOffsetsRequest { partitions: partitions.collect() };
            self.call(plan.target, "list offsets", request, Duration::ZERO, move |reply| Event::Started(plan, reply));
        }
        if !self.is_refreshing
            && let Some(topics) = self.beginning.take_metadata_wanted()
        {
            self.is_refreshing = true;
            let (client, asked) = (Arc::clone(&self.client), Instant::now());
            let refreshed = async move {
                if let Err(error) = client.refresh(&topics, asked).await {
                    tracing::debug!(%error, "metadata not refreshed");
                }
                Event::Refreshed
            };
            self.waiting.push(refreshed.boxed());
        }
    }

    pub(super) fn stood(&mut self, plan: &StandPlan, reply: Result<FetchOffsetsReply>) {
        let now = Instant::now().into_std();
        match reply {
            Ok(reply) if reply.error.is_none() => {
                let begun = self.beginning.stood(now, plan, reply.partitions, random());
                self.begin(begun);
            }
            Ok(reply) => {
                self.beginning.stand_lost(now, plan, random());
                self.refused(reply.error);
            }
            Err(error) => {
                self.beginning.stand_lost(now, plan, random());
                self.failed(&error);
            }
        }
    }

    pub(super) fn started(&mut self, plan: &StartPlan, reply: Result<ListOffsetsReply>) {
        let (begun, errors) = self.beginning.started(Instant::now().into_std(), plan, reply, random());
        self.begin(begun);
        self.shared.state().errors.extend(errors);
    }

    fn begin(&mut self, begun: Vec<Begun>) {
        for Begun { fetched, start } in begun {
            let key = PartitionKey::new(fetched.topic, fetched.partition);
            let name = Arc::clone(self.membership.name(key.topic).expect("what is held is named"));
            let assignment = self.shared.state().core.assign(&fetched, start);
            self.consumer.assign_key(key, &name, StartAt::Offset(start));
            self.reading.insert(key, Reading { assignment, next: None, is_paused: false });
        }
    }
}
