use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use glommio::io::DmaFile;
use glommio::{GlommioError, ReactorErrorKind};

use super::Shard;
use super::memory::{DmaBlock, ReadBlock};
use super::shard::{Device, blocking, to_the_end};
use crate::DISK_ALIGNMENT_BYTES;
use crate::buffer::{self, Shared, Storage};
use crate::disk::{DiskError, DiskErrorKind, OpenOptions};

/// A write that has to be copied, and one of zeroes, goes out in pieces of this size.
const WRITE_PIECE_BYTES: usize = 1 << 20;

#[derive(Clone)]
pub(crate) struct File {
    open: Rc<Open>,
}

struct Open {
    shard: Rc<Shard>,
    device: Device,
    dma: DmaFile,
    path: PathBuf,
}

impl File {
    pub(crate) async fn open(shard: Rc<Shard>, path: &Path, options: OpenOptions) -> Result<File, DiskError> {
        let path = std::path::absolute(path).map_err(|error| DiskError::from_io("open", path, &error))?;
        to_the_end(async move {
            let permit = shard.disk_permit().await;
            let opened = open_descriptor(&path, options).await?;
            let number = rustix::fs::fstat(&opened).map_err(|errno| DiskError::from_io("look at", &path, &errno.into()))?.st_dev;
            drop(permit);
            let device = shard.device(number, path.parent().unwrap_or(&path)).await?;
            let _permit = shard.disk_permit().await;
            let mut open = glommio::io::OpenOptions::new();
            open.read(options.read).write(options.write);
            if options.dsync {
                open.custom_flags(libc::O_DSYNC);
            }
            // glommio asks by path for the file system of what it has just opened, and panics when the path is gone, as when
            // somebody renames or removes the file meanwhile. The path of our descriptor stays as long as we hold it.
            let dma = open.dma_open(format!("/proc/self/fd/{}", opened.as_raw_fd())).await;
            drop(opened);
            let dma = dma.map_err(|error| failed("open", &path, error))?;
            Ok(File { open: Rc::new(Open { shard: Rc::clone(&shard), device, dma, path }) })
        })
        .await
    }

    pub(crate) fn path(&self) -> &Path {
        &self.open.path
    }

    pub(crate) async fn write_at(&self, position: u64, bytes: Shared) -> Result<(), DiskError> {
        if let Storage::Dma(block) = bytes.storage()
            && block.as_slice().len() == bytes.len()
            && bytes.len() <= self.open.device.write_bytes_max()
        {
            return self.write_block(position, block.whole()).await;
        }
        // The slice is not a whole block of I/O memory, and the executor writes only those.
        let piece_bytes = self.write_piece_bytes();
        for (piece, offset) in bytes.chunks(piece_bytes).zip((0u64..).step_by(piece_bytes)) {
            let mut block = DmaBlock::allocate(piece.len());
            block.as_mut_slice().copy_from_slice(piece);
            self.write_block(position + offset, block.whole()).await?;
        }
        Ok(())
    }

    fn write_piece_bytes(&self) -> usize {
        WRITE_PIECE_BYTES.min(self.open.device.write_bytes_max())
    }

    async fn write_block(&self, position: u64, block: Rc<glommio::io::DmaBuffer>) -> Result<(), DiskError> {
        let open = Rc::clone(&self.open);
        to_the_end(async move {
            let _permit = open.shard.disk_permit().await;
            let wanted = block.len() as u64;
            let written = open.dma.write_rc_at(block, position).await.map_err(|error| failed("write", &open.path, error))?;
            let written = written as u64;
            if written == wanted {
                Ok(())
            } else {
                Err(DiskError::new("write", &open.path, DiskErrorKind::ShortWrite { written, wanted }))
            }
        })
        .await
    }

    pub(crate) async fn read_at(&self, position: u64, length: usize) -> Result<Shared, DiskError> {
        let skipped = (position % DISK_ALIGNMENT_BYTES as u64) as usize;
        let start = position - skipped as u64;
        let whole = buffer::align_up(skipped + length);
        let bytes = if whole <= self.open.device.read_bytes_max() {
            self.read_piece(start, whole).await?
        } else {
            self.read_pieces(start, whole).await?
        };
        let end = bytes.len().min(skipped + length);
        Ok(if end <= skipped { Shared::empty() } else { bytes.slice(skipped..end) })
    }

    async fn read_piece(&self, position: u64, length: usize) -> Result<Shared, DiskError> {
        let open = Rc::clone(&self.open);
        to_the_end(async move {
            let _permit = open.shard.disk_permit().await;
            let read = open.dma.read_at_aligned(position, length).await;
            let read = read.map_err(|error| failed("read", &open.path, error))?;
            let length = read.len();
            Ok(Shared::new(Storage::Read(ReadBlock::new(read)), length))
        })
        .await
    }

    /// All pieces in flight together, gathered in one plain block.
    async fn read_pieces(&self, position: u64, length: usize) -> Result<Shared, DiskError> {
        let piece_bytes = self.open.device.read_bytes_max();
        let pieces: Vec<_> = (0..length)
            .step_by(piece_bytes)
            .map(|offset| {
                let file = self.clone();
                let piece = piece_bytes.min(length - offset);
                self.open.shard.spawn(async move { (piece, file.read_piece(position + offset as u64, piece).await) })
            })
            .collect();
        let mut gathered = buffer::allocate_plain(length);
        let mut filled = 0;
        let mut ended = false;
        for piece in pieces {
            let (wanted, bytes) = piece.await;
            // Every piece is awaited: a read in flight is not cancelled.
            let bytes = bytes?;
            if !ended {
                gathered[filled..filled + bytes.len()].copy_from_slice(&bytes);
                filled += bytes.len();
                ended = bytes.len() < wanted;
            }
        }
        if filled == 0 {
            return Ok(Shared::empty());
        }
        gathered.truncate(filled);
        Ok(gathered.freeze())
    }

    pub(crate) async fn fdatasync(&self) -> Result<(), DiskError> {
        let open = Rc::clone(&self.open);
        to_the_end(async move {
            let _permit = open.shard.disk_permit().await;
            open.dma.fdatasync().await.map_err(|error| failed("sync", &open.path, error))
        })
        .await
    }

    pub(crate) async fn fallocate(&self, position: u64, length: u64) -> Result<(), DiskError> {
        let fd = self.duplicate("allocate")?;
        let flags = rustix::fs::FallocateFlags::empty();
        self.block("allocate", move || rustix::fs::fallocate(&fd, flags, position, length)).await
    }

    pub(crate) async fn truncate(&self, length: u64) -> Result<(), DiskError> {
        let fd = self.duplicate("truncate")?;
        self.block("truncate", move || rustix::fs::ftruncate(&fd, length)).await
    }

    pub(crate) async fn write_zeroes(&self, position: u64, length: u64) -> Result<(), DiskError> {
        if length == 0 {
            return Ok(());
        }
        let zeroes = |bytes: usize| {
            let mut block = DmaBlock::allocate(bytes);
            block.as_mut_slice().fill(0);
            block
        };
        let whole = zeroes(self.write_piece_bytes().min(usize::try_from(length).unwrap_or(usize::MAX)));
        let mut done = 0;
        while done < length {
            let left = usize::try_from(length - done).unwrap_or(usize::MAX);
            let block = if left < whole.capacity() { zeroes(left).whole() } else { whole.whole() };
            let bytes = block.len() as u64;
            self.write_block(position + done, block).await?;
            done += bytes;
        }
        Ok(())
    }

    /// By the descriptor, not by the path: the file may have been renamed.
    pub(crate) fn len(&self) -> Result<u64, DiskError> {
        let stat = rustix::fs::fstat(self.fd()).map_err(|errno| self.error("look at", errno))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    pub(crate) async fn close(self) -> Result<(), DiskError> {
        let Ok(open) = Rc::try_unwrap(self.open) else { return Ok(()) };
        let path = open.path;
        to_the_end(async move { open.dma.close().await.map_err(|error| failed("close", &path, error)) }).await
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as `self.open` lives, which the lifetime is bound to.
        unsafe { BorrowedFd::borrow_raw(self.open.dma.as_raw_fd()) }
    }

    /// A descriptor of its own for a blocking call, which may outlive this file.
    fn duplicate(&self, operation: &'static str) -> Result<OwnedFd, DiskError> {
        rustix::io::fcntl_dupfd_cloexec(self.fd(), 0).map_err(|errno| self.error(operation, errno))
    }

    async fn block(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> rustix::io::Result<()> + Send + 'static,
    ) -> Result<(), DiskError> {
        match blocking(work).await {
            Ok(result) => result.map_err(|errno| self.error(operation, errno)),
            Err(panicked) => Err(DiskError::new(operation, &self.open.path, DiskErrorKind::Panicked(panicked.message))),
        }
    }

    fn error(&self, operation: &'static str, errno: rustix::io::Errno) -> DiskError {
        DiskError::new(operation, &self.open.path, DiskErrorKind::Errno(errno.raw_os_error()))
    }
}

/// Opens (and creates) the file as asked, on the blocking thread.
async fn open_descriptor(path: &Path, options: OpenOptions) -> Result<std::fs::File, DiskError> {
    let owned = path.to_owned();
    let opened = blocking(move || {
        let mut open = std::fs::OpenOptions::new();
        open.read(options.read).write(options.write).create(options.create).create_new(options.create_new);
        open.mode(0o640);
        open.open(&owned)
    });
    match opened.await {
        Ok(opened) => opened.map_err(|error| DiskError::from_io("open", path, &error)),
        Err(panicked) => Err(DiskError::new("open", path, DiskErrorKind::Panicked(panicked.message))),
    }
}

/// Our error from glommio's, keeping the error number.
pub(super) fn failed(operation: &'static str, path: &Path, error: GlommioError<()>) -> DiskError {
    let errno = match &error {
        GlommioError::IoError(error) => error.raw_os_error(),
        GlommioError::EnhancedIoError { source, .. } => source.raw_os_error(),
        GlommioError::ReactorError(ReactorErrorKind::MemLockLimit(..)) => Some(libc::ENOMEM),
        _ => None,
    };
    if errno.is_none() {
        tracing::warn!(operation, path = %path.display(), %error, "a disk error without a number");
    }
    DiskError::new(operation, path, DiskErrorKind::Errno(errno.unwrap_or(libc::EIO)))
}

#[cfg(test)]
mod tests {
    use super::super::probe;
    use super::*;
    use crate::executor;
    use crate::run::{CorePlan, RunOptions, run};

    /// Runs `body` on a shard that has a fresh directory.
    fn check<Fut: Future<Output = ()> + 'static>(body: impl Fn(PathBuf) -> Fut + Send + Sync + 'static) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let mut options = RunOptions::new(CorePlan::shared(1).unwrap());
        options.io_memory_bytes = 2 << 20;
        let running = run::<(), _, _, _>(options, move |_| {
            let running = body(path.clone());
            async move {
                running.await;
                Ok::<(), String>(())
            }
        });
        running.unwrap().join().unwrap();
    }

    fn polled(directory: &Path) -> bool {
        probe::polled_request_bytes_max(rustix::fs::stat(directory).unwrap().st_dev).is_some()
    }

    /// The decision about polling is made by the probe file, not by the empty file that the caller opens first.
    #[test]
    fn reads_of_a_device_without_polling_go_to_the_main_ring() {
        check(|directory| async move {
            let file = crate::disk::File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap();
            file.write_at(0, buffer::allocate(4096).freeze()).await.unwrap();
            let before = glommio::executor().io_stats();
            for _ in 0..5 {
                assert_eq!(file.read_at(0, 4096).await.unwrap().len(), 4096);
            }
            let after = glommio::executor().io_stats();
            if !polled(&directory) {
                assert_eq!(after.main_ring.file_reads().0 - before.main_ring.file_reads().0, 5);
                assert_eq!(after.poll_ring.file_reads().0, before.poll_ring.file_reads().0);
            }
        });
    }

    /// glommio panics when the path of a file that it opens is gone before it has asked for its file system.
    #[test]
    fn a_file_may_be_removed_while_it_is_opened() {
        check(|directory| async move {
            for round in 0..200 {
                let path = directory.join(format!("{round}"));
                crate::disk::write_file_atomically(&path, &[1; 4096]).await.unwrap();
                let target = path.clone();
                let opening = executor::spawn(async move { crate::disk::File::open(&target, OpenOptions::reading()).await });
                for _ in 0..round % 8 {
                    executor::yield_now().await;
                }
                crate::disk::remove_file(&path).await.unwrap();
                match opening.await {
                    Ok(file) => assert_eq!(file.read_at(0, 4096).await.unwrap()[..], [1; 4096]),
                    Err(error) => assert!(error.is_not_found(), "{error}"),
                }
            }
        });
    }

    /// What the executor falls back to when the registered memory is used up is memory like any other.
    #[test]
    fn io_memory_beyond_the_registered_block_is_initialised_and_can_be_written() {
        check(|directory| async move {
            let blocks: Vec<DmaBlock> = (0..40).map(|_| DmaBlock::allocate(128 << 10)).collect();
            let registered = blocks.iter().filter(|block| block.is_registered()).count();
            assert!(registered > 0);
            assert!(registered < blocks.len());
            assert!(
                blocks.iter().filter(|block| !block.is_registered()).all(|block| block.as_slice().iter().all(|byte| *byte == 0))
            );
            let file = crate::disk::File::open(&directory.join("a"), OpenOptions::creating_new()).await.unwrap();
            for (block, position) in blocks.into_iter().zip((0..).step_by(128 << 10)) {
                file.write_at(position, Shared::new(Storage::Dma(block), 128 << 10)).await.unwrap();
            }
            assert_eq!(file.len().unwrap(), 40 * (128 << 10));
        });
    }
}
