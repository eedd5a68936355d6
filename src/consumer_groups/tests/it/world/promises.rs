//! What must hold, at every moment and once nothing is lost any more.

use super::*;

impl World {
    pub(crate) fn check_replay(&self) {
        assert_eq!(everything(&self.replayed()), everything(&self.coordinator), "the log gives the state");
    }

    /// From here on offsets may be gone.
    pub(crate) fn let_offsets_go(&mut self) {
        self.seen.clear();
        self.answered.clear();
    }

    /// What must hold at every moment.
    pub(crate) fn check(&mut self) {
        let mut owners: BTreeMap<PartitionKey, u32> = BTreeMap::new();
        for client in &self.clients {
            for &partition in client.belief.keys() {
                let other = owners.insert(partition, client.number);
                assert_eq!(other, None, "{partition} is owned by {:?} and {other:?}", client.member_id());
            }
        }
        let committed = self.committed();
        for (partition, &before) in &self.seen {
            let now = committed.get(partition).copied();
            assert!(now >= Some(before), "{partition} went back from {before} to {now:?}");
        }
        for (partition, &answered) in &self.answered {
            assert!(committed.get(partition) >= Some(&answered), "{partition}: a commit that was answered is lost");
        }
        self.seen = committed;
    }

    pub(crate) fn committed(&mut self) -> BTreeMap<PartitionKey, Offset> {
        let request = FetchOffsetsRequest { group: "g".to_owned(), partitions: None, after: None };
        let mut outcome = Outcome::default();
        let event = Event::Request { token: Token(0), request: Request::FetchOffsets(request) };
        self.coordinator.handle(self.now, &self.catalog, event, &mut outcome);
        let Some((_, Reply::FetchOffsets(reply))) = outcome.replies.pop() else { panic!("a fetch is answered at once") };
        let fetched = reply.partitions.into_iter();
        fetched.filter_map(|one| Some((PartitionKey::new(one.topic, one.partition), one.committed?.offset))).collect()
    }

    /// Nothing is lost any more: after some heartbeats everything that somebody wants is owned.
    pub(crate) fn heal(&mut self) {
        self.late.clear();
        for round in 0..40 {
            self.make_all_durable();
            self.deliver_dead_letters();
            for client in 0..self.clients.len() {
                self.clients[client].give_up();
                self.beat(client, Fate::Arrives);
                self.make_all_durable();
            }
            self.check();
            self.advance(if round % 2 == 0 { 500 } else { 3_000 });
        }
        self.make_all_durable();
        self.check();
        let living: Vec<&Client> = self.clients.iter().filter(|client| client.is_alive).collect();
        let wanted = living.iter().flat_map(|client| client.topics.iter()).filter_map(|name| self.catalog.0.get(name));
        let wanted: BTreeSet<PartitionKey> =
            wanted.flat_map(|&(topic, count)| (0..count).map(move |n| PartitionKey::new(topic, PartitionIndex(n)))).collect();
        let owned: BTreeSet<PartitionKey> = living.iter().flat_map(|client| client.belief.keys().copied()).collect();
        assert_eq!(owned, wanted, "all that is wanted is owned, and nothing else");
    }
}
