//! Topics that change under the members that read them.

use super::*;
use corelane_client::TopicConfigChanges;

/// One record to a partition, by its number.
async fn send(client: &Client, partition: u32, number: u64) {
    let producer = client.producer(ProducerOptions::default());
    let value = number.to_string();
    producer.send(Record::to(TOPIC).partition(partition).value(&value)).await.unwrap().await.unwrap();
}

#[test]
fn a_member_reads_partitions_that_its_topic_gets_later() {
    let site = Site::new();
    let broker = site.start(2);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 2).await;
        send(&client, 0, 0).await;
        let consumer = client.group_consumer(options());
        assert_eq!(number(&consumer.next().await.unwrap()), 0);

        // By another client: this one's metadata knows nothing of it.
        let operator = connect(broker.addr()).await;
        let changes = TopicConfigChanges { partitions: Some(4), ..TopicConfigChanges::default() };
        operator.admin().alter_topic(TOPIC, changes).await.unwrap();
        for partition in 0..4 {
            send(&operator, partition, 10 + u64::from(partition)).await;
        }
        let mut numbers = BTreeSet::new();
        while numbers.len() < 4 {
            numbers.insert(number(&consumer.next().await.unwrap()));
        }
        assert_eq!(numbers, [10, 11, 12, 13].into());
        consumer.close().await.unwrap();
    });
    stop(broker);
}

#[test]
fn a_member_reads_a_topic_that_is_deleted_and_made_again_under_it() {
    let site = Site::new();
    let broker = site.start(2);
    run(async {
        let client = connect(broker.addr()).await;
        let consumer = client.group_consumer(options());
        // Topics have random ids: which of the two comes first differs.
        for round in 0..8 {
            let operator = connect(broker.addr()).await;
            if round > 0 {
                operator.admin().delete_topic(TOPIC).await.unwrap();
            }
            create(&operator, 2).await;
            let expected: BTreeSet<u64> = (0..6).map(|number| round * 10 + number).collect();
            for number in &expected {
                send(&operator, (number % 2) as u32, *number).await;
            }
            let mut numbers = BTreeSet::new();
            while numbers.len() < expected.len() {
                match consumer.next().await {
                    Ok(record) => {
                        numbers.insert(self::number(&record));
                        consumer.done(&record);
                    }
                    Err(error) => assert_eq!(error.code(), Some(ErrorCode::UnknownTopicOrPartition), "{error}"),
                }
            }
            assert_eq!(numbers, expected);
        }
        consumer.close().await.unwrap();
    });
    stop(broker);
}
