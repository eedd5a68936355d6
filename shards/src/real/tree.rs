//! Directories and small files by the standard library, on the blocking thread. On an ordinary thread the calls run there.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::shard::blocking;
use crate::disk::{DirEntry, DiskError, DiskErrorKind, FreeSpace};
use crate::machine::{self, Machine};

async fn run<R: Send + 'static>(
    operation: &'static str,
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<R> + Send + 'static,
) -> Result<R, DiskError> {
    let owned = path.to_owned();
    let result = if machine::with(|machine| matches!(machine, Machine::Real(_))) {
        blocking(move || work(&owned)).await
    } else {
        Ok(work(&owned))
    };
    match result {
        Ok(result) => result.map_err(|error| DiskError::from_io(operation, path, &error)),
        Err(panicked) => Err(DiskError::new(operation, path, DiskErrorKind::Panicked(panicked.message))),
    }
}

pub(crate) async fn create_dir_all(path: &Path) -> Result<(), DiskError> {
    run("create", path, |path| fs::create_dir_all(path)).await
}

pub(crate) async fn create_dirs(parent: &Path, names: &[String]) -> Result<(), DiskError> {
    let names = names.to_vec();
    run("create in", parent, move |parent| {
        for name in &names {
            match fs::create_dir(parent.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    })
    .await
}

pub(crate) async fn list_dir(path: &Path) -> Result<Vec<DirEntry>, DiskError> {
    run("list", path, |path| {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirEntry { name, is_dir: entry.file_type()?.is_dir() });
            }
        }
        entries.sort();
        Ok(entries)
    })
    .await
}

pub(crate) async fn exists(path: &Path) -> Result<bool, DiskError> {
    run("look at", path, |path| path.try_exists()).await
}

pub(crate) async fn rename(source: &Path, target: &Path) -> Result<(), DiskError> {
    let target = target.to_owned();
    run("rename", source, move |source| fs::rename(source, &target)).await
}

pub(crate) async fn remove_file(path: &Path) -> Result<(), DiskError> {
    run("remove", path, |path| fs::remove_file(path)).await
}

pub(crate) async fn remove_dir_all(path: &Path) -> Result<(), DiskError> {
    run("remove", path, |path| fs::remove_dir_all(path)).await
}

pub(crate) async fn sync_dir(path: &Path) -> Result<(), DiskError> {
    run("sync", path, |path| fs::File::open(path)?.sync_all()).await
}

pub(crate) async fn syncfs(path: &Path) -> Result<(), DiskError> {
    run("sync the file system of", path, |path| Ok(rustix::fs::syncfs(fs::File::open(path)?.as_fd())?)).await
}

pub(crate) async fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    let read = run("read", path, move |path| {
        let mut bytes = Vec::new();
        let file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok((bytes, length))
    });
    let (bytes, length) = read.await?;
    if bytes.len() as u64 > bytes_max {
        return Err(DiskError::new("read", path, DiskErrorKind::TooLarge { length, limit: bytes_max }));
    }
    Ok(bytes)
}

pub(crate) async fn write_file_atomically(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let bytes = bytes.to_vec();
    run("write", path, move |path| {
        let temporary = temporary_name(path);
        let written = write_and_rename(&temporary, path, &bytes);
        if written.is_err() {
            // The error that counts is the first; a leftover is overwritten by the next attempt.
            let _ = fs::remove_file(&temporary);
        }
        written
    })
    .await
}

fn write_and_rename(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    fs::File::open(directory_of(path))?.sync_all()
}

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

pub(crate) async fn free_space(path: &Path) -> Result<FreeSpace, DiskError> {
    run("look at", path, |path| {
        let stat = rustix::fs::statvfs(path)?;
        Ok(FreeSpace { total_bytes: stat.f_blocks * stat.f_frsize, available_bytes: stat.f_bavail * stat.f_frsize })
    })
    .await
}
