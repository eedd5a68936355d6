//! What must be there after a restart, and the comparison with what is there.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use corelane_client::{Client, ConsumerOptions, Offset, OffsetAt, StartAt};
use tokio::time::timeout;

use crate::message;

/// No batch for that long while more must come: reading hangs.
const READ_GUARD: Duration = Duration::from_secs(60);

/// Everything known about every partition.
pub(crate) struct Ledger {
    topics: Vec<Topic>,
    next_number: u64,
    lost_at_the_end: usize,
}

struct Topic {
    name: &'static str,
    /// Whether an acknowledgement means stable storage.
    stable: bool,
    partitions: Vec<Partition>,
}

#[derive(Default)]
struct Partition {
    /// Message by offset, read after an earlier restart: it may never change again.
    read: BTreeMap<u64, u64>,
    /// Message by offset, acknowledged since.
    acknowledged: BTreeMap<u64, u64>,
}

impl Ledger {
    /// An empty ledger for topics by name, with whether they are stable.
    pub(crate) fn new(topics: impl IntoIterator<Item = (&'static str, bool)>, partitions: u32) -> Ledger {
        let partitions = || (0..partitions).map(|_| Partition::default()).collect();
        let topics = topics.into_iter().map(|(name, stable)| Topic { name, stable, partitions: partitions() }).collect();
        Ledger { topics, next_number: 0, lost_at_the_end: 0 }
    }

    /// Every partition of every topic.
    pub(crate) fn partitions(&self) -> Vec<(&'static str, u32)> {
        let of = |topic: &Topic| (0..topic.partitions.len() as u32).map(|partition| (topic.name, partition)).collect::<Vec<_>>();
        self.topics.iter().flat_map(of).collect()
    }

    /// A number that no message has had.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Enters an acknowledgement.
    pub(crate) fn acknowledged(&mut self, topic: &str, partition: u32, offset: Offset, number: u64) {
        let topic = self.topics.iter_mut().find(|found| found.name == topic).expect("a topic of the ledger");
        let before = topic.partitions[partition as usize].acknowledged.insert(offset.0, number);
        assert_eq!(before, None, "{}/{partition}: offset {} was acknowledged twice", topic.name, offset.0);
    }

    /// From now on relaxed topics too must hold what they acknowledge.
    pub(crate) fn expect_everything(&mut self) {
        self.topics.iter_mut().for_each(|topic| topic.stable = true);
    }

    /// Reads every topic from the beginning, compares, and enters what was read.
    pub(crate) async fn check(&mut self, client: &Client) {
        let mut place_of = HashMap::new();
        for topic in &mut self.topics {
            for (partition, found) in read_all(client, topic.name, topic.partitions.len() as u32).await.into_iter().enumerate() {
                let place = format!("{}/{partition}", topic.name);
                for (&offset, &number) in &found {
                    assert!(number < self.next_number, "{place}: offset {offset} holds message {number}, which was never sent");
                    if let Some(other) = place_of.insert(number, (place.clone(), offset)) {
                        panic!("message {number} is at {other:?} and at {place} {offset}");
                    }
                }
                let known = &mut topic.partitions[partition];
                self.lost_at_the_end += known.compare(&place, &found, topic.stable);
                *known = Partition { read: found, acknowledged: BTreeMap::new() };
            }
        }
    }
}

impl Partition {
    /// Compares with what was found; returns how many acknowledged records a relaxed topic has lost at its end.
    fn compare(&self, place: &str, found: &BTreeMap<u64, u64>, stable: bool) -> usize {
        let end = found.len() as u64;
        for (offset, number) in &self.read {
            assert_eq!(found.get(offset), Some(number), "{place}: what was read earlier at offset {offset} has changed");
        }
        let lost = self.acknowledged.range(end..).count();
        assert!(!stable || lost == 0, "{place}: {lost} acknowledged records are lost: the log ends at {end}");
        for (offset, number) in self.acknowledged.range(..end) {
            assert_eq!(found.get(offset), Some(number), "{place}: offset {offset} holds something else than was acknowledged");
        }
        lost
    }
}

/// Messages by offset of each partition, checked to the last byte, without holes from offset 0 to the end.
async fn read_all(client: &Client, topic: &str, partitions: u32) -> Vec<BTreeMap<u64, u64>> {
    let latest = client.admin().list_offsets(topic, 0..partitions, OffsetAt::Latest).await.expect("the offsets");
    let ends: Vec<u64> = latest.iter().map(|found| found.offset.0).collect();
    let mut found = vec![BTreeMap::new(); partitions as usize];
    let consumer = client.consumer(ConsumerOptions::default());
    consumer.assign_all(topic, StartAt::Earliest).await.expect("an assignment");
    while found.iter().zip(&ends).any(|(found, &end)| (found.len() as u64) < end) {
        let batch = timeout(READ_GUARD, consumer.next_batch()).await;
        let batch = batch.unwrap_or_else(|_| panic!("{topic}: reading hangs before the ends {ends:?}")).expect("a batch");
        let partition = &mut found[batch.partition() as usize];
        for record in batch.records() {
            let (place, offset) = (batch.partition(), record.offset.0);
            assert_eq!(offset, partition.len() as u64, "{topic}/{place}: offsets are not in order, or have holes");
            let number = message::number(record.value).unwrap_or_else(|wrong| panic!("{topic}/{place} {offset}: {wrong}"));
            partition.insert(offset, number);
        }
    }
    for ((partition, found), &end) in found.iter().enumerate().zip(&ends) {
        assert_eq!(found.len() as u64, end, "{topic}/{partition}: more records than the end says");
    }
    found
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records: usize = self.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.read.len()).sum();
        write!(f, "{records} records hold; relaxed topics have lost {} at their ends", self.lost_at_the_end)
    }
}
