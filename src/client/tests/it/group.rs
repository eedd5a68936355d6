//! Members of a group, against a coordinator that does what it is told.

use std::collections::BTreeSet;

use corelane_client::*;

use crate::mock::Broker;
use crate::{connect, run};

async fn send(client: &Client, partition: u32, value: &str) {
    let producer = client.producer(ProducerOptions::default());
    producer.send(Record::to("t").partition(partition).value(value)).await.unwrap().await.unwrap();
}

#[test]
fn partitions_that_do_not_fit_one_answer_are_read_too() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 5);
        broker.state().group.offsets_at_once = Some(2);
        let client = connect(&broker).await;
        for partition in 0..5 {
            send(&client, partition, "value").await;
        }
        let consumer = client.group_consumer(GroupOptions::new("g", ["t"]));
        let mut read = BTreeSet::new();
        while read.len() < 5 {
            read.insert(consumer.next().await.unwrap().partition());
        }
    });
}

#[test]
fn who_waits_for_a_commit_is_told_when_the_membership_fails() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        broker.state().group.is_silent = true;
        let client = connect(&broker).await;
        send(&client, 0, "value").await;
        let options = GroupOptions { acknowledge: Acknowledge::Explicit, ..GroupOptions::new("g", ["t"]) };
        let consumer = client.group_consumer(options);
        consumer.done(&consumer.next().await.unwrap());
        let refuse = async {
            broker.until(|state| state.group.settle_requests > 0).await;
            broker.state().group.refuses = Some(ErrorCode::InvalidGroupId);
        };
        let (committed, ()) = tokio::join!(consumer.commit(), refuse);
        assert_eq!(committed.unwrap_err().code(), Some(ErrorCode::InvalidGroupId));
        assert_eq!(consumer.close().await.unwrap_err().code(), Some(ErrorCode::InvalidGroupId));
    });
}

#[test]
fn a_commit_waits_for_the_answer_about_what_failed() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        send(&client, 0, "value").await;
        let options = GroupOptions { acknowledge: Acknowledge::Explicit, auto_commit: None, ..GroupOptions::new("g", ["t"]) };
        let consumer = client.group_consumer(options);
        let record = consumer.next().await.unwrap();
        consumer.commit().await.unwrap();
        consumer.fail(&record, "no");
        consumer.close().await.unwrap();
        let committed: Vec<Offset> = broker.state().group.committed.values().copied().collect();
        assert_eq!(committed, [Offset(1)], "the position passes what failed once the coordinator has it");
    });
}
