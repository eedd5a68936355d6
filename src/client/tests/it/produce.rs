//! Producing: order, batching, retries, bounds.

use std::time::Duration;

use bytes::Bytes;
use corelane_client::*;
use futures_util::FutureExt;
use wire::{BatchBuilder, BuilderOptions};

use crate::mock::{Broker, Fault};
use crate::{connect, run};

#[test]
fn records_arrive_in_order_with_offsets() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        run(async {
            let broker = Broker::start().await;
            let topic = broker.create("t", 1);
            let client = connect(&broker).await;
            let options = ProducerOptions { compression: Some(compression), ..ProducerOptions::default() };
            let producer = client.producer(options);
            let mut deliveries = Vec::new();
            for index in 0..1000 {
                let value = format!("value {index}");
                deliveries.push(producer.send(Record::to("t").key("k").value(&value).header("h", "x")).await.unwrap());
            }
            producer.flush().await.unwrap();
            for (index, delivery) in deliveries.into_iter().enumerate() {
                let delivery = delivery.try_get().expect("flush waited for it").unwrap();
                assert_eq!(delivery.offset, Offset(index as u64));
                assert_eq!(delivery.level, AckLevel::Stable);
            }
            let expected: Vec<String> = (0..1000).map(|index| format!("value {index}")).collect();
            assert_eq!(broker.values(topic, 0), expected);
            assert!(broker.state().produced.len() < 1000, "records share batches");
        });
    }
}

#[test]
fn a_lone_record_leaves_at_once_and_a_lingering_one_waits_for_company() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions::default());
        producer.send(Record::to("t").value("alone")).await.unwrap().await.unwrap();

        let options = ProducerOptions { linger: Duration::from_secs(3600), ..ProducerOptions::default() };
        let lingering = client.producer(options);
        let first = lingering.send(Record::to("t").value("1")).await.unwrap();
        let second = lingering.send(Record::to("t").value("2")).await.unwrap();
        assert!(first.try_get().is_none());
        lingering.flush().await.unwrap();
        assert_eq!(first.await.unwrap().offset, Offset(1));
        assert_eq!(second.await.unwrap().offset, Offset(2));
        assert_eq!(broker.state().produced.len(), 2, "both in one batch");

        let options = ProducerOptions { linger: Duration::from_millis(5), ..ProducerOptions::default() };
        let soon = client.producer(options);
        assert_eq!(soon.send(Record::to("t").value("3")).await.unwrap().await.unwrap().offset, Offset(3));
    });
}

#[test]
fn each_shard_has_one_connection_and_a_key_its_partition() {
    run(async {
        let broker = Broker::start().await;
        let topic = broker.create("t", 7);
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions::default());
        for index in 0..200 {
            let key = format!("key {}", index % 20);
            producer.send(Record::to("t").key(&key).value(&key)).await.unwrap().await.unwrap();
        }
        for partition in 0..7 {
            for key in broker.values(topic, partition) {
                assert_eq!(wire::partition_for_key(key.as_bytes(), 7).0, partition);
            }
        }
        // The first greeting names no shard and gets shard 0; shard 1 is asked for by name.
        assert_eq!(broker.state().hellos, [None, Some(1)]);
    });
}

#[test]
fn order_holds_through_failures_of_every_kind() {
    let faults = [
        Fault::Code(ErrorCode::Overloaded),
        Fault::DropBefore,
        Fault::Code(ErrorCode::NotLeader),
        Fault::Code(ErrorCode::UnknownTopicOrPartition),
        Fault::DropBefore,
        Fault::Code(ErrorCode::DiskFull),
    ];
    run(async {
        let broker = Broker::start().await;
        let topic = broker.create("t", 3);
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions { batch_bytes: 2000, ..ProducerOptions::default() });
        let mut deliveries = Vec::new();
        for index in 0..600 {
            if index % 100 == 50 {
                broker.state().produce_faults.push_back(faults[index / 100]);
            }
            let value = format!("{index}");
            let record = Record::to("t").partition(u32::try_from(index % 3).unwrap()).value(&value);
            deliveries.push(producer.send(record).await.unwrap());
            tokio::task::yield_now().await;
        }
        for delivery in deliveries {
            delivery.await.unwrap();
        }
        for partition in 0..3 {
            let expected: Vec<String> = (0..600).filter(|index| index % 3 == partition).map(|index| format!("{index}")).collect();
            assert_eq!(broker.values(topic, partition), expected);
        }
    });
}

#[test]
fn a_lost_answer_is_sent_again_and_stored_once_unless_nobody_counts() {
    run(async {
        let broker = Broker::start().await;
        let topic = broker.create("t", 1);
        let client = connect(&broker).await;
        broker.state().produce_faults.push_back(Fault::DropAfter);
        let producer = client.producer(ProducerOptions::default());
        producer.send(Record::to("t").value("a")).await.unwrap().await.unwrap();
        assert_eq!(broker.values(topic, 0), ["a"]);

        broker.state().produce_faults.push_back(Fault::DropAfter);
        let uncounted = client.producer(ProducerOptions { idempotent: false, ..ProducerOptions::default() });
        uncounted.send(Record::to("t").value("x")).await.unwrap().await.unwrap();
        assert_eq!(broker.values(topic, 0), ["a", "x", "x"]);
        assert_eq!(broker.state().producers, 1);

        broker.state().produce_faults.push_back(Fault::DropAfter);
        let once = client.producer(ProducerOptions { retries: false, ..ProducerOptions::default() });
        let error = once.send(Record::to("t").value("b")).await.unwrap().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected);
        assert!(error.retryable());
        assert!(error.place().starts_with("t/0"), "{error}");
        assert_eq!(broker.values(topic, 0), ["a", "x", "x", "b"]);
    });
}

#[test]
fn while_one_request_is_unanswered_records_gather_and_other_partitions_go_on() {
    run(async {
        let broker = Broker::start().await;
        let topic = broker.create("t", 3);
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions::default());
        broker.state().produce_faults.push_back(Fault::Hold);
        let held = producer.send(Record::to("t").partition(0).value("0")).await.unwrap();
        broker.until(|state| state.produced.len() == 1).await;
        let mut gathered = Vec::new();
        for index in 1..50 {
            let value = index.to_string();
            gathered.push(producer.send(Record::to("t").partition(0).value(&value)).await.unwrap());
        }
        // Partition 2 is on the same shard and connection.
        producer.send(Record::to("t").partition(2).value("x")).await.unwrap().await.unwrap();
        assert!(held.try_get().is_none());
        broker.release();
        held.await.unwrap();
        for delivery in gathered {
            delivery.await.unwrap();
        }
        assert_eq!(broker.values(topic, 0).len(), 50);
        assert_eq!(broker.state().produced.len(), 3, "what gathered left as one batch");
    });
}

#[test]
fn a_batch_at_fault_fails_alone() {
    run(async {
        let broker = Broker::start().await;
        let topic = broker.create("t", 1);
        broker.state().topics.get_mut("t").unwrap().1.message_bytes_max = 4096;
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions::default());
        broker.state().produce_faults.push_back(Fault::Hold);
        let first = producer.send(Record::to("t").value("first")).await.unwrap();
        broker.until(|state| state.produced.len() == 1).await;
        // Three prebuilt batches gather into one request; the middle one is above the topic's limit.
        let mut deliveries = Vec::new();
        for bytes in [100, 8000, 200] {
            deliveries.push(producer.send_batch("t", 0, batch(bytes)).await.unwrap());
        }
        broker.release();
        assert_eq!(first.await.unwrap().offset, Offset(0));
        let results: Vec<_> = futures_util::future::join_all(deliveries).await;
        assert_eq!(results[0].as_ref().unwrap().offset, Offset(1));
        assert_eq!(results[1].as_ref().unwrap_err().code(), Some(ErrorCode::MessageTooLarge));
        assert_eq!(results[2].as_ref().unwrap().offset, Offset(2));
        assert_eq!(broker.values(topic, 0).len(), 3);
    });
}

fn batch(value_bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    builder.push(TimestampMs(1), None, Some(&vec![b'v'; value_bytes]), &[]).unwrap();
    Bytes::from_owner(builder.build())
}

#[test]
fn what_is_not_a_batch_is_refused_before_it_is_sent() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions::default());
        let whole = batch(100);
        for bytes in [Bytes::new(), whole.slice(..whole.len() - 16), whole.slice(16..)] {
            let error = producer.send_batch("t", 0, bytes).await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        assert!(broker.state().produced.is_empty());
    });
}

#[test]
fn memory_is_bounded_and_given_back() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions { buffer_bytes_max: 10_000, ..ProducerOptions::default() });
        let value = vec![0; 4000];
        broker.state().produce_faults.push_back(Fault::Hold);
        let first = producer.send(Record::to("t").value(&value)).await.unwrap();
        let second = producer.try_send(Record::to("t").value(&value)).unwrap();
        let error = producer.try_send(Record::to("t").value(&value)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::BufferFull);
        assert!(error.retryable());
        let error = producer.send(Record::to("t").value(&vec![0; 20_000])).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let mut waiting = Box::pin(producer.send(Record::to("t").value(&value)));
        assert!(waiting.as_mut().now_or_never().is_none());
        broker.until(|state| !state.produced.is_empty()).await;
        broker.release();
        let third = waiting.await.unwrap();
        for delivery in [first, second, third] {
            delivery.await.unwrap();
        }
        assert_eq!(producer.stats(), ProducerStats { unfinished_batches: 0, buffered_bytes: 0 });
    });
}

#[test]
fn delivery_gives_up_after_its_timeout_and_says_why() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 1);
        let client = connect(&broker).await;
        broker.state().produce_faults.extend([Fault::Code(ErrorCode::Overloaded); 10_000]);
        let options = ProducerOptions { delivery_timeout: Duration::from_millis(100), ..ProducerOptions::default() };
        let producer = client.producer(options);
        let error = producer.send(Record::to("t").value("x")).await.unwrap().await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::Overloaded));
        assert!(error.to_string().contains("gave up"), "{error}");
    });
}

#[test]
fn unknown_topics_and_partitions_are_errors_of_send() {
    run(async {
        let broker = Broker::start().await;
        broker.create("t", 2);
        let client = connect(&broker).await;
        let producer = client.producer(ProducerOptions::default());
        let error = producer.send(Record::to("nowhere").value("x")).await.err().unwrap();
        assert_eq!(error.code(), Some(ErrorCode::UnknownTopicOrPartition));
        assert_eq!(error.place(), "nowhere");
        let error = producer.send(Record::to("t").partition(2).value("x")).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NoSuchPartition);
    });
}

#[test]
fn closing_flushes_and_dropping_fails_what_is_left() {
    run(async {
        let broker = Broker::start().await;
        let topic = broker.create("t", 1);
        let client = connect(&broker).await;
        let options = ProducerOptions { linger: Duration::from_secs(3600), ..ProducerOptions::default() };
        let closed = client.producer(options.clone());
        let delivery = closed.send(Record::to("t").value("kept")).await.unwrap();
        closed.close().await.unwrap();
        delivery.await.unwrap();
        assert_eq!(closed.send(Record::to("t").value("late")).await.err().unwrap().kind(), ErrorKind::Closed);

        let dropped = client.producer(options);
        let delivery = dropped.send(Record::to("t").value("lost")).await.unwrap();
        drop(dropped);
        assert_eq!(delivery.await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(broker.values(topic, 0), ["kept"]);
    });
}
