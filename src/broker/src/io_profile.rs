//! What `corelane tune iobench` measured of a disk: the settings of the log that depend on it.

use commit_log::{LogOptions, limits};
use serde::Deserialize;
use std::{fs, io, path::Path};

/// The file it writes into a disk's folder.
const FILE: &str = "io.toml";
const VERSION: u32 = 1;

#[derive(Deserialize)]
struct Profile {
    version: u32,
    #[serde(rename = "use")]
    settings: Settings,
}

#[derive(Deserialize)]
struct Settings {
    commit_groups_in_flight: u32,
    direct_write_threshold_bytes: u64,
    segment_write_depth: u32,
    read_depth: u32,
}

/// Puts what was measured of the disk at `disk` into `options`. `given`: the file that the configuration names, else the disk's own
/// is used when it is there. A file that cannot be used is a warning: the defaults work everywhere.
pub(crate) fn apply(options: &mut LogOptions, given: &Path, disk: &Path) {
    let is_given = !given.as_os_str().is_empty();
    let path = if is_given { given.to_owned() } else { disk.join(FILE) };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_given => return,
        Err(error) => return tracing::warn!("cannot read the I/O profile {}: {error}; defaults are used", path.display()),
    };
    match parse(&text) {
        Ok(settings) => {
            tracing::info!("I/O profile {} is used", path.display());
            options.commit_groups_in_flight = settings.commit_groups_in_flight;
            // With small log files a group would not hold what is below the threshold.
            options.direct_write_threshold_bytes = settings.direct_write_threshold_bytes.min(options.wal_file_bytes / 2);
            options.segment_write_depth = settings.segment_write_depth;
            options.read_depth = settings.read_depth;
        }
        Err(what) => tracing::warn!("the I/O profile {} is not used: {what}; defaults are used", path.display()),
    }
}

fn parse(text: &str) -> Result<Settings, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    if version != VERSION {
        return Err(format!("version {version}, version {VERSION} is known"));
    }
    let profile: Profile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    assert_eq!(profile.version, VERSION);
    let settings = profile.settings;
    let is_sane = (1..=limits::WAL_GROUPS_IN_FLIGHT_MAX).contains(&settings.commit_groups_in_flight.into())
        && (4096..=limits::DIRECT_THRESHOLD_BYTES_MAX).contains(&settings.direct_write_threshold_bytes)
        && (1..=64).contains(&settings.segment_write_depth)
        && (1..=64).contains(&settings.read_depth);
    if is_sane { Ok(settings) } else { Err("a value is out of range".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "version = 1\n[use]\ncommit_groups_in_flight = 5\ndirect_write_threshold_bytes = 131072\nsegment_write_depth = 2\n\
                        read_depth = 4\n[measured]\nwhatever = 1\n";

    #[test]
    fn a_profile_is_used_and_a_bad_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let used = |text: &str| {
            fs::write(folder.path().join(FILE), text).unwrap();
            let mut options = LogOptions::default();
            apply(&mut options, Path::new(""), folder.path());
            options.commit_groups_in_flight
        };
        let default = LogOptions::default().commit_groups_in_flight;
        assert_eq!(used(GOOD), 5);
        let large_threshold = GOOD.replace("131072", "8388609");
        for bad in ["", "version = 2\n", &GOOD.replace("= 5", "= 99"), &large_threshold, &GOOD.replace("read_depth = 4", "")] {
            assert_eq!(used(bad), default, "{bad}");
        }
    }

    #[test]
    fn a_threshold_fits_the_log_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), GOOD.replace("131072", "8388608")).unwrap();
        let mut options = LogOptions { wal_file_bytes: 1 << 20, ..LogOptions::default() };
        apply(&mut options, Path::new(""), folder.path());
        assert_eq!(options.direct_write_threshold_bytes, 512 << 10);
    }
}
