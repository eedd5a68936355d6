//! The limits on messages: what is allowed works, one byte more is refused, and the connection goes on.

use crate::support::{Raw, Site, batch, noise, records, stop};
use wire::{ErrorCode, TopicConfig};

const MIB: usize = 1 << 20;

#[test]
fn ten_mebibytes_work_and_one_byte_more_is_refused() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { partitions: 2, ..TopicConfig::default() });
    let largest = noise(10 * MIB, 1);
    for partition in 0..2 {
        let reply = client.produce(topic, partition, batch(&[&largest]));
        assert_eq!(reply.base_offset.0, 0);
        let refused = client.try_produce(topic, partition, batch(&[noise(10 * MIB + 1, 2)]));
        assert_eq!(refused.error, ErrorCode::MessageTooLarge);
        let message = refused.message.unwrap();
        assert!(message.contains("10485761") && message.contains("10485760"), "{message}");
        let reply = client.produce(topic, partition, batch(&["small"]));
        assert_eq!(reply.base_offset.0, 1, "what was refused has no offset");
        let (_, bytes) = client.fetch(topic, partition, 0);
        assert!(records(&bytes)[0].1 == largest);
    }
    stop(broker);

    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    for partition in 0..2 {
        let values = client.read_all(topic, partition);
        assert!(values.len() == 2 && values[0] == largest && values[1] == b"small");
    }
    stop(broker);
}

#[test]
fn a_large_batch_of_small_messages_is_no_large_message() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig { message_bytes_max: 1024, ..TopicConfig::default() });
    let values: Vec<Vec<u8>> = (0..5000).map(|number| noise(1024, number)).collect();
    client.produce(topic, 0, batch(&values));
    let mut values_with_one_too_large = values.clone();
    values_with_one_too_large[4000].push(0);
    assert_eq!(client.try_produce(topic, 0, batch(&values_with_one_too_large)).error, ErrorCode::MessageTooLarge);
    assert!(client.read_all(topic, 0) == values);
    stop(broker);
}

#[test]
fn a_fetch_brings_a_batch_that_is_larger_than_it_asked_for() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = client.create("t", TopicConfig::default());
    for number in 0..3 {
        client.produce(topic, 0, batch(&[noise(MIB, number)]));
    }
    let mut request = crate::support::fetch_request(topic, 0, 1, 0, 1);
    request.max_bytes = 100;
    request.partitions[0].max_bytes = 100;
    client.send(&request, &[]);
    let (_, bytes) = client.receive_fetched();
    assert_eq!(records(&bytes).iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [1]);
    stop(broker);
}
