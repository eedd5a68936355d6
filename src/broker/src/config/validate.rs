//! What serde cannot see: values that each read well and cannot work together.

use super::{Auto, ByteSize, Config, ConfigError, PlacementRules, Span, shard_set::SHARDS_MAX};
use std::time::Duration;
use wire::limits;

const MIB: u64 = 1 << 20;

impl Config {
    /// Checks every bound and every relation between values. Called by `parse`; call it after changing values in code.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_limits()?;
        self.validate_memory()?;
        self.validate_log()?;
        self.validate_placement()
    }

    /// Checks what depends on how many shards there are.
    pub fn validate_shard_count(&self, shard_count: u16) -> Result<(), ConfigError> {
        for rule in &self.placement {
            let greatest = rule.shards.greatest();
            if greatest >= shard_count {
                let what = format!("`{}` names shard {greatest}, but there are {shard_count}, numbered from 0", rule.topic);
                return Err(ConfigError::Invalid { key: "placement.shards", what });
            }
        }
        let mut owner = vec![None; usize::from(shard_count)];
        for disk in &self.disk {
            for shard in disk.shards.iter().flat_map(|set| set.as_slice()) {
                let what = match owner.get_mut(usize::from(*shard)) {
                    None => format!("{} names shard {shard}, but there are {shard_count}, numbered from 0", disk.path.display()),
                    Some(Some(_)) => format!("shard {shard} is named by two disks: each shard writes to one"),
                    Some(slot) => {
                        *slot = Some(());
                        continue;
                    }
                };
                return Err(ConfigError::Invalid { key: "disk.shards", what });
            }
        }
        let spread_is_given = self.disk.iter().any(|disk| disk.shards.is_some());
        if spread_is_given && let Some(shard) = owner.iter().position(Option::is_none) {
            let what = format!("no disk names shard {shard}: give `shards` for all shards, or for none");
            return Err(ConfigError::Invalid { key: "disk.shards", what });
        }
        Ok(())
    }

    fn validate_limits(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        let frame_ceiling = u64::from(limits::FRAME_BYTES_MAX);
        size("limits.frame_bytes_max", limits.frame_bytes_max, 64 << 10, frame_ceiling)?;
        size("limits.message_bytes_max", limits.message_bytes_max, 1 << 10, limits.frame_bytes_max.0 / 2)?;
        size("limits.fetch_bytes_max", limits.fetch_bytes_max, 64 << 10, frame_ceiling / 2)?;
        count("limits.connections_max", limits.connections_max, 1, 1_000_000)?;
        count("limits.requests_in_flight_max", limits.requests_in_flight_max, 1, 65_536)?;
        count("limits.topics_max", limits.topics_max, 1, 10_000_000)?;
        count("limits.partitions_max", limits.partitions_max, 1, 10_000_000)?;
        count("listen.backlog", self.listen.backlog, 1, 65_535)?;
        span("limits.fetch_wait_max", limits.fetch_wait_max, 1, 3_600_000)?;
        span("limits.hello_timeout", limits.hello_timeout, 100, 3_600_000)?;
        span("limits.read_timeout", limits.read_timeout, 100, 3_600_000)?;
        span("limits.write_timeout", limits.write_timeout, 100, 3_600_000)?;
        span("stop.drain_within", self.stop.drain_within, 0, 600_000)?;
        let groups = &self.groups;
        count("groups.partitions", groups.partitions, 1, limits::PARTITIONS_PER_TOPIC_MAX)?;
        span("groups.heartbeat_interval", groups.heartbeat_interval, 100, 60_000)?;
        count("groups.groups_max", groups.groups_max, 1, 10_000_000)?;
        let (retention_min, retention_max) = (limits::OFFSETS_RETENTION_MS_MIN, limits::OFFSETS_RETENTION_MS_MAX);
        span("groups.offsets_retention", groups.offsets_retention, retention_min, retention_max)?;
        count("groups.metrics_max", groups.metrics_max, 0, 100_000)?;
        span("cores.spin", self.cores.spin, 0, 1_000)
    }

    fn validate_memory(&self) -> Result<(), ConfigError> {
        let memory = &self.memory;
        let frame = self.limits.frame_bytes_max.0;
        let fetch = self.limits.fetch_bytes_max.0;
        let ceiling = 1 << 44;
        // Below one frame, a legal request could never be admitted.
        size("memory.connection_in_flight_bytes_max", memory.connection_in_flight_bytes_max, frame, ceiling)?;
        size("memory.in_flight_bytes_max", memory.in_flight_bytes_max, frame, ceiling)?;
        size("memory.connection_reply_bytes_max", memory.connection_reply_bytes_max, fetch, ceiling)?;
        size("memory.reply_bytes_max", memory.reply_bytes_max, fetch, ceiling)?;
        size("memory.append_bytes_max", memory.append_bytes_max, frame, ceiling)?;
        if let Auto::Set(bytes) = memory.unflushed_bytes {
            size("memory.unflushed_bytes", bytes, MIB, ceiling)?;
        }
        if let Auto::Set(bytes) = memory.tail_cache_bytes {
            let max = if let Auto::Set(unflushed) = memory.unflushed_bytes { unflushed.0 } else { ceiling };
            size("memory.tail_cache_bytes", bytes, 0, max)?;
        }
        size("memory.compaction_bytes", memory.compaction_bytes, MIB, ceiling)?;
        size("memory.read_cache_bytes", memory.read_cache_bytes, 0, ceiling)?;
        if let Auto::Set(bytes) = memory.io_bytes {
            size("memory.io_bytes", bytes, MIB, 1 << 30)?;
        }
        span("memory.admission_wait", memory.admission_wait, 0, 600_000)
    }

    fn validate_log(&self) -> Result<(), ConfigError> {
        let log = &self.log;
        size("log.wal_file_bytes", log.wal_file_bytes, MIB, commit_log::limits::WAL_FILE_BYTES_MAX)?;
        if !log.wal_file_bytes.0.is_multiple_of(4096) {
            return Err(invalid("log.wal_file_bytes", "must be a multiple of 4096 bytes".to_owned()));
        }
        size("log.wal_bytes_max", log.wal_bytes_max, 3 * log.wal_file_bytes.0, 1 << 40)?;
        size("log.free_bytes_min", log.free_bytes_min, 0, 1 << 50)?;
        size("log.free_bytes_resume", log.free_bytes_resume, log.free_bytes_min.0, 1 << 50)?;
        span("log.compaction_interval", log.compaction_interval, 100, 24 * 3_600_000)?;
        size("log.compaction_bytes_per_second", log.compaction_bytes_per_second, MIB, 1 << 40)?;
        // At less a pass over one segment would take days.
        let scrub_min = if log.scrub_bytes_per_second.0 == 0 { 0 } else { 64 << 10 };
        size("log.scrub_bytes_per_second", log.scrub_bytes_per_second, scrub_min, 1 << 40)?;
        span("log.scrub_interval", log.scrub_interval, 100, 366 * 86_400_000)?;
        span("log.relaxed_within", log.relaxed_within, 1, 60_000)?;
        // Less, and a retry could come too late to be recognised.
        span("log.producers_kept", log.producers_kept, 600_000, 366 * 86_400_000)?;
        match log.open_files_max {
            Auto::Auto => Ok(()),
            Auto::Set(files) => count("log.open_files_max", files, 16, 1 << 20),
        }
    }

    fn validate_placement(&self) -> Result<(), ConfigError> {
        PlacementRules::new(&self.placement, SHARDS_MAX).map_err(|error| invalid("placement.topic", format!("{error}")))?;
        for (at, disk) in self.disk.iter().enumerate() {
            if disk.path.as_os_str().is_empty() {
                return Err(invalid("disk.path", "is empty".to_owned()));
            }
            if self.disk[..at].iter().any(|other| other.path == disk.path) {
                return Err(invalid("disk.path", format!("{} is given twice", disk.path.display())));
            }
        }
        let advertised = &self.listen.advertised;
        let port_reads =
            |text: &str| text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !advertised.is_empty() && !port_reads(advertised) {
            return Err(invalid("listen.advertised", format!("`{advertised}` is not host:port")));
        }
        Ok(())
    }
}

fn invalid(key: &'static str, what: String) -> ConfigError {
    ConfigError::Invalid { key, what }
}

fn size(key: &'static str, value: ByteSize, min: u64, max: u64) -> Result<(), ConfigError> {
    if (min..=max).contains(&value.0) {
        return Ok(());
    }
    Err(invalid(key, format!("{value} is not between {} and {}", ByteSize(min), ByteSize(max))))
}

fn count(key: &'static str, value: u32, min: u32, max: u32) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(invalid(key, format!("{value} is not between {min} and {max}")))
}

fn span(key: &'static str, value: Span, min_ms: u64, max_ms: u64) -> Result<(), ConfigError> {
    let (min, max) = (Duration::from_millis(min_ms), Duration::from_millis(max_ms));
    if (min..=max).contains(&value.0) {
        return Ok(());
    }
    Err(invalid(key, format!("{value} is not between {} and {}", Span(min), Span(max))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, message: &str) {
        let error = Config::parse(text, "c").unwrap_err().to_string();
        assert!(error.contains(message), "{text:?} gave {error:?}");
    }

    #[test]
    fn impossible_values_are_refused() {
        check("[limits]\nconnections_max = 0", "limits.connections_max: 0 is not between 1 and 1000000");
        check("[memory]\nin_flight_bytes_max = \"1MiB\"", "memory.in_flight_bytes_max: 1MiB is not between 64MiB and");
        check(
            "[memory]\nunflushed_bytes = \"8MiB\"\ntail_cache_bytes = \"9MiB\"",
            "memory.tail_cache_bytes: 9MiB is not between 0",
        );
        check("[log]\nwal_file_bytes = 4194305", "multiple of 4096");
        check(
            "[log]\nwal_file_bytes = \"2GiB\"\nwal_bytes_max = \"8GiB\"",
            "log.wal_file_bytes: 2GiB is not between 1MiB and 1GiB",
        );
        check("[log]\nscrub_bytes_per_second = \"1KiB\"", "log.scrub_bytes_per_second: 1KiB is not between 64KiB and 1TiB");
        assert!(Config::parse("[log]\nscrub_bytes_per_second = 0", "c").is_ok(), "there may be no check");
        check("[[placement]]\ntopic = \"a[\"\nshards = \"0\"", "placement.topic");
        check("[[disk]]\npath = \"a\"\n[[disk]]\npath = \"a\"", "given twice");
        check("[listen]\nadvertised = \"nowhere\"", "is not host:port");
    }

    #[test]
    fn shards_must_exist_and_have_one_disk() {
        let config = |text: &str| Config::parse(text, "c").unwrap();
        let rule = config("[[placement]]\ntopic = \"a\"\nshards = \"0-4\"");
        assert!(rule.validate_shard_count(4).unwrap_err().to_string().contains("names shard 4"));
        assert!(rule.validate_shard_count(5).is_ok());
        let twice = config("[[disk]]\npath = \"a\"\nshards = \"0-1\"\n[[disk]]\npath = \"b\"\nshards = \"1\"");
        assert!(twice.validate_shard_count(2).unwrap_err().to_string().contains("two disks"));
        let missing = config("[[disk]]\npath = \"a\"\nshards = \"0\"");
        assert!(missing.validate_shard_count(2).unwrap_err().to_string().contains("no disk names shard 1"));
    }

    #[test]
    fn the_default_is_valid() {
        Config::default().validate().unwrap();
        Config::default().validate_shard_count(1).unwrap();
    }
}
