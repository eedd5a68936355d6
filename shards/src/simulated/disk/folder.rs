//! Folders of a simulated disk, and small files as a whole.

use std::path::Path;
use std::rc::Rc;

use super::file::{File, error};
use super::{Disk, Problem, Reply, Request, perform};
use crate::DISK_ALIGNMENT_BYTES;
use crate::disk::{DirEntry, DiskError, DiskErrorKind, FreeSpace, OpenOptions};
use crate::simulated::world::World;

pub(crate) async fn create_dir_all(world: &Rc<World>, path: &Path) -> Result<(), DiskError> {
    run(world, "create directory", path, Request::CreateFolders { within: None, paths: vec![path.to_owned()] }).await.map(|_| ())
}

pub(crate) async fn create_dirs(world: &Rc<World>, parent: &Path, names: &[String]) -> Result<(), DiskError> {
    let paths = names.iter().map(|name| parent.join(name)).collect();
    let within = Some(parent.to_owned());
    run(world, "create directories", parent, Request::CreateFolders { within, paths }).await.map(|_| ())
}

pub(crate) async fn list_dir(world: &Rc<World>, path: &Path) -> Result<Vec<DirEntry>, DiskError> {
    let reply = run(world, "list", path, Request::List { path: path.to_owned() }).await?;
    let Reply::Names(names) = reply else { unreachable!("a listing replies with names") };
    let entries = names.into_iter().filter_map(|(name, is_dir)| Some(DirEntry { name: name.into_string().ok()?, is_dir }));
    Ok(entries.collect())
}

pub(crate) async fn exists(world: &Rc<World>, path: &Path) -> Result<bool, DiskError> {
    let disk = disk_of(world, "stat", path)?;
    let found = disk.state.borrow().tree.find(path).is_ok();
    Ok(found)
}

pub(crate) async fn rename(world: &Rc<World>, source: &Path, target: &Path) -> Result<(), DiskError> {
    run(world, "rename", source, Request::Rename { source: source.to_owned(), target: target.to_owned() }).await.map(|_| ())
}

pub(crate) async fn remove_file(world: &Rc<World>, path: &Path) -> Result<(), DiskError> {
    run(world, "remove", path, Request::RemoveFile { path: path.to_owned() }).await.map(|_| ())
}

pub(crate) async fn remove_dir_all(world: &Rc<World>, path: &Path) -> Result<(), DiskError> {
    run(world, "remove directory", path, Request::RemoveTree { path: path.to_owned() }).await.map(|_| ())
}

pub(crate) async fn sync_dir(world: &Rc<World>, path: &Path) -> Result<(), DiskError> {
    run(world, "sync directory", path, Request::SyncFolder { path: path.to_owned() }).await.map(|_| ())
}

pub(crate) async fn syncfs(world: &Rc<World>, path: &Path) -> Result<(), DiskError> {
    run(world, "syncfs", path, Request::SyncDisk).await.map(|_| ())
}

pub(crate) async fn read_file(world: &Rc<World>, path: &Path, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    let file = File::open(world, path, OpenOptions::reading()).await?;
    let length = file.len()?;
    if length > bytes_max {
        return Err(DiskError::new("read", path, DiskErrorKind::TooLarge { length, limit: bytes_max }));
    }
    file.read_bytes(0, usize::try_from(length).expect("a file held in memory fits its addresses")).await
}

/// The steps of the real machine, so that a crash finds it between any two of them.
pub(crate) async fn write_file_atomically(world: &Rc<World>, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let folder = path.parent().ok_or_else(|| error("write", path, Problem::Errno(libc::EINVAL), 0))?;
    let mut name = path.file_name().ok_or_else(|| error("write", path, Problem::Errno(libc::EINVAL), 0))?.to_owned();
    name.push(".tmp");
    let temporary = folder.join(name);
    let options = OpenOptions { read: true, write: true, create: true, ..OpenOptions::default() };
    let file = File::open(world, &temporary, options).await?;
    file.truncate(0).await?;
    if !bytes.is_empty() {
        let mut pages = crate::buffer::allocate(bytes.len().next_multiple_of(DISK_ALIGNMENT_BYTES));
        pages[..bytes.len()].copy_from_slice(bytes);
        pages[bytes.len()..].fill(0);
        file.write_at(0, pages.freeze()).await?;
        file.truncate(bytes.len() as u64).await?;
    }
    file.fdatasync().await?;
    file.close().await?;
    rename(world, &temporary, path).await?;
    sync_dir(world, folder).await
}

pub(crate) async fn free_space(world: &Rc<World>, path: &Path) -> Result<FreeSpace, DiskError> {
    let disk = disk_of(world, "statfs", path)?;
    let (total_bytes, available_bytes) = disk.space();
    Ok(FreeSpace { total_bytes, available_bytes })
}

async fn run(world: &Rc<World>, operation: &'static str, path: &Path, request: Request) -> Result<Reply, DiskError> {
    let disk = disk_of(world, operation, path)?;
    perform(world, &disk, path, request).await.map_err(|problem| error(operation, path, problem, 0))
}

fn disk_of(world: &Rc<World>, operation: &'static str, path: &Path) -> Result<Disk, DiskError> {
    world.disk_of(path).ok_or_else(|| error(operation, path, Problem::Errno(libc::ENOENT), 0))
}
