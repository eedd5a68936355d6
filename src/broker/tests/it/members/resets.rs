//! Groups that retention has passed.

use super::{TOPIC, connect, create, fill, number, options, run};
use crate::support::{Site, stop};
use corelane_client::{Client, ConsumerOptions, GroupConsumer, GroupOptions, Offset, OutOfRange};
use std::time::Duration;

/// The numbers of the next `count` records, which are done.
async fn take(consumer: &GroupConsumer, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let record = consumer.next().await.unwrap();
        numbers.push(number(&record));
        consumer.done(&record);
    }
    numbers.sort_unstable();
    numbers
}

async fn committed(client: &Client, partition: u32) -> Option<Offset> {
    let group = client.admin().describe_group("billing").await.unwrap();
    let part = group.partitions.into_iter().find(|part| part.partition.0 == partition)?;
    Some(part.committed?.offset)
}

/// A group that stands at 10 of 100 records, of which retention has left those from 50 on.
async fn passed_by_retention(client: &Client) {
    create(client, 1).await;
    fill(client, 100).await;
    let consumer = client.group_consumer(GroupOptions { in_flight_max: 1, ..options() });
    while committed(client, 0).await != Some(Offset(10)) {
        let record = consumer.next().await.unwrap();
        if record.offset() < Offset(10) {
            consumer.done(&record);
            consumer.commit().await.unwrap();
        }
    }
    consumer.close().await.unwrap();
    client.admin().delete_records(TOPIC, [(0, Offset(50))]).await.unwrap();
}

fn resetting(out_of_range: OutOfRange) -> GroupOptions {
    GroupOptions { fetch: ConsumerOptions { out_of_range, ..ConsumerOptions::default() }, ..options() }
}

#[test]
fn a_group_that_retention_has_passed_goes_on_as_told_and_its_commit_follows() {
    let site = Site::new();
    let broker = site.start(1);
    run(async {
        let client = connect(broker.addr()).await;
        passed_by_retention(&client).await;
        let consumer = client.group_consumer(resetting(OutOfRange::Earliest));
        // In hand, so that it is the reset alone that is committed.
        let first = consumer.next().await.unwrap();
        assert_eq!(first.offset(), Offset(50));
        consumer.commit().await.unwrap();
        assert_eq!(committed(&client, 0).await, Some(Offset(50)));
        consumer.close().await.unwrap();

        client.admin().delete_records(TOPIC, [(0, Offset(60))]).await.unwrap();
        let consumer = client.group_consumer(resetting(OutOfRange::Latest));
        while committed(&client, 0).await != Some(Offset(100)) {
            assert!(consumer.poll(Duration::from_millis(5)).await.unwrap().is_none());
        }
        consumer.close().await.unwrap();
        // What is written while nobody reads is not missed: the group stands in the log again.
        fill(&client, 3).await;
        let consumer = client.group_consumer(resetting(OutOfRange::Latest));
        assert_eq!(take(&consumer, 3).await, [0, 1, 2]);
        consumer.close().await.unwrap();
    });
    stop(broker);
}
