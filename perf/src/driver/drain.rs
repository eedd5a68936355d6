//! Reading to the end, when nothing is timed.

use std::time::{Duration, Instant};

use super::DriverError;
use super::consumer::{Consumer, Inbox};
use super::link::{Flushed, Link};

/// Lets one consumer read until it has `messages`, or for `time_max`.
///
/// # Errors
/// When a connection breaks, or the broker answers something that is not the protocol.
pub fn drain(
    mut links: Vec<Link>,
    mut consumer: Consumer,
    inbox: &mut Inbox,
    messages: u64,
    time_max: Duration,
) -> Result<(), DriverError> {
    let started = Instant::now();
    let mut touched = Vec::new();
    while inbox.messages() < messages && started.elapsed() < time_max {
        // Blocking sockets, one after the other: nothing is timed here.
        consumer.send(&mut links, &mut touched);
        touched.sort_unstable();
        for link in touched.drain(..) {
            while links[link].flush(usize::MAX)? != Flushed::All {}
            let (header, frame) = links[link].wait_frame()?;
            let address = links[link].address();
            consumer.reply(link, address, &header, &frame, 0, inbox)?;
        }
    }
    Ok(())
}
