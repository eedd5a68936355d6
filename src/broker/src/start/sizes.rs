//! The sizes that the configuration leaves to the broker, fitted to the host.

use crate::config::{Auto, ByteSize, Config};
use std::{fmt, ops::RangeInclusive};

const MIB: u64 = 1 << 20;

const IO_BYTES_MIN: u64 = shards::IO_MEMORY_BYTES_MIN as u64;
/// The kernel registers at most this much as one buffer.
const IO_BYTES_MAX: u64 = 1024 * MIB;

/// What the shards together keep until it is in segments takes this part of the memory.
const UNFLUSHED_SHARE: u64 = 8;
/// Below it a flush of many partitions writes little to each; above it replay after a crash, not memory, is the bound.
const UNFLUSHED_BYTES: RangeInclusive<u64> = 64 * MIB..=1024 * MIB;
/// The shards' tail caches together take this part of the memory.
const TAIL_CACHE_SHARE: u64 = 32;
/// Below it consumers close to the end would read from the disk; above it they are not close to the end.
const TAIL_CACHE_BYTES: RangeInclusive<u64> = 16 * MIB..=256 * MIB;
/// Files of a shard held open: each costs the kernel about a KiB, and opening one costs more than a small write.
const OPEN_FILES_MAX: u32 = 65_536;
/// Descriptors for everything but segments and connections.
const OTHER_FILES: u64 = 512;

/// What this host has.
#[derive(Debug)]
pub(super) struct Host {
    /// Memory of the machine, or of the group of processes that the broker is confined to.
    pub(super) memory_bytes: u64,
    /// I/O memory that may be locked, of all shards.
    pub(super) io_bytes_allowed: Option<u64>,
    /// Descriptors of the process.
    pub(super) open_files_max: Option<u64>,
}

impl Host {
    pub(super) fn look() -> Host {
        let info = rustix::system::sysinfo();
        let memory_bytes = info.totalram.saturating_mul(u64::from(info.mem_unit));
        let confined = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
        Host {
            memory_bytes: confined.map_or(memory_bytes, |confined: u64| confined.min(memory_bytes)),
            io_bytes_allowed: shards::probe::io_memory_bytes_allowed(),
            open_files_max: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
        }
    }
}

/// Of each shard.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) io_bytes: u64,
    pub(super) unflushed_bytes: u64,
    pub(super) tail_cache_bytes: u64,
    pub(super) open_files_max: u32,
}

impl Sizes {
    pub(super) fn fit(config: &Config, shard_count: u16, host: &Host) -> Sizes {
        let count = u64::from(shard_count);
        let share = |part: u64, bounds: RangeInclusive<u64>| {
            let bytes = host.memory_bytes / part / count / MIB * MIB;
            ByteSize(bytes.clamp(*bounds.start(), *bounds.end()))
        };
        let least_unflushed = if let Auto::Set(tail_cache) = config.memory.tail_cache_bytes { tail_cache } else { ByteSize(0) };
        // Appends wait when too much is held in memory: what is only held for readers must never be that much.
        let unflushed = config.memory.unflushed_bytes;
        let unflushed = unflushed.unwrap_or_fit(|| share(UNFLUSHED_SHARE, UNFLUSHED_BYTES).max(least_unflushed));
        let tail_cache = config.memory.tail_cache_bytes;
        let tail_cache = tail_cache.unwrap_or_fit(|| share(TAIL_CACHE_SHARE, TAIL_CACHE_BYTES).min(unflushed));
        // Registered is what the tail cache holds, the writes in flight, and what is read ahead. What goes beyond it comes from the heap.
        let io = || {
            let wanted = (tail_cache.0 + tail_cache.0 / 2).clamp(IO_BYTES_MIN, IO_BYTES_MAX);
            let allowed = host.io_bytes_allowed.map_or(u64::MAX, |bytes| bytes / count / MIB * MIB);
            // Where even the least is not allowed, the start says what is missing.
            ByteSize(wanted.min(allowed).max(IO_BYTES_MIN))
        };
        let open_files = || {
            let connections = u64::from(config.limits.connections_max);
            // With few descriptors, connections and segments share them.
            let free = host
                .open_files_max
                .map_or(u64::MAX, |limit| limit.saturating_sub(OTHER_FILES).saturating_sub(connections.min(limit / 2)));
            u32::try_from(free / count).map_or(OPEN_FILES_MAX, |files| files.clamp(64, OPEN_FILES_MAX))
        };
        Sizes {
            io_bytes: config.memory.io_bytes.unwrap_or_fit(io).0,
            unflushed_bytes: unflushed.0,
            tail_cache_bytes: tail_cache.0,
            open_files_max: config.log.open_files_max.unwrap_or_fit(open_files),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "each shard: {} of registered I/O memory, up to {} not yet in segments, {} of tail cache, {} segment files held open",
            ByteSize(self.io_bytes),
            ByteSize(self.unflushed_bytes),
            ByteSize(self.tail_cache_bytes),
            self.open_files_max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(config: &Config, shard_count: u16, memory_bytes: u64, io_bytes_allowed: Option<u64>, open_files_max: u64) -> Sizes {
        Sizes::fit(config, shard_count, &Host { memory_bytes, io_bytes_allowed, open_files_max: Some(open_files_max) })
    }

    #[test]
    fn sizes_follow_the_host() {
        let config = Config::default();
        let large = fit(&config, 31, 256 << 30, None, 1 << 20);
        let sizes = |io: u64, unflushed: u64, tail: u64, open_files_max| Sizes {
            io_bytes: io * MIB,
            unflushed_bytes: unflushed * MIB,
            tail_cache_bytes: tail * MIB,
            open_files_max,
        };
        assert_eq!(large, sizes(384, 1024, 256, 33_163));
        // Eight MiB of locked memory are what a user has on many systems.
        let laptop = fit(&config, 2, 8 << 30, Some((7 * MIB) / 3), 1024);
        assert_eq!(laptop, sizes(1, 512, 128, 64));
    }

    #[test]
    fn what_is_kept_for_readers_is_no_more_than_what_may_be_unflushed() {
        let mut config = Config::default();
        config.memory.unflushed_bytes = Auto::Set(ByteSize(2 * MIB));
        let sizes = fit(&config, 1, 64 << 30, None, 1 << 20);
        assert_eq!((sizes.unflushed_bytes, sizes.tail_cache_bytes), (2 * MIB, 2 * MIB));
        let mut config = Config::default();
        config.memory.tail_cache_bytes = Auto::Set(ByteSize(4096 * MIB));
        let sizes = fit(&config, 1, 64 << 30, None, 1 << 20);
        assert_eq!((sizes.unflushed_bytes, sizes.tail_cache_bytes), (4096 * MIB, 4096 * MIB));
    }

    #[test]
    fn what_is_configured_is_taken() {
        let mut config = Config::default();
        config.memory.io_bytes = Auto::Set(ByteSize(5 * MIB));
        config.memory.unflushed_bytes = Auto::Set(ByteSize(7 * MIB));
        config.memory.tail_cache_bytes = Auto::Set(ByteSize(0));
        config.log.open_files_max = Auto::Set(17);
        let sizes = fit(&config, 4, 1 << 30, Some(0), 64);
        assert_eq!(sizes, Sizes { io_bytes: 5 * MIB, unflushed_bytes: 7 * MIB, tail_cache_bytes: 0, open_files_max: 17 });
    }
}
