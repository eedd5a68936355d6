use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use glommio::{Latency, Shares, TaskQueueHandle};

use super::{clock, probe};
use crate::disk::DiskError;
use crate::executor::BlockingPanicked;
use crate::sync::{Permit, Semaphore};
use crate::{DISK_IN_FLIGHT_MAX, READ_PIECE_BYTES_MAX, ShardId};

/// Shares of the queue of ordinary tasks, and of that of background tasks: 1 % of a busy core, all of an idle one.
const FOREGROUND_SHARES: usize = 1000;
const BACKGROUND_SHARES: usize = 10;

/// What a shard keeps besides its executor.
pub(crate) struct Shard {
    id: ShardId,
    foreground: TaskQueueHandle,
    background: TaskQueueHandle,
    coarse_ns: Cell<u64>,
    disk_permits: Semaphore,
    /// Devices whose first opened file was a probe file.
    devices: RefCell<HashMap<u64, Device>>,
}

impl Shard {
    /// Inside the executor of the shard.
    pub(super) fn new(id: ShardId) -> Shard {
        let executor = glommio::executor();
        let foreground = executor.create_task_queue(Shares::Static(FOREGROUND_SHARES), Latency::NotImportant, "foreground");
        let background = executor.create_task_queue(Shares::Static(BACKGROUND_SHARES), Latency::NotImportant, "background");
        Shard {
            id,
            foreground,
            background,
            coarse_ns: Cell::new(clock::monotonic_ns()),
            disk_permits: Semaphore::new(DISK_IN_FLIGHT_MAX),
            devices: RefCell::default(),
        }
    }

    pub(crate) fn id(&self) -> ShardId {
        self.id
    }

    /// Queues the task; unlike `spawn_local` it does not poll it here, under the borrows of the caller.
    pub(crate) fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        Task::start(future, self.foreground)
    }

    pub(crate) fn spawn_background<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        Task::start(future, self.background)
    }

    pub(crate) fn need_preempt(&self) -> bool {
        glommio::executor().need_preempt()
    }

    pub(crate) fn coarse_ns(&self) -> u64 {
        self.coarse_ns.get()
    }

    pub(super) fn set_coarse_ns(&self, now_ns: u64) {
        self.coarse_ns.set(now_ns);
    }

    pub(crate) async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, BlockingPanicked> {
        blocking(work).await
    }

    /// Leave to have one disk request in flight.
    pub(super) async fn disk_permit(&self) -> Permit {
        self.disk_permits.acquire(1).await
    }

    /// Completes when no disk request is in flight: the kernel holds no memory of this shard.
    pub(super) async fn disk_idle(&self) {
        drop(self.disk_permits.acquire(DISK_IN_FLIGHT_MAX).await);
    }

    /// The device of this number, which holds `directory`. Makes sure that the first file this shard opens on it is a written one: glommio
    /// decides by a read of the first file whether the device can be polled, and a hole or an empty file would say yes for ever.
    pub(super) async fn device(&self, number: u64, directory: &Path) -> Result<Device, DiskError> {
        let known = self.devices.borrow().get(&number).copied();
        if let Some(device) = known {
            return Ok(device);
        }
        probe::open_written_file(directory).await?;
        let device = Device { polled_request_bytes_max: probe::polled_request_bytes_max(number) };
        self.devices.borrow_mut().insert(number, device);
        Ok(device)
    }
}

/// What a shard has to know of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    /// The largest request when the device is polled: a larger one would be split by the kernel, and its completion never seen.
    polled_request_bytes_max: Option<usize>,
}

impl Device {
    pub(super) fn read_bytes_max(self) -> usize {
        self.polled_request_bytes_max.unwrap_or(READ_PIECE_BYTES_MAX).min(READ_PIECE_BYTES_MAX)
    }

    /// Without polling the kernel splits a write as the device wants it.
    pub(super) fn write_bytes_max(self) -> usize {
        self.polled_request_bytes_max.unwrap_or(usize::MAX)
    }
}

/// Runs `work` on the blocking thread of the shard that is running. The panic of a closure would leave its caller waiting for
/// ever and end the thread: it becomes a value here.
pub(super) async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, BlockingPanicked> {
    glommio::executor().spawn_blocking(move || catch_unwind(AssertUnwindSafe(work))).await.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        BlockingPanicked { message: text.unwrap_or_else(|| "a value that is not a text".to_owned()) }
    })
}

/// Runs `operation` to its end even if the returned future is dropped. It is polled at once, so requests go out in the order
/// of the calls.
pub(super) async fn to_the_end<T: 'static>(operation: impl Future<Output = T> + 'static) -> T {
    let running = glommio::spawn_local(operation).detach();
    running.await.expect("a detached task is not cancelled")
}

pub(crate) struct Task<T> {
    inner: glommio::Task<T>,
}

impl<T: 'static> Task<T> {
    fn start(future: impl Future<Output = T> + 'static, queue: TaskQueueHandle) -> Task<T> {
        let task = glommio::spawn_local_into(future, queue).expect("the queues of a shard live as long as its executor");
        Task { inner: task }
    }

    pub(crate) fn detach(self) {
        drop(self.inner.detach());
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.inner).poll(context)
    }
}
