//! One question about many partitions, each answered by the shard that owns it.
//!
//! ```text
//!  questions ─┬─ of this shard ───────────────► answered here, some at a time ─┬─► answers, in the order of the questions
//!             └─ of others, by owner ─ one hop ► answered there ───────────────┘
//! ```

use crate::{
    calls,
    mail::{Answer, Call, Mail},
    partition::Partition,
    router::{Route, route},
    shard::Shard,
};
use futures_util::{
    future::{join, join_all},
    stream::{self, StreamExt},
};
use shards::ShardId;
use std::{collections::BTreeMap, rc::Rc};
use wire::{ErrorCode, PartitionKey};

/// Questions of one request that may wait for the disk at a time.
const ANSWERS_AT_ONCE: usize = 16;

/// What is asked about one partition.
pub(crate) trait Question: Sized + Clone {
    /// What answers it.
    type Reply;

    /// The partition.
    fn key(&self) -> PartitionKey;

    /// The answer of its owner.
    async fn answer(&self, shard: &Shard, partition: &Partition) -> Self::Reply;

    /// The answer when it cannot be asked.
    fn failed(&self, code: ErrorCode) -> Self::Reply;

    /// Questions on their way to another shard.
    fn into_call(questions: Vec<Self>) -> Call;

    /// Answers on their way back.
    fn into_answer(replies: Vec<Self::Reply>) -> Answer;

    /// The answers that came back.
    fn from_answer(answer: Answer) -> Option<Vec<Self::Reply>>;
}

/// Has every question answered.
pub(crate) async fn ask_all<Q: Question>(shard: &Rc<Shard>, questions: Vec<Q>) -> Vec<Q::Reply> {
    let mut replies: Vec<Option<Q::Reply>> = questions.iter().map(|_| None).collect();
    let mut here = Vec::new();
    let mut elsewhere: BTreeMap<ShardId, Vec<(usize, Q)>> = BTreeMap::new();
    for (index, question) in questions.into_iter().enumerate() {
        match route(shard, question.key()) {
            Route::Here(partition) => here.push((index, question, partition)),
            Route::Shard(owner) => elsewhere.entry(owner).or_default().push((index, question)),
            Route::Nowhere(code) => replies[index] = Some(question.failed(code)),
        }
    }
    let here = here.into_iter().map(async |(index, question, partition)| (index, question.answer(shard, &partition).await));
    let here = stream::iter(here).buffer_unordered(ANSWERS_AT_ONCE).collect::<Vec<_>>();
    let there = join_all(elsewhere.into_iter().map(async |(owner, questions)| ask_owner(shard, owner, questions).await));
    let (here, there) = join(here, there).await;
    for (index, reply) in here.into_iter().chain(there.into_iter().flatten()) {
        replies[index] = Some(reply);
    }
    replies.into_iter().map(|reply| reply.expect("every partition was asked about here or there")).collect()
}

async fn ask_owner<Q: Question>(shard: &Rc<Shard>, owner: ShardId, questions: Vec<(usize, Q)>) -> Vec<(usize, Q::Reply)> {
    let asked = questions.iter().map(|(_, question)| question.clone()).collect();
    let indexes = questions.iter().map(|(index, _)| *index);
    match calls::ask(shard, owner, Q::into_call(asked)).await.and_then(Q::from_answer) {
        Some(replies) => indexes.zip(replies).collect(),
        None => questions.iter().map(|(index, question)| (*index, question.failed(ErrorCode::ShuttingDown))).collect(),
    }
}

/// The other end of a hop.
pub(crate) async fn answer_for<Q: Question>(shard: Rc<Shard>, source: ShardId, id: u64, questions: Vec<Q>) {
    let answers = questions.iter().map(async |question| match route(&shard, question.key()) {
        Route::Here(partition) => question.answer(&shard, &partition).await,
        Route::Shard(_) => question.failed(ErrorCode::WrongShard),
        Route::Nowhere(code) => question.failed(code),
    });
    let replies = stream::iter(answers).buffered(ANSWERS_AT_ONCE).collect().await;
    calls::send_now(&shard, source, Mail::Answer { id, answer: Q::into_answer(replies) });
}
