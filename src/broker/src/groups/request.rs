//! Requests about groups: read, brought to their coordinator, answered.

use super::{
    describe, reply,
    route::{self, Place},
    topic,
};
use crate::{
    calls,
    connection::{Connection, Incoming, Refused},
    mail::{Answer, Call, Mail},
    metadata::Refusal,
    shard::Shard,
};
use consumer_groups::{Client, Reply, Request};
use futures_util::{
    future::{Either, select},
    stream::{self, StreamExt},
};
use shards::{ShardId, random};
use std::{pin::pin, rc::Rc};
use wire::{
    Api, ErrorCode, FindCoordinatorReply, FindCoordinatorRequest, GroupCoordinator, ListGroupsReply, ListGroupsRequest,
    PartitionIndex,
};

/// Groups that a list gives when the request has no limit of its own.
const LISTED_MAX: u32 = 10_000;
/// Coordinators that a list asks at a time: their pages are in memory until the list is whole.
const COORDINATORS_AT_ONCE: usize = 16;

/// Starts what `api` asks for; `None` when that is no request of one group.
pub(crate) fn read(api: Api, incoming: &Incoming) -> Result<Option<Request>, Refused> {
    Ok(Some(match api {
        Api::GroupHeartbeat => Request::Heartbeat { request: incoming.decode()?, client: client(incoming.connection()) },
        Api::CommitOffsets => Request::CommitOffsets(incoming.decode()?),
        Api::FetchOffsets => Request::FetchOffsets(incoming.decode()?),
        Api::DescribeGroup => Request::DescribeGroup(incoming.decode()?),
        Api::DeleteGroup => Request::DeleteGroup(incoming.decode()?),
        Api::AlterOffsets => Request::AlterOffsets(incoming.decode()?),
        Api::AlterGroup => Request::AlterGroup(incoming.decode()?),
        Api::Settle => Request::Settle { request: incoming.decode()?, random: random::u64() },
        Api::TakeRetries => Request::TakeRetries(incoming.decode()?),
        _ => return Ok(None),
    }))
}

fn client(connection: &Connection) -> Client {
    let host = connection.stream.peer_address().map(|address| address.ip().to_string()).unwrap_or_default();
    Client { id: connection.client_id(), host }
}

/// Answers a request of one group.
pub(crate) async fn handle(shard: Rc<Shard>, request: Request, incoming: Incoming) {
    let connection = Rc::clone(incoming.connection());
    let in_refusal = reply::RefusalReply::to(&request);
    let answer = {
        let closing = pin!(connection.closing.notified());
        match select(pin!(ask(&shard, request)), closing).await {
            Either::Left((answer, _)) => answer,
            // Nobody is there to answer.
            Either::Right(_) => return,
        }
    };
    reply::send(incoming.into_reply_to(), answer.unwrap_or_else(|refusal| in_refusal.with(refusal)));
}

async fn ask(shard: &Rc<Shard>, request: Request) -> Result<Reply, Refusal> {
    let partitions = topic::partitions(shard).await?;
    let partition = route::partition_of(request.group(), partitions);
    let mut reply = ask_at(shard, partition, request).await?;
    if let Reply::DescribeGroup(description) = &mut reply {
        describe::fill(shard, partition, description).await;
    }
    Ok(reply)
}

async fn ask_at(shard: &Rc<Shard>, partition: PartitionIndex, request: Request) -> Result<Reply, Refusal> {
    let answer = match route::find(shard, partition) {
        Ok(Place::Here(coordinator)) => coordinator.ask(shard, request).await,
        Ok(Place::Shard(owner)) => match calls::ask(shard, owner, Call::Group { partition, request: Box::new(request) }).await {
            Some(Answer::Group(answer)) => answer.map(|reply| *reply),
            _ => Err(ErrorCode::ShuttingDown),
        },
        Err(code) => Err(code),
    };
    answer.map_err(|code| Refusal::new(code, code.text()))
}

/// The other end of a hop.
pub(crate) async fn answer_for(shard: Rc<Shard>, source: ShardId, id: u64, partition: PartitionIndex, request: Box<Request>) {
    let answer = match route::find(&shard, partition) {
        Ok(Place::Here(coordinator)) => coordinator.ask(&shard, *request).await,
        Ok(Place::Shard(_)) => Err(ErrorCode::NotCoordinator),
        Err(code) => Err(code),
    };
    calls::send_now(&shard, source, Mail::Answer { id, answer: Answer::Group(answer.map(Box::new)) });
}

/// Says where the coordinators of groups are.
pub(crate) async fn find(shard: Rc<Shard>, request: FindCoordinatorRequest, incoming: Incoming) {
    let partitions = topic::partitions(&shard).await;
    let groups = request.groups.into_iter().map(|group| {
        let mut found = not_found(&shard, group, ErrorCode::None, String::new());
        found.message = None;
        let place = match (&partitions, wire::check_group_id(&found.group)) {
            (_, Err(error)) => Err(Refusal::new(error.code, error.to_string())),
            (Err(refusal), Ok(())) => Err(refusal.clone()),
            (Ok(partitions), Ok(())) => {
                found.partition = route::partition_of(&found.group, *partitions);
                route::find(&shard, found.partition).map_err(|code| Refusal::new(code, code.text()))
            }
        };
        match place {
            Ok(Place::Here(_)) => {}
            Ok(Place::Shard(owner)) => found.shard = owner.0,
            Err(refusal) => (found.error, found.message) = (refusal.code, Some(refusal.message)),
        }
        found
    });
    let groups = groups.collect();
    incoming.into_reply_to().send(&FindCoordinatorReply { groups });
}

/// The answer for a group whose coordinator is not known.
pub(crate) fn not_found(shard: &Shard, group: String, error: ErrorCode, message: String) -> GroupCoordinator {
    let (broker, shard) = (shard.process.broker_id, shard.id.0);
    GroupCoordinator { group, error, message: Some(message), partition: PartitionIndex(0), broker, shard }
}

/// Answers a request of one group with a refusal.
pub(crate) fn refuse(incoming: Incoming, request: &Request, code: ErrorCode, message: String) {
    let reply = reply::RefusalReply::to(request).with(Refusal::new(code, message));
    reply::send(incoming.into_reply_to(), reply);
}

/// Names groups of all coordinators, in the order of their names.
pub(crate) async fn list(shard: Rc<Shard>, mut request: ListGroupsRequest, incoming: Incoming) {
    if request.limit == 0 || request.limit > LISTED_MAX {
        request.limit = LISTED_MAX;
    }
    let mut merged = ListGroupsReply { error: ErrorCode::None, message: None, groups: Vec::new(), more: false };
    let partitions = shard.topics.borrow().named(topic::GROUPS_TOPIC).map_or(0, |entry| entry.topic.config.partitions);
    // What lies behind the last group of a coordinator that has more is left for the next page.
    let mut until: Option<String> = None;
    let asked = (0..partitions).map(|partition| ask_at(&shard, PartitionIndex(partition), Request::ListGroups(request.clone())));
    let mut pages = stream::iter(asked).buffered(COORDINATORS_AT_ONCE);
    while let Some(page) = pages.next().await {
        match page {
            Ok(Reply::ListGroups(page)) if page.error.is_none() => {
                if page.more
                    && let Some(last) = page.groups.last()
                {
                    until = Some(until.map_or_else(|| last.group.clone(), |until| until.min(last.group.clone())));
                }
                merged.groups.extend(page.groups);
            }
            Ok(Reply::ListGroups(page)) => (merged.error, merged.message) = (page.error, page.message),
            Ok(other) => unreachable!("a list is answered by a list, not {other:?}"),
            Err(refusal) => (merged.error, merged.message) = (refusal.code, Some(refusal.message)),
        }
    }
    drop(pages);
    merged.groups.sort_unstable_by(|one, other| one.group.cmp(&other.group));
    let within = until.as_ref().map_or(merged.groups.len(), |until| merged.groups.partition_point(|group| group.group <= *until));
    let kept = within.min(request.limit as usize);
    merged.more = until.is_some() || kept < merged.groups.len();
    merged.groups.truncate(kept);
    incoming.into_reply_to().send(&merged);
}
