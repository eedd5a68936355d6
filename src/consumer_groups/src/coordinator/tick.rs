//! What happens when nothing happens: sessions end, waits end, dead groups are forgotten.

use wire::{PartitionKey, TimestampMs};

use super::Coordinator;
use crate::ids::GroupId;
use crate::now::Now;
use crate::outcome::Outcome;
use crate::topics::Topics;

impl Coordinator {
    pub(super) fn tick(&mut self, now: Now, topics: &dyn Topics, outcome: &mut Outcome) {
        // Each group once, however soon it is to be looked at again.
        let due = self.timers.iter().take_while(|(at_ms, _)| *at_ms <= now.steady_ms);
        let due: Vec<GroupId> = due.map(|(_, id)| id.clone()).collect();
        for id in due {
            self.tick_group(now, topics, &id, outcome);
        }
    }

    fn tick_group(&mut self, now: Now, topics: &dyn Topics, id: &GroupId, outcome: &mut Outcome) {
        let retention_ms = self.options.offsets_retention_ms;
        let Some(group) = self.groups.get_mut(id) else { return };
        if group.membership.expire(now.steady_ms) {
            group.membership.retarget(topics);
        }
        if group.expires_at(retention_ms).is_some_and(|at| at <= now.wall) {
            return self.delete(id, outcome);
        }
        if let (false, Some(retention_ms)) = (group.membership.is_empty(), group.retention_ms(retention_ms)) {
            let before = TimestampMs(now.wall.0.saturating_sub(retention_ms as i64));
            let is_left_behind = |partition: PartitionKey| {
                let name = topics.by_id(partition.topic).map(|topic| topic.name);
                !name.is_some_and(|name| group.membership.is_subscribed(name))
            };
            let old = group.offsets.iter().filter(|(_, committed)| committed.at < before);
            let expired: Vec<PartitionKey> =
                old.map(|(partition, _)| partition).filter(|&partition| is_left_behind(partition)).collect();
            expired.into_iter().for_each(|partition| _ = group.offsets.remove(partition));
        }
        for member in group.membership.due_waiting(now.steady_ms) {
            self.answer_waiting(topics, id, &member, outcome);
        }
        self.finish(now, topics, id, outcome);
        self.set_timer(now, id);
    }
}
