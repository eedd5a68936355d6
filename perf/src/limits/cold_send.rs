//! Reading a file and sending it over loopback: what a consumer of old segments could get at most.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode};

use super::disk::{check, push, wait};
use super::memory::AlignedBuffer;
use super::receive::Received;
use super::ring_file::RingFile;
use super::{LimitError, Sides, io};
use crate::process::{give_up_precedence, pin, thread_cpu};

/// Bytes of one read: the largest that the broker reads from a segment at once.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Reads in flight: the disk goes on while a block is sent.
const DEPTH: usize = 4;

/// Sends `file` again and again for `time`, from the server's CPU to the client's, with no precedence over others there; returns what was received.
/// `file` is a multiple of [`BLOCK_BYTES`].
///
/// # Errors
/// When the disk, sockets or CPUs refuse.
pub fn run(file: &RingFile, time: Duration, sides: Sides) -> Result<Received, LimitError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(io("listen"))?;
    let address = listener.local_addr().map_err(io("listen"))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<Duration, LimitError> {
            settle_on(sides.server_cpu)?;
            let stream = listener.accept().map_err(io("accept"))?.0;
            let cpu = thread_cpu();
            send(file, stream, &stop)?;
            Ok(thread_cpu() - cpu)
        });
        let receiver = scope.spawn(|| -> Result<(u64, f64), LimitError> {
            settle_on(sides.client_cpu)?;
            receive(TcpStream::connect(address).map_err(io("connect"))?, time)
        });
        let received = receiver.join().expect("the receiver does not panic");
        stop.store(true, Ordering::Relaxed);
        let cpu = sender.join().expect("the sender does not panic")?;
        let (bytes, seconds) = received?;
        Ok(Received { bytes, seconds, cpu_seconds: cpu.as_secs_f64() })
    })
}

fn settle_on(cpu: u32) -> Result<(), LimitError> {
    pin(cpu).and_then(|()| give_up_precedence()).map_err(io("bind to a CPU"))
}

fn receive(mut stream: TcpStream, time: Duration) -> Result<(u64, f64), LimitError> {
    let mut buffer = vec![0_u8; BLOCK_BYTES];
    let (mut bytes, started) = (0, Instant::now());
    while started.elapsed() < time {
        let read = stream.read(&mut buffer).map_err(io("receive"))?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
    }
    Ok((bytes, started.elapsed().as_secs_f64()))
}

/// Blocks are sent in the order of the file, whichever is read first.
fn send(file: &RingFile, mut stream: TcpStream, stop: &AtomicBool) -> Result<(), LimitError> {
    let buffers: Vec<AlignedBuffer> = (0..DEPTH).map(|_| AlignedBuffer::zeroed(BLOCK_BYTES)).collect();
    let mut ring = IoUring::new(DEPTH as u32).map_err(io("make an io_uring"))?;
    let (mut free, mut order, mut position): (Vec<usize>, VecDeque<usize>, u64) = ((0..DEPTH).collect(), VecDeque::new(), 0);
    let mut read = [false; DEPTH];
    let mut outcome = Ok(());
    loop {
        while outcome.is_ok() && !stop.load(Ordering::Relaxed) {
            let Some(slot) = free.pop() else { break };
            let entry = opcode::Read::new(file.fd(), buffers[slot].pointer(), BLOCK_BYTES as u32).offset(position).build();
            push(&mut ring, &entry.user_data(slot as u64));
            order.push_back(slot);
            position = (position + BLOCK_BYTES as u64) % file.bytes();
        }
        let Some(&first) = order.front() else { return outcome };
        if !read[first] {
            wait(&mut ring)?;
            for entry in ring.completion() {
                read[entry.user_data() as usize] = true;
                outcome = outcome.and_then(|()| check(entry.result(), BLOCK_BYTES, "read a block"));
            }
            continue;
        }
        read[first] = false;
        order.pop_front();
        // The receiver closes when its time is over: that is the end, not an error; what is in flight is waited for.
        if stream.write_all(&buffers[first]).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        free.push(first);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring_file::Extents;
    use super::*;

    #[test]
    fn a_file_arrives_again_and_again() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = RingFile::create(folder.path(), 8 << 20, Extents::Written, false).unwrap();
        let received = run(&file, Duration::from_millis(300), Sides::of_machine()).unwrap();
        assert!(received.bytes > 0, "{received:?}");
        assert!(received.seconds >= 0.3, "{received:?}");
    }
}
