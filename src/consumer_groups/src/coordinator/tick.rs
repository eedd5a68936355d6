//! What happens when nothing happens: sessions end, waits end, dead groups are forgotten.

use wire::{PartitionKey, TimestampMs};

use super::Coordinator;
use crate::group::grace_end;
use crate::ids::GroupId;
use crate::now::Now;
use crate::outcome::Outcome;
use crate::topics::Topics;

impl Coordinator {
    pub(super) fn tick(&mut self, now: Now, topics: &dyn Topics, is_wall_trusted: bool, outcome: &mut Outcome) {
        // Each group once, however soon it is to be looked at again.
        let due = self.timers.iter().take_while(|(at_ms, _)| *at_ms <= now.steady_ms);
        let due: Vec<GroupId> = due.map(|(_, id)| id.clone()).collect();
        for id in due {
            self.tick_group(now, topics, &id, is_wall_trusted, outcome);
        }
    }

    fn tick_group(&mut self, now: Now, topics: &dyn Topics, id: &GroupId, is_wall_trusted: bool, outcome: &mut Outcome) {
        let (retention_ms, loaded_at) = (self.options.offsets_retention_ms, self.loaded_at);
        let Some(group) = self.groups.get_mut(id) else { return };
        if group.membership.expire(now.steady_ms) {
            group.membership.retarget(topics);
        }
        if is_wall_trusted && group.expires_at(retention_ms, loaded_at).is_some_and(|at| at <= now.wall) {
            outcome.expired.push(id.clone());
            if !group.has_settings() {
                return self.delete(id, outcome);
            }
            group.forget_positions();
        }
        if let (false, Some(retention_ms)) = (group.membership.is_empty(), group.retention_ms(retention_ms))
            && is_wall_trusted
            && grace_end(loaded_at, retention_ms) <= now.wall
        {
            let before = TimestampMs(now.wall.0.saturating_sub(retention_ms as i64));
            let is_left_behind = |partition: PartitionKey| {
                let name = topics.by_id(partition.topic).map(|topic| topic.name);
                !name.is_some_and(|name| group.membership.is_subscribed(name))
            };
            let old = group.offsets.iter().filter(|(_, committed)| committed.at < before).map(|(partition, _)| partition);
            // What is still to be tried there keeps the position.
            let idle = old.filter(|&partition| !group.retries.has_parked(partition));
            let expired: Vec<PartitionKey> = idle.filter(|&partition| is_left_behind(partition)).collect();
            expired.into_iter().for_each(|partition| _ = group.offsets.remove(partition));
        }
        for member in group.membership.due_waiting(now.steady_ms) {
            self.answer_waiting(topics, id, &member, outcome);
        }
        self.finish(now, topics, id, outcome);
        self.set_timer(now, id);
    }
}
