//! Topics come, grow and go.

use wire::TopicId;

use super::Coordinator;
use crate::ids::GroupId;
use crate::now::Now;
use crate::outcome::Outcome;
use crate::topics::Topics;

impl Coordinator {
    pub(super) fn topics_changed(&mut self, now: Now, topics: &dyn Topics, names: &[String], outcome: &mut Outcome) {
        let concerned = self.groups.iter().filter(|(_, group)| names.iter().any(|name| group.membership.is_subscribed(name)));
        let concerned: Vec<GroupId> = concerned.map(|(id, _)| id.clone()).collect();
        for id in concerned {
            self.groups.get_mut(&id).expect("just found").membership.refresh(topics);
            self.finish(now, topics, &id, outcome);
        }
    }

    /// What groups know of a topic goes with it.
    pub(super) fn topic_deleted(&mut self, now: Now, topics: &dyn Topics, id: TopicId, name: &str, outcome: &mut Outcome) {
        let groups: Vec<GroupId> = self.groups.keys().cloned().collect();
        for group_id in groups {
            let group = self.groups.get_mut(&group_id).expect("just listed");
            let had_state = group.drop_topic(id);
            let is_subscribed = group.membership.is_subscribed(name);
            if is_subscribed {
                group.membership.refresh(topics);
            }
            if is_subscribed || had_state {
                self.finish(now, topics, &group_id, outcome);
            }
        }
    }
}
