//! Topics come, change, and go; what cannot be done is said in words.

use crate::support::{Raw, Site, batch, stop};
use wire::{
    AlterTopicReply, AlterTopicRequest, Change, CreateTopicRequest, DeleteRecordsPartition, DeleteRecordsRequest,
    DeleteTopicRequest, DescribeTopicRequest, ErrorCode, FindCoordinatorRequest, ListTopicsRequest, MetadataRequest, Offset,
    PartitionIndex, TopicConfig, TopicConfigChanges, limits::TOPICS_PER_REQUEST_MAX,
};

fn create_error(client: &mut Raw, name: &str, config: TopicConfig) -> (ErrorCode, String) {
    let reply = client.ask(&CreateTopicRequest { name: name.to_owned(), config, validate_only: false });
    (reply.error, reply.message.unwrap_or_default())
}

fn alter(client: &mut Raw, name: &str, changes: TopicConfigChanges) -> AlterTopicReply {
    client.ask(&AlterTopicRequest { name: name.to_owned(), changes, validate_only: false })
}

fn names(client: &mut Raw, prefix: &str) -> Vec<String> {
    let reply = client.ask(&ListTopicsRequest { prefix: prefix.to_owned(), after: None, limit: 0 });
    assert_eq!(reply.error, ErrorCode::None);
    reply.topics.into_iter().map(|topic| topic.name).collect()
}

#[test]
fn a_topic_lives_from_create_to_delete_across_restarts() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let config = TopicConfig { partitions: 2, retention_bytes: Some(1 << 30), ..TopicConfig::default() };
    let topic = client.create("orders", config.clone());
    client.create("other", TopicConfig::default());
    client.create("orders.late", TopicConfig::default());
    assert_eq!(names(&mut client, ""), ["orders", "orders.late", "other"]);
    assert_eq!(names(&mut client, "orders"), ["orders", "orders.late"]);
    client.produce(topic, 1, batch(&["a", "b"]));

    let changes = TopicConfigChanges { partitions: Some(5), retention_bytes: Change::Unset, ..TopicConfigChanges::default() };
    let altered = alter(&mut client, "orders", changes);
    assert_eq!((altered.error, altered.config.partitions, altered.config.retention_bytes), (ErrorCode::None, 5, None));
    client.produce(topic, 4, batch(&["c"]));
    stop(broker);

    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let described = client.ask(&DescribeTopicRequest { name: "orders".to_owned() });
    assert_eq!((described.error, described.id, &described.config), (ErrorCode::None, topic, &altered.config));
    let ends: Vec<u64> = described.partitions.iter().map(|part| part.log_end.0).collect();
    assert_eq!(ends, [0, 2, 0, 0, 1]);
    assert!(described.created_ms > 1_700_000_000_000);

    let deleted = client.ask(&DeleteTopicRequest { name: "orders".to_owned() });
    assert_eq!(deleted.error, ErrorCode::None);
    assert_eq!(client.topic("orders").error, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(client.try_produce(topic, 1, batch(&["x"])).error, ErrorCode::UnknownTopicOrPartition);
    assert_eq!(client.fetch(topic, 1, 0).0.error, ErrorCode::UnknownTopicOrPartition);

    // The same name again is another topic: nothing of the old one shows.
    let again = client.create("orders", config);
    assert_ne!(again, topic);
    assert!(client.read_all(again, 1).is_empty());
    stop(broker);

    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    assert_eq!(names(&mut client, ""), ["orders", "orders.late", "other"]);
    assert_eq!(client.topic("orders").id, again);
    assert_eq!(client.fetch(topic, 1, 0).0.error, ErrorCode::UnknownTopicOrPartition);
    assert!(client.read_all(again, 1).is_empty());
    let folders = std::fs::read_dir(site.folder.path().join("segments")).unwrap();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(names.all(|name| !name.starts_with(&topic.to_hex())), "a deleted topic is still there");
    stop(broker);
}

#[test]
fn what_a_topic_cannot_be_is_refused_in_words() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let good = TopicConfig::default;
    client.create("taken", good());
    let cases: [(&str, TopicConfig, ErrorCode, &str); 8] = [
        ("taken", good(), ErrorCode::TopicExists, "taken"),
        ("", good(), ErrorCode::InvalidTopicName, ""),
        ("a/b", good(), ErrorCode::InvalidTopicName, "/"),
        ("..", good(), ErrorCode::InvalidTopicName, ".."),
        ("t", TopicConfig { partitions: 0, ..good() }, ErrorCode::InvalidPartitions, "partitions"),
        ("t", TopicConfig { partitions: 1001, ..good() }, ErrorCode::InvalidPartitions, "1000"),
        ("t", TopicConfig { replication_factor: 3, ..good() }, ErrorCode::InvalidReplicationFactor, "replication_factor"),
        ("t", TopicConfig { message_bytes_max: 20 << 20, ..good() }, ErrorCode::InvalidConfig, "message_bytes_max"),
    ];
    for (name, config, code, words) in cases {
        let (error, message) = create_error(&mut client, name, config);
        assert_eq!(error, code, "{name:?}: {message}");
        assert!(message.contains(words), "{message:?} does not say {words:?}");
    }
    let long = "x".repeat(250);
    assert_eq!(create_error(&mut client, &long, good()).0, ErrorCode::InvalidTopicName);
    client.create(&long[..249], good());

    let fewer = TopicConfigChanges { partitions: Some(0), ..TopicConfigChanges::default() };
    assert_eq!(alter(&mut client, "taken", fewer).error, ErrorCode::InvalidPartitions);
    let nothing = TopicConfigChanges::default;
    assert_eq!(alter(&mut client, "nowhere", nothing()).error, ErrorCode::UnknownTopicOrPartition);
    let deleted = client.ask(&DeleteTopicRequest { name: "nowhere".to_owned() });
    assert_eq!(deleted.error, ErrorCode::UnknownTopicOrPartition);
    let described = client.ask(&DescribeTopicRequest { name: "nowhere".to_owned() });
    assert_eq!(described.error, ErrorCode::UnknownTopicOrPartition);

    let only = CreateTopicRequest { name: "valid".to_owned(), config: good(), validate_only: true };
    assert_eq!(client.ask(&only).error, ErrorCode::None);
    assert_eq!(client.topic("valid").error, ErrorCode::UnknownTopicOrPartition);
    stop(broker);
}

#[test]
fn the_brokers_own_topics_are_not_for_users_to_change() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let (error, message) = create_error(&mut client, "__mine", TopicConfig::default());
    assert_eq!(error, ErrorCode::InternalTopic);
    assert!(message.contains("__"), "{message}");
    let validate = CreateTopicRequest { name: "__mine".to_owned(), config: TopicConfig::default(), validate_only: true };
    assert_eq!(client.ask(&validate).error, ErrorCode::InternalTopic);
    assert_eq!(alter(&mut client, "__groups", TopicConfigChanges::default()).error, ErrorCode::InternalTopic);
    let deleted = client.ask(&DeleteTopicRequest { name: "__groups".to_owned() });
    assert_eq!(deleted.error, ErrorCode::InternalTopic);
    client.create("_mine", TopicConfig::default());

    // One that is there, on this shard and on the other.
    client.ask(&FindCoordinatorRequest { groups: vec!["billing".to_owned()] });
    let groups = client.topic("__groups").id;
    for partition in 0..2 {
        let refused = client.try_produce(groups, partition, batch(&["mine"]));
        assert_eq!(refused.error, ErrorCode::InternalTopic);
        assert!(refused.message.unwrap().contains("__groups"));
        let before = Offset(0);
        let delete = DeleteRecordsPartition { topic: groups, partition: PartitionIndex(partition), before };
        let reply = client.ask(&DeleteRecordsRequest { partitions: vec![delete] });
        assert_eq!(reply.partitions[0].error, ErrorCode::InternalTopic);
        let (fetched, _) = client.fetch(groups, partition, 0);
        assert_eq!((fetched.error, fetched.log_end.0), (ErrorCode::None, 0));
    }
    stop(broker);
}

#[test]
fn metadata_tells_what_changed_since_a_version() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    client.create("a", TopicConfig::default());
    let gone = client.create("b", TopicConfig { partitions: 3, ..TopicConfig::default() });
    let all = client.ask(&MetadataRequest { topics: None, since_version: 0, after: None, limit: 0 });
    assert_eq!((all.only_changes, all.topics.len(), all.brokers.len()), (false, 2, 1));
    assert_eq!(all.brokers[0].port, broker.addr().port());
    client.create("c", TopicConfig::default());
    client.ask(&DeleteTopicRequest { name: "b".to_owned() });
    let news = client.ask(&MetadataRequest { topics: None, since_version: all.version, after: None, limit: 0 });
    let names: Vec<&str> = news.topics.iter().map(|topic| topic.name.as_str()).collect();
    assert_eq!((news.only_changes, names, news.deleted), (true, vec!["c"], vec![gone]));
    stop(broker);
}

/// Every page until there is no more.
fn pages<T>(mut page: impl FnMut(Option<String>) -> (Vec<T>, bool), name: impl Fn(&T) -> &str) -> Vec<Vec<T>> {
    let mut pages: Vec<Vec<T>> = Vec::new();
    loop {
        let after = pages.last().and_then(|page| page.last()).map(|last| name(last).to_owned());
        let (found, more) = page(after);
        pages.push(found);
        if !more {
            return pages;
        }
    }
}

#[test]
fn many_topics_are_listed_in_pages() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topics = client.create_many(1200);
    let expected: Vec<&str> = topics.iter().map(|(name, _)| name.as_str()).collect();
    for (limit, pages_expected) in [(0, 1), (500, 3), (400, 3), (7, 172)] {
        let listed = pages(
            |after| {
                let reply = client.ask(&ListTopicsRequest { prefix: "t".to_owned(), after, limit });
                (reply.topics, reply.more)
            },
            |topic| &topic.name,
        );
        assert_eq!(listed.len(), pages_expected);
        assert_eq!(listed.iter().flatten().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), expected);
        let told = pages(
            |after| {
                let reply = client.ask(&MetadataRequest { topics: None, since_version: 0, after, limit });
                assert_eq!((reply.error, reply.only_changes), (ErrorCode::None, false));
                (reply.topics, reply.more)
            },
            |topic| &topic.name,
        );
        assert_eq!(told.len(), pages_expected);
        let told: Vec<_> = told.iter().flatten().map(|topic| (topic.name.clone(), topic.id)).collect();
        assert_eq!(told, topics);
    }
    // Whoever asks for changes that do not fit is told everything instead.
    let news = client.ask(&MetadataRequest { topics: None, since_version: 1, after: None, limit: 10 });
    assert_eq!((news.only_changes, news.topics.len(), news.more), (false, 10, true));
    stop(broker);
}

#[test]
fn a_request_for_more_than_a_reply_holds_is_answered_in_part() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    client.create("wide", TopicConfig { partitions: 1000, ..TopicConfig::default() });
    // 4 million partitions would take 64 MiB.
    let names = vec!["wide".to_owned(); TOPICS_PER_REQUEST_MAX];
    let reply = client.ask(&MetadataRequest { topics: Some(names), since_version: 0, after: None, limit: 0 });
    assert_eq!((reply.error, reply.more), (ErrorCode::None, true));
    assert!((100..TOPICS_PER_REQUEST_MAX).contains(&reply.topics.len()), "{}", reply.topics.len());
    assert!(reply.topics.iter().all(|topic| topic.partitions.len() == 1000));

    let names = vec!["x".to_owned(); TOPICS_PER_REQUEST_MAX + 1];
    let reply = client.ask(&MetadataRequest { topics: Some(names), since_version: 0, after: None, limit: 0 });
    assert_eq!(reply.error, ErrorCode::InvalidRequest);
    assert!(reply.message.unwrap().contains("4096"));
    stop(broker);
}
