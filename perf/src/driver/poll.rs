//! Waiting for many connections at once, and sending on them without blocking.

use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use super::DriverError;
use super::link::{Flushed, Link};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// The connections of an event loop, known by their index.
pub struct Poll {
    epoll: OwnedFd,
    /// Connections that wait for room in their socket.
    blocked: Vec<bool>,
    events: Vec<epoll::Event>,
}

/// What can be done with a connection.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    /// Its index.
    pub link: usize,
    /// There is room to send again.
    pub writable: bool,
    /// Something arrived, or the connection broke.
    pub readable: bool,
}

impl Poll {
    /// Watches connections; they go over to non-blocking use.
    ///
    /// # Errors
    /// When a socket or the kernel refuses.
    pub fn new(links: &mut [Link]) -> Result<Poll, DriverError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| DriverError::EventLoop(error.into()))?;
        for (index, link) in links.iter_mut().enumerate() {
            link.start()?;
            epoll::add(&epoll, link.stream(), epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)
                .map_err(|error| DriverError::EventLoop(error.into()))?;
        }
        let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        Ok(Poll { epoll, blocked: vec![false; links.len()], events: vec![nothing; EVENTS_MAX] })
    }

    /// Sends a portion of at most `bytes_max` of what is queued on a connection. Returns whether the socket may take more at once; when
    /// it is full, [`Poll::wait`] tells when there is room again.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn flush(&mut self, index: usize, link: &mut Link, bytes_max: usize) -> Result<bool, DriverError> {
        let flushed = link.flush(bytes_max)?;
        let blocked = flushed == Flushed::Full;
        if blocked != self.blocked[index] {
            self.blocked[index] = blocked;
            let flags = if blocked { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.epoll, link.stream(), epoll::EventData::new_u64(index as u64), flags)
                .map_err(|error| DriverError::EventLoop(error.into()))?;
        }
        Ok(flushed == Flushed::Portion)
    }

    /// Waits until something can be done or the time is over; returns how many connections are ready, for [`Poll::ready`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn wait(&mut self, timeout: Duration) -> Result<usize, DriverError> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match epoll::wait(&self.epoll, &mut self.events[..], Some(&timeout)) {
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(DriverError::EventLoop(error.into())),
        }
    }

    /// The ready connection of this number, counted from 0.
    pub fn ready(&self, number: usize) -> Ready {
        // Copied out: the kernel's struct is packed.
        let (flags, link) = (self.events[number].flags, self.events[number].data.u64() as usize);
        let arrived = epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        Ready { link, writable: flags.contains(epoll::EventFlags::OUT), readable: flags.intersects(arrived) }
    }
}
