//! From a socket to stable storage on one core: the way of the data path, with nothing of a broker in between. A small run checks
//! the bytes; a large one measures: `SHARDS_TEST_THROUGHPUT_MIB=4096 cargo test --release -p shards throughput -- --nocapture`.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};
use shards::disk::{File, OpenOptions};
use shards::net::{ListenOptions, Listener};
use shards::sync::Semaphore;
use shards::{buffer, clock, executor};

const MIB: u64 = 1 << 20;

/// The file is written round and round, as recycled log files are.
const FILE_BYTES: u64 = 128 * MIB;
const PIECE_BYTES: usize = 1 << 20;
const WRITES_IN_FLIGHT: usize = 3;

/// What the client sends: every byte tells its place.
fn pattern(piece: u64) -> Vec<u8> {
    (0..PIECE_BYTES as u64).map(|index| ((piece * 131) ^ (index / 512)) as u8).collect()
}

fn thread_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn throughput_from_socket_to_stable_storage() {
    let measured = std::env::var("SHARDS_TEST_THROUGHPUT_MIB").ok();
    let total_mib: u64 = measured.as_ref().map_or(32, |mib| mib.parse().unwrap());
    let directory = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let path = directory.path().join("log");
    let mut options = super::options(1);
    options.io_memory_bytes = 32 << 20;
    let report = super::on_shards_with::<(), _, _, _>(options, move |_| run(path.clone(), total_mib, measured.is_none()));
    eprintln!("{report}");
}

async fn run(path: PathBuf, total_mib: u64, check: bool) -> String {
    let file = File::open(&path, OpenOptions::creating_new().with_dsync()).await.unwrap();
    let file_bytes = FILE_BYTES.min(total_mib * MIB);
    file.fallocate(0, file_bytes).await.unwrap();
    file.write_zeroes(0, file_bytes).await.unwrap();
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ListenOptions::default()).unwrap();
    let address = listener.local_address();
    let client = std::thread::spawn(move || {
        let pieces: Vec<Vec<u8>> = (0..32).map(pattern).collect();
        let mut stream = TcpStream::connect(address).unwrap();
        for piece in 0..total_mib {
            stream.write_all(&pieces[piece as usize % pieces.len()]).unwrap();
        }
    });
    let (stream, _) = listener.accept().await.unwrap();
    let (start, cpu) = (clock::monotonic(), thread_cpu_seconds());
    let permits = Semaphore::new(WRITES_IN_FLIGHT);
    let mut received = buffer::allocate_plain(256 << 10);
    for piece in 0..total_mib {
        let permit = permits.acquire(1).await;
        let mut block = buffer::allocate(PIECE_BYTES);
        let mut filled = 0;
        while filled < PIECE_BYTES {
            let room = (PIECE_BYTES - filled).min(received.len());
            let count = stream.read(&mut received[..room]).await.unwrap();
            assert!(count > 0);
            block[filled..filled + count].copy_from_slice(&received[..count]);
            filled += count;
        }
        let file = file.clone();
        executor::spawn(async move {
            file.write_at(piece * MIB % FILE_BYTES, block.freeze()).await.unwrap();
            drop(permit);
        })
        .detach();
    }
    drop(permits.acquire(WRITES_IN_FLIGHT).await);
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), thread_cpu_seconds() - cpu);
    executor::blocking(move || client.join().unwrap()).await.unwrap();
    if check {
        for piece in 0..total_mib {
            assert!(file.read_at(piece * MIB, PIECE_BYTES).await.unwrap()[..] == pattern(piece % 32)[..]);
        }
    }
    let gigabytes = (total_mib * MIB) as f64 / 1e9;
    format!("{:.2} GB/s, {:.2} GB per second of the shard's core", gigabytes / seconds, gigabytes / cpu)
}
