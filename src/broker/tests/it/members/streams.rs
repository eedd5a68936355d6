//! Records as a stream, and which of them count as handled.

use super::{KEYS, connect, create, fill, in_order, number, options, run};
use crate::support::{Site, stop};
use corelane_client::{Acknowledge, GroupOptions, Offset};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::Mutex,
    time::Duration,
};
use wire::ErrorCode;

#[test]
fn a_stream_gives_each_record_once_and_a_cancelled_next_loses_none() {
    let site = Site::new();
    let broker = site.start(2);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 3).await;
        let consumer = client.group_consumer(options());
        let handled = Mutex::new(BTreeMap::<u64, Vec<u64>>::new());
        let mut records = consumer.records();
        let mut count = 0;
        for round in 0..100 {
            if round % 10 == 0 {
                fill(&client, 10).await;
            }
            // Given up before anything can have come, and whenever it is that something has.
            let wait = Duration::from_micros(round * 50);
            while let Ok(Some(record)) = tokio::time::timeout(wait, records.next()).await {
                let record = record.unwrap();
                handled.lock().unwrap().entry(u64::from(record.partition())).or_default().push(record.offset().0);
                consumer.done(&record);
                count += 1;
            }
        }
        while count < 100 {
            let record = records.try_next().await.unwrap().unwrap();
            handled.lock().unwrap().entry(u64::from(record.partition())).or_default().push(record.offset().0);
            consumer.done(&record);
            count += 1;
        }
        for (partition, mut offsets) in handled.into_inner().unwrap() {
            offsets.sort_unstable();
            assert!(offsets.iter().copied().eq(0..offsets.len() as u64), "partition {partition}: {offsets:?}");
        }
        consumer.close().await.unwrap();
    });
    stop(broker);
}

#[test]
fn several_are_handled_at_a_time_and_each_key_in_order() {
    let site = Site::new();
    let broker = site.start(1);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 2).await;
        fill(&client, 200).await;
        let consumer = client.group_consumer(GroupOptions { acknowledge: Acknowledge::OnNext, ..options() });
        let (handled, busy) = (Mutex::new(BTreeMap::<u64, Vec<u64>>::new()), Mutex::new(BTreeSet::new()));
        let records = consumer.records().take(200);
        let all = records.try_for_each_concurrent(5, async |record| {
            let number = number(&record);
            assert!(busy.lock().unwrap().insert(number % KEYS), "one of a key at a time");
            tokio::task::yield_now().await;
            busy.lock().unwrap().remove(&(number % KEYS));
            handled.lock().unwrap().entry(number % KEYS).or_default().push(number);
            Ok(())
        });
        all.await.unwrap();
        assert!(in_order(&handled), "{handled:?}");
        assert_eq!(handled.lock().unwrap().values().map(Vec::len).sum::<usize>(), 200);
    });
    stop(broker);
}

#[test]
fn a_stream_that_is_put_aside_does_not_keep_records_from_others() {
    let site = Site::new();
    let broker = site.start(1);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 1).await;
        let consumer = client.group_consumer(options());
        let mut aside = consumer.records();
        assert!(aside.next().now_or_never().is_none());
        // It waits behind the stream, and is the only one that is polled from here on.
        let mut next = pin!(consumer.next());
        assert!(next.as_mut().now_or_never().is_none());
        fill(&client, 1).await;
        let record = next.await.unwrap();
        assert_eq!(number(&record), 0);
    });
    stop(broker);
}

#[test]
fn what_the_program_still_holds_is_not_committed_when_it_asks_for_more() {
    let site = Site::new();
    let broker = site.start(1);
    run(async {
        let client = connect(broker.addr()).await;
        create(&client, 1).await;
        fill(&client, 4).await;
        let on_next = || GroupOptions { acknowledge: Acknowledge::OnNext, ..options() };
        let consumer = client.group_consumer(on_next());
        // The first is dropped, the second is with another task when the third is asked for.
        drop(consumer.next().await.unwrap());
        let held = consumer.next().await.unwrap();
        drop(consumer.next().await.unwrap());
        consumer.commit().await.unwrap();
        let last = consumer.next().await.unwrap();
        assert_eq!((held.offset(), last.offset()), (Offset(1), Offset(3)));
        drop((held, last));
        // Nothing says that they were handled.
        consumer.close().await.unwrap();

        let other = client.group_consumer(on_next());
        assert_eq!(other.next().await.unwrap().offset(), Offset(1));
        // Said, it counts at once.
        let last = async {
            loop {
                let record = other.next().await.unwrap();
                if record.offset() == Offset(3) {
                    return record;
                }
            }
        };
        other.done(&last.await);
        other.close().await.unwrap();
        let third = client.group_consumer(on_next());
        assert!(third.poll(Duration::from_millis(300)).await.unwrap().is_none());
        third.close().await.unwrap();
    });
    stop(broker);
}

#[test]
fn a_group_that_cannot_be_joined_is_the_last_item_of_the_stream() {
    let site = Site::new();
    let broker = site.start(1);
    run(async {
        let client = connect(broker.addr()).await;
        let consumer = client.group_consumer(GroupOptions { group: String::new(), ..options() });
        let items: Vec<_> = consumer.records().map(|item| item.err().and_then(|error| error.code())).collect().await;
        assert_eq!(items, [Some(ErrorCode::InvalidGroupId)]);
    });
    stop(broker);
}
