//! Time. The only clock of the data path, so that a simulation can turn it.

use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::machine::{self, Machine};
use crate::{real, simulated};

/// A point of the monotonic clock, in nanoseconds since an arbitrary start. Never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// Nanoseconds since the start of the clock.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero when it is in the future.
    pub fn since(self, earlier: Monotonic) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long ago this point was; zero when it is in the future. Reads the clock.
    pub fn elapsed(self) -> Duration {
        monotonic().since(self)
    }
}

impl Sub for Monotonic {
    type Output = Duration;

    fn sub(self, earlier: Monotonic) -> Duration {
        self.since(earlier)
    }
}

impl Add<Duration> for Monotonic {
    type Output = Monotonic;

    fn add(self, after: Duration) -> Monotonic {
        let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        Monotonic(self.0.saturating_add(nanos))
    }
}

/// Now.
pub fn monotonic() -> Monotonic {
    machine::with(|machine| match machine {
        Machine::Simulated(world) => Monotonic(world.monotonic_ns()),
        Machine::Real(_) | Machine::Ordinary => Monotonic(real::clock::monotonic_ns()),
    })
}

/// The time of the last tick of this shard: free to read, up to a tick (2 ms) or a stall old.
pub fn monotonic_coarse() -> Monotonic {
    machine::with(|machine| match machine {
        Machine::Real(shard) => Monotonic(shard.coarse_ns()),
        Machine::Simulated(world) => Monotonic(world.monotonic_ns()),
        Machine::Ordinary => Monotonic(real::clock::monotonic_ns()),
    })
}

/// Milliseconds since 1970 by the wall clock. It may jump, also backwards.
pub fn wall_ms() -> i64 {
    machine::with(|machine| match machine {
        Machine::Simulated(world) => world.wall_ms(),
        Machine::Real(_) | Machine::Ordinary => real::clock::wall_ms(),
    })
}

/// Completes once `duration` has passed. Dropping it disarms it.
pub fn sleep(duration: Duration) -> Sleep {
    match machine::current() {
        Machine::Real(_) => Sleep { inner: Inner::Real(real::clock::Sleep::new(duration)) },
        Machine::Simulated(world) => Sleep { inner: Inner::Simulated(simulated::Sleep::new(&world, duration)) },
        Machine::Ordinary => machine::outside("clock::sleep"),
    }
}

/// Completes once the clock has reached `point`.
pub fn sleep_until(point: Monotonic) -> Sleep {
    sleep(point.since(monotonic()))
}

/// A running timer.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    inner: Inner,
}

enum Inner {
    Real(real::clock::Sleep),
    Simulated(simulated::Sleep),
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.inner {
            Inner::Real(sleep) => Pin::new(sleep).poll(context),
            Inner::Simulated(sleep) => Pin::new(sleep).poll(context),
        }
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Sleep")
    }
}
