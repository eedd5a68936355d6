//! The simulated machine keeps its own promises: runs repeat, and a crash takes what it may and nothing else.

mod crashes;
mod faults;
mod schedule;
mod sockets;

use std::future::Future;
use std::path::Path;

use super::{Disk, DiskOptions, Outcome, Report, SimOptions, Simulation};
use crate::buffer::{self, Shared};
use crate::disk::{File, OpenOptions};

fn new_disk() -> Disk {
    Disk::new(DiskOptions::default())
}

fn run_on<T: 'static>(disk: &Disk, seed: u64, program: impl Future<Output = T> + 'static) -> Report<T> {
    Simulation::new(seed, SimOptions::default()).mount("/", disk).run(program)
}

/// Runs a program that must end.
fn finish_on<T: 'static>(disk: &Disk, seed: u64, program: impl Future<Output = T> + 'static) -> T {
    match run_on(disk, seed, program).outcome {
        Outcome::Finished(output) => output,
        Outcome::Crashed => panic!("crashed without being told to"),
        Outcome::Stuck => panic!("stuck"),
    }
}

fn pages(byte: u8, count: usize) -> Shared {
    let mut bytes = buffer::allocate(count * 4096);
    bytes.fill(byte);
    bytes.freeze()
}

/// A file with a durable name.
async fn create(path: &str, options: OpenOptions) -> File {
    let path = Path::new(path);
    let file = File::open(path, options).await.unwrap();
    crate::disk::sync_dir(path.parent().unwrap()).await.unwrap();
    file
}
