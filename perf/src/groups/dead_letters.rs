//! What became of records that failed for the last time: the dead-letter topics, read when all members have left.

use std::time::{Duration, Instant};

use corelane_client::dead_letter::dead_letter_topic;
use corelane_client::{Client, ClientError, ConsumerOptions, ErrorCode, ErrorKind, OffsetAt, StartAt};

use super::Shared;
use crate::driver::DriverError;

/// How long the last dead letters may take to be written, and then to be read.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked for them.
const LOOK: Duration = Duration::from_millis(20);

/// Reads all dead letters of all groups into their books, and deletes their topics where that is wanted.
pub(super) async fn read(shared: &Shared, client: &Client) -> Result<(), DriverError> {
    for (group, name) in shared.names.iter().enumerate() {
        let exhausted = shared.inbox().books[group].exhausted;
        if exhausted == 0 {
            continue;
        }
        let topics: Vec<String> = shared.starts.keys().map(|topic| dead_letter_topic(topic, name)).collect();
        let started = Instant::now();
        let mut letters = 0;
        // Too few of them after that time are lost messages, as the books will say.
        while letters < exhausted && started.elapsed() < PATIENCE {
            tokio::time::sleep(LOOK).await;
            letters = 0;
            for topic in &topics {
                letters += count(client, topic).await?;
            }
        }
        let consumer = client.consumer(ConsumerOptions::default());
        let mut present = Vec::new();
        for topic in &topics {
            if count(client, topic).await? > 0 {
                consumer.assign_all(topic, StartAt::Earliest).await?;
                present.push(topic);
            }
        }
        let mut read = 0;
        while read < letters {
            let Some(batch) = consumer.poll(PATIENCE).await? else { break };
            for record in batch.records() {
                shared.inbox().books[group].bury(record.value.unwrap_or_default());
                read += 1;
            }
        }
        if shared.delete {
            for topic in present {
                client.admin().delete_topic(topic).await?;
            }
        }
    }
    Ok(())
}

/// Records of a topic, which may not be there.
async fn count(client: &Client, topic: &str) -> Result<u64, ClientError> {
    let info = match client.topic(topic).await {
        Ok(info) => info,
        Err(error) if error.kind() == ErrorKind::Broker(ErrorCode::UnknownTopicOrPartition) => return Ok(0),
        Err(error) => return Err(error),
    };
    let ends = client.admin().list_offsets(topic, 0..info.partition_count(), OffsetAt::Latest).await?;
    Ok(ends.iter().map(|end| end.offset.0).sum())
}
