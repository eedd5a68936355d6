//! What a request may say: counts end the connection, what a user can get wrong is named by field and code.

use std::fmt::Debug;

use wire::limits::{
    FAILED_PER_REQUEST_MAX, GROUP_PARTITIONS_MAX, GROUPS_PER_REQUEST_MAX, OFFSET_METADATA_BYTES_MAX, PARKING_KEY_BYTES_MAX,
    PARTITIONS_PER_REQUEST_MAX, PARTITIONS_PER_SETTLE_MAX, PARTITIONS_PER_TAKE_MAX, SETTLED_PER_REQUEST_MAX,
    SUBSCRIBED_TOPICS_MAX,
};
use wire::*;

use crate::samples::{self, TOPIC};

fn heartbeat() -> GroupHeartbeatRequest {
    GroupHeartbeatRequest {
        group: "billing".to_owned(),
        member_id: "member-1".to_owned(),
        instance_id: None,
        member_epoch: MemberEpoch::JOIN,
        max_wait_ms: 0,
        rebalance_timeout_ms: 60_000,
        session_timeout_ms: 45_000,
        assignor: None,
        topics: Some(vec!["orders".to_owned()]),
        owned: None,
    }
}

fn settled() -> SettlePartition {
    SettlePartition {
        topic: TOPIC,
        partition: PartitionIndex(0),
        deferred: Vec::new(),
        done: Vec::new(),
        failed: Vec::new(),
        commit: None,
    }
}

fn settle(partitions: Vec<SettlePartition>) -> SettleRequest {
    SettleRequest { group: "billing".to_owned(), member_id: "member-1".to_owned(), member_epoch: MemberEpoch(1), partitions }
}

fn failed() -> FailedRecord {
    FailedRecord { offset: Offset(1), key: None, attempt: 1, reason: String::new() }
}

/// A decoder takes `limit` of them and refuses one more.
#[track_caller]
fn check_count<R: Request + PartialEq + Debug>(limit: usize, request: impl Fn(usize) -> R) {
    let decoded = |count| {
        let request = request(count);
        // What is allowed is a legal frame, too.
        FrameHeader::decode(&encode_request(0, &request, 0)).unwrap();
        decode_body::<R>(&request.write_to(AlignedVec::new()))
    };
    assert_eq!(decoded(limit).unwrap(), request(limit));
    let error = decoded(limit + 1).expect_err("one too many");
    assert!(matches!(error, FrameError::TooMany { found, limit: named, .. } if found == limit + 1 && named == limit), "{error}");
}

#[test]
fn counts_are_limited() {
    let partition = PartitionIndex(0);
    check_count(PARTITIONS_PER_REQUEST_MAX, |count| DeleteRecordsRequest {
        partitions: vec![DeleteRecordsPartition { topic: TOPIC, partition, before: Offset(1) }; count],
    });
    check_count(GROUPS_PER_REQUEST_MAX, |count| FindCoordinatorRequest { groups: vec!["g".to_owned(); count] });
    check_count(SUBSCRIBED_TOPICS_MAX, |count| GroupHeartbeatRequest {
        topics: Some(vec!["t".to_owned(); count]),
        ..heartbeat()
    });
    check_count(GROUP_PARTITIONS_MAX, |count| GroupHeartbeatRequest {
        owned: Some(vec![TopicPartitions { topic: TOPIC, partitions: vec![partition; count] }]),
        ..heartbeat()
    });
    let commit = CommittedOffset { offset: Offset(1), leader_epoch: None, metadata: None };
    check_count(PARTITIONS_PER_REQUEST_MAX, |count| CommitOffsetsRequest {
        group: "g".to_owned(),
        member_id: None,
        member_epoch: MemberEpoch::LEAVE,
        partitions: vec![CommitPartition { topic: TOPIC, partition, commit: commit.clone() }; count],
    });
    check_count(PARTITIONS_PER_REQUEST_MAX, |count| FetchOffsetsRequest {
        group: "g".to_owned(),
        partitions: Some(vec![PartitionKey::new(TOPIC, partition); count]),
        after: None,
    });
    check_count(PARTITIONS_PER_REQUEST_MAX, |count| AlterOffsetsRequest {
        group: "g".to_owned(),
        clear_parked: false,
        partitions: vec![AlterPartition { topic: TOPIC, partition, offset: None }; count],
    });
    check_count(PARTITIONS_PER_SETTLE_MAX, |count| settle(vec![settled(); count]));
    // Deferred and done together.
    check_count(SETTLED_PER_REQUEST_MAX, |count| {
        let done = vec![DoneRecord { key: None, offset: Offset(1) }; count - 1];
        let deferred = vec![DeferredRecord { key: b"k".to_vec(), offset: Offset(2) }];
        settle(vec![SettlePartition { done, ..settled() }, SettlePartition { deferred, ..settled() }])
    });
    check_count(FAILED_PER_REQUEST_MAX, |count| settle(vec![SettlePartition { failed: vec![failed(); count], ..settled() }]));
    check_count(PARTITIONS_PER_TAKE_MAX, |count| TakeRetriesRequest {
        group: "g".to_owned(),
        member_id: "m".to_owned(),
        member_epoch: MemberEpoch(1),
        poll: 1,
        received: 0,
        partitions: vec![PartitionKey::new(TOPIC, partition); count],
        max_records: 1,
        max_wait_ms: 0,
    });
}

/// A field, its code, and what spoils it.
type Case<R> = (&'static str, ErrorCode, fn(&mut R));

#[track_caller]
fn check_fields<R: Clone>(good: &R, validate: impl Fn(&R) -> Result<(), FieldError>, cases: &[Case<R>]) {
    assert_eq!(validate(good), Ok(()));
    for (field, code, spoil) in cases {
        let mut request = good.clone();
        spoil(&mut request);
        let error = validate(&request).expect_err(field);
        assert_eq!((error.field, error.code), (*field, *code), "{error}");
    }
}

#[test]
fn a_heartbeat_outside_its_limits_names_the_field() {
    let invalid = ErrorCode::InvalidRequest;
    check_fields(
        &heartbeat(),
        GroupHeartbeatRequest::validate,
        &[
            ("group", ErrorCode::InvalidGroupId, |request| request.group.clear()),
            ("member_id", invalid, |request| request.member_id = "a b".to_owned()),
            ("instance_id", invalid, |request| request.instance_id = Some("x".repeat(129))),
            ("member_epoch", invalid, |request| request.member_epoch = MemberEpoch(-3)),
            ("session_timeout_ms", invalid, |request| request.session_timeout_ms = 0),
            ("session_timeout_ms", invalid, |request| request.session_timeout_ms = u32::MAX),
            ("rebalance_timeout_ms", invalid, |request| request.rebalance_timeout_ms = 1),
            ("max_wait_ms", invalid, |request| request.max_wait_ms = u32::MAX),
            ("topics", ErrorCode::InvalidTopicName, |request| request.topics = Some(vec!["a/b".to_owned()])),
        ],
    );
}

#[test]
fn what_is_settled_outside_its_limits_names_the_field() {
    let invalid = ErrorCode::InvalidRequest;
    check_fields(
        &settle(Vec::new()),
        SettleRequest::validate,
        &[
            ("group", ErrorCode::InvalidGroupId, |request| request.group = "a/b".to_owned()),
            ("member_id", invalid, |request| request.member_id.clear()),
        ],
    );
    const LONG: usize = PARKING_KEY_BYTES_MAX + 1;
    check_fields(
        &settled(),
        SettlePartition::validate,
        &[
            ("key", invalid, |part| part.deferred = vec![DeferredRecord { key: vec![0; LONG], offset: Offset(1) }]),
            ("key", invalid, |part| part.done = vec![DoneRecord { key: Some(vec![0; LONG]), offset: Offset(1) }]),
            ("key", invalid, |part| part.failed = vec![FailedRecord { key: Some(vec![0; LONG]), ..failed() }]),
            ("reason", invalid, |part| part.failed = vec![FailedRecord { reason: "x".repeat(1025), ..failed() }]),
            ("metadata", ErrorCode::OffsetMetadataTooLarge, |part| {
                part.commit = Some(CommittedOffset {
                    metadata: Some("x".repeat(OFFSET_METADATA_BYTES_MAX + 1)),
                    ..samples::groups::committed()
                });
            }),
            ("offset", invalid, |part| {
                part.commit = Some(CommittedOffset { offset: Offset(u64::MAX), ..samples::groups::committed() })
            }),
        ],
    );
}

#[test]
fn other_requests_about_groups_name_the_field() {
    let invalid = ErrorCode::InvalidRequest;
    let take = TakeRetriesRequest {
        group: "g".to_owned(),
        member_id: "m".to_owned(),
        member_epoch: MemberEpoch(1),
        poll: 1,
        received: 0,
        partitions: Vec::new(),
        max_records: 1,
        max_wait_ms: 0,
    };
    check_fields(
        &take,
        TakeRetriesRequest::validate,
        &[
            ("max_records", invalid, |request| request.max_records = 0),
            ("max_records", invalid, |request| request.max_records = u32::MAX),
            ("max_wait_ms", invalid, |request| request.max_wait_ms = u32::MAX),
        ],
    );
    let alter = AlterGroupRequest {
        group: "g".to_owned(),
        topic: None,
        retry: Change::Keep,
        offsets_retention: Change::Keep,
        resume: false,
    };
    check_fields(
        &alter,
        AlterGroupRequest::validate,
        &[
            ("topic", ErrorCode::InvalidTopicName, |request| request.topic = Some(String::new())),
            ("offsets_retention", ErrorCode::InvalidConfig, |request| {
                request.offsets_retention = Change::Set(OffsetsRetention::Ms(1));
            }),
        ],
    );
    let init = InitProducerRequest { name: None, current: None };
    check_fields(&init, InitProducerRequest::validate, &[("name", invalid, |request| request.name = Some(String::new()))]);
}
