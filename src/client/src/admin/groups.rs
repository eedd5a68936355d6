//! Consumer groups, as operators see them.

use std::collections::BTreeMap;

use wire::{
    AlterGroupReply, AlterGroupRequest, AlterOffsetsRequest, AlterPartition, Change, DeleteGroupRequest, DescribeGroupReply,
    DescribeGroupRequest, GroupListing, GroupState, ListGroupsRequest, Offset, OffsetsRetention, PartitionKey,
    RetryPolicyChanges,
};

use super::{Admin, check};
use crate::error::{ClientError, ErrorKind, Result};

impl Admin {
    /// The groups whose id begins with `prefix`, by name; `state` leaves out the others.
    ///
    /// # Errors
    /// No broker answers.
    pub async fn list_groups(&self, prefix: &str, state: Option<GroupState>) -> Result<Vec<GroupListing>> {
        const OPERATION: &str = "list groups";
        let mut request = ListGroupsRequest { prefix: prefix.to_owned(), state, after: None, limit: 0 };
        let mut groups: Vec<GroupListing> = Vec::new();
        loop {
            let page = self.client.retrying(OPERATION, "", async || {
                let (reply, _) = self.client.call_any(OPERATION, &request).await?;
                check(OPERATION, "", reply.error, reply.message.as_deref())?;
                Ok(reply)
            });
            let page = page.await?;
            groups.extend(page.groups);
            if !page.more {
                return Ok(groups);
            }
            let last = groups.last().map(|group| group.group.clone());
            if last == request.after {
                let cause = "a page without groups, and there should be more";
                return Err(ClientError::new(ErrorKind::Protocol, OPERATION, "", cause));
            }
            request.after = last;
        }
    }

    /// Members, positions and lag of a group, with what it has parked and its retry policy.
    ///
    /// # Errors
    /// There is no such group.
    pub async fn describe_group(&self, group: &str) -> Result<DescribeGroupReply> {
        const OPERATION: &str = "describe group";
        let mut request = DescribeGroupRequest { group: group.to_owned(), after: None };
        let mut description: Option<DescribeGroupReply> = None;
        loop {
            let page = self.client.retrying(OPERATION, group, async || {
                let (reply, _) = self.client.call_any(OPERATION, &request).await?;
                check(OPERATION, group, reply.error, reply.message.as_deref())?;
                Ok(reply)
            });
            let page = page.await?;
            let (more, last) = (page.more, page.partitions.last().map(|part| PartitionKey::new(part.topic, part.partition)));
            let whole = match &mut description {
                None => description.insert(page),
                Some(whole) => {
                    whole.partitions.extend(page.partitions);
                    whole
                }
            };
            if !more {
                whole.more = false;
                return Ok(description.expect("a page has come"));
            }
            if last.is_none() {
                let cause = "a page without partitions, and there should be more";
                return Err(ClientError::new(ErrorKind::Protocol, OPERATION, group, cause));
            }
            request.after = last;
        }
    }

    /// Deletes a group without members, with its offsets and what it has parked.
    ///
    /// # Errors
    /// There is no such group, or it has members.
    pub async fn delete_group(&self, group: &str) -> Result<()> {
        const OPERATION: &str = "delete group";
        let request = DeleteGroupRequest { group: group.to_owned() };
        self.client
            .retrying(OPERATION, group, async || {
                let (reply, _) = self.client.call_any(OPERATION, &request).await?;
                check(OPERATION, group, reply.error, reply.message.as_deref())
            })
            .await
    }

    /// Moves a group by hand in partitions of one topic: each to an offset, or (`None`) to where it never committed. `clear_parked` also
    /// forgets the records that failed there and wait to be tried again.
    ///
    /// # Errors
    /// A member owns one of the partitions; those named before it in the same call may have been moved.
    pub async fn alter_group_offsets(
        &self,
        group: &str,
        topic: &str,
        offsets: &BTreeMap<u32, Option<Offset>>,
        clear_parked: bool,
    ) -> Result<()> {
        const OPERATION: &str = "alter offsets";
        let info = self.client.topic(topic).await.map_err(|error| error.during(OPERATION))?;
        let mut partitions = Vec::with_capacity(offsets.len());
        for (partition, offset) in offsets {
            if *partition >= info.partition_count() {
                return Err(ClientError::no_such_partition(OPERATION, &info, *partition));
            }
            let key = info.key(*partition);
            partitions.push(AlterPartition { topic: key.topic, partition: key.partition, offset: *offset });
        }
        let request = AlterOffsetsRequest { group: group.to_owned(), clear_parked, partitions };
        self.client
            .retrying(OPERATION, group, async || {
                let (reply, _) = self.client.call_any(OPERATION, &request).await?;
                check(OPERATION, group, reply.error, reply.message.as_deref())?;
                for part in &reply.partitions {
                    let place = format!("{group}: {topic}/{}", part.partition.0);
                    check(OPERATION, &place, part.error, part.message.as_deref())?;
                }
                Ok(())
            })
            .await
    }

    /// Changes what a group does with records that fail, in all its topics or (`topic`) in one, and how long its offsets are kept. Unset, the
    /// policy of a topic is the group's again, that of a group the default, and the retention the broker's. `resume` lets partitions go
    /// on that the policy stopped.
    ///
    /// # Errors
    /// A value is not allowed.
    pub async fn alter_group(
        &self,
        group: &str,
        topic: Option<&str>,
        retry: Change<RetryPolicyChanges>,
        offsets_retention: Change<OffsetsRetention>,
        resume: bool,
    ) -> Result<AlterGroupReply> {
        const OPERATION: &str = "alter group";
        let (group_id, topic) = (group.to_owned(), topic.map(str::to_owned));
        let request = AlterGroupRequest { group: group_id, topic, retry, offsets_retention, resume };
        self.client
            .retrying(OPERATION, group, async || {
                let (reply, _) = self.client.call_any(OPERATION, &request).await?;
                check(OPERATION, group, reply.error, reply.message.as_deref())?;
                Ok(reply)
            })
            .await
    }
}
