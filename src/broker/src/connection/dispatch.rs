//! A request to the code that answers it.

use super::{Connection, Incoming, Refused, hello};
use crate::{admin, append, delete_records, fetch, groups, offsets, producers, shard::Shard};
use shards::executor;
use std::{future::Future, rc::Rc};
use wire::{Api, ErrorCode, FetchRequest, FrameHeader};

/// Starts a request. Returns when the next of the connection may start: after a produce has its place in the order, at once for others.
pub(super) async fn dispatch(shard: &Rc<Shard>, connection: &Rc<Connection>, incoming: Incoming) -> Result<(), Refused> {
    let api = spoken(&incoming.header)?;
    shard.counters.requests.set(shard.counters.requests.get() + 1);
    match api {
        Api::Produce => append::produce(shard, incoming).await,
        Api::Fetch => {
            let request: FetchRequest = incoming.decode()?;
            request.check()?;
            start(fetch::fetch(Rc::clone(shard), request, incoming.into_reply_to()))
        }
        Api::DeleteRecords => start(delete_records::delete_records(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::ListOffsets => start(offsets::list(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::Hello => hello::hello(shard, connection, incoming),
        Api::Metadata => start(admin::metadata(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::ListTopics => start(admin::list_topics(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::CreateTopic => start(admin::create_topic(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::AlterTopic => start(admin::alter_topic(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::DeleteTopic => start(admin::delete_topic(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::DescribeTopic => start(admin::describe_topic(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::DescribeCluster => start(admin::describe_cluster(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::DescribeConfig => start(admin::describe_config(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::InitProducer => start(producers::init(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::FindCoordinator => start(groups::find(Rc::clone(shard), incoming.decode()?, incoming)),
        Api::ListGroups => start(groups::list(Rc::clone(shard), incoming.decode()?, incoming)),
        other => match groups::read(other, &incoming)? {
            Some(request) => start(groups::handle(Rc::clone(shard), request, incoming)),
            None => Err(not_served(other.code())),
        },
    }
}

/// The requests that are answered here, which is what Hello names.
pub(super) const SERVED: &[Api] = &[
    Api::Hello,
    Api::Metadata,
    Api::CreateTopic,
    Api::DeleteTopic,
    Api::AlterTopic,
    Api::DescribeTopic,
    Api::ListTopics,
    Api::DeleteRecords,
    Api::Produce,
    Api::Fetch,
    Api::ListOffsets,
    Api::DescribeCluster,
    Api::DescribeConfig,
    Api::InitProducer,
    Api::FindCoordinator,
    Api::GroupHeartbeat,
    Api::CommitOffsets,
    Api::FetchOffsets,
    Api::ListGroups,
    Api::DescribeGroup,
    Api::DeleteGroup,
    Api::AlterOffsets,
    Api::AlterGroup,
    Api::Settle,
    Api::TakeRetries,
];

pub(super) fn not_served(code: u16) -> Refused {
    Refused::new(ErrorCode::UnknownApi, format!("request {code} is not served here"))
}

/// The request that a header names, in a version that is spoken here.
pub(super) fn spoken(header: &FrameHeader) -> Result<Api, Refused> {
    let (code, version) = (header.api, header.api_version);
    let Some(api) = SERVED.iter().copied().find(|api| api.code() == code) else {
        return Err(not_served(code));
    };
    let (least, most) = api.versions();
    if !(least..=most).contains(&version) {
        let message = format!("{api} version {version}: {least} to {most} are spoken here");
        return Err(Refused::new(ErrorCode::UnsupportedVersion, message));
    }
    Ok(api)
}

fn start(request: impl Future<Output = ()> + 'static) -> Result<(), Refused> {
    executor::spawn(request).detach();
    Ok(())
}
