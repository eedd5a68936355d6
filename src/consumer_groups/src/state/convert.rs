//! Members as they are stored, and back.

use std::collections::BTreeMap;

use wire::{PartitionKey, TopicId};

use super::{HoldingValue, HoldingsValue, MemberValue, OffsetValue, PresenceValue, TargetValue};
use crate::ids::InstanceId;
use crate::membership::{Client, Holding, Member, Presence};
use crate::offsets::Committed;

impl From<&Member> for MemberValue {
    fn from(member: &Member) -> MemberValue {
        let holding = |(&partition, holding): (&PartitionKey, &Holding)| {
            let value = HoldingValue { partition: partition.partition, granted: holding.granted, revoked: holding.revoked };
            (partition.topic, value)
        };
        let target = member.target.iter().map(|partition| (partition.topic, partition.partition));
        MemberValue {
            instance: member.instance.as_ref().map(|instance| instance.as_str().to_owned()),
            presence: match member.presence {
                Presence::Here => PresenceValue::Here,
                Presence::Away => PresenceValue::Away,
                Presence::Replaced => PresenceValue::Replaced,
            },
            joined: member.joined,
            epoch: member.epoch,
            topics: member.topics.clone(),
            assignor: member.assignor,
            session_timeout_ms: member.session_timeout_ms,
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            client_id: member.client.id.clone(),
            host: member.client.host.clone(),
            target: by_topic(target).into_iter().map(|(topic, partitions)| TargetValue { topic, partitions }).collect(),
            holdings: by_topic(member.holdings.iter().map(holding))
                .into_iter()
                .map(|(topic, partitions)| HoldingsValue { topic, partitions })
                .collect(),
        }
    }
}

fn by_topic<T>(items: impl Iterator<Item = (TopicId, T)>) -> BTreeMap<TopicId, Vec<T>> {
    let mut topics: BTreeMap<TopicId, Vec<T>> = BTreeMap::new();
    items.for_each(|(topic, item)| topics.entry(topic).or_default().push(item));
    topics
}

impl From<MemberValue> for Member {
    fn from(value: MemberValue) -> Member {
        let target =
            value.target.iter().flat_map(|of| of.partitions.iter().map(|&partition| PartitionKey::new(of.topic, partition)));
        let mut target: Vec<PartitionKey> = target.collect();
        // What was stored is in order; other bytes must not break what relies on it.
        target.sort_unstable();
        target.dedup();
        let holdings = value.holdings.iter().flat_map(|of| {
            let holding = |held: &HoldingValue| Holding { revoked: held.revoked, ..Holding::new(held.granted) };
            of.partitions.iter().map(move |held| (PartitionKey::new(of.topic, held.partition), holding(held)))
        });
        Member {
            instance: value.instance.as_deref().map(InstanceId::from),
            presence: match value.presence {
                PresenceValue::Here => Presence::Here,
                PresenceValue::Away => Presence::Away,
                PresenceValue::Replaced => Presence::Replaced,
            },
            joined: value.joined,
            epoch: value.epoch,
            assignor: value.assignor,
            session_timeout_ms: value.session_timeout_ms,
            rebalance_timeout_ms: value.rebalance_timeout_ms,
            client: Client { id: value.client_id, host: value.host },
            revoked: value.holdings.iter().flat_map(|of| &of.partitions).filter(|held| held.revoked.is_some()).count(),
            holdings: holdings.collect(),
            target,
            topics: value.topics,
            session_ends_ms: 0,
            is_confirmed: false,
            waiting: None,
        }
    }
}

impl From<&Committed> for OffsetValue {
    fn from(committed: &Committed) -> OffsetValue {
        OffsetValue { position: committed.position.clone(), at: committed.at }
    }
}

impl From<OffsetValue> for Committed {
    fn from(value: OffsetValue) -> Committed {
        Committed { position: value.position, at: value.at }
    }
}
