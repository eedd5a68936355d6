//! CRC-32C of payloads of several sizes, with a copy of the same bytes as the yardstick.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn checksum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum");
    for bytes in [1 << 10, 16 << 10, 256 << 10] {
        let payload: Vec<u8> = (0..bytes).map(|index: u32| (index.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        let mut target = vec![0; payload.len()];
        group.throughput(Throughput::Bytes(payload.len() as u64));
        group.bench_with_input(BenchmarkId::new("crc32c", bytes), &payload, |bencher, payload| {
            bencher.iter(|| wire::checksum::crc32c(black_box(payload)));
        });
        group.bench_with_input(BenchmarkId::new("copy", bytes), &payload, |bencher, payload| {
            bencher.iter(|| black_box(&mut target).copy_from_slice(black_box(payload)));
        });
    }
    group.finish();
}

criterion_group!(benches, checksum);
criterion_main!(benches);
