//! A batch of 256 records of 1 KiB: built by a producer, checked and stamped by the broker, read by a consumer.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wire::{AlignedVec, BatchBuilder, BatchHeader, BatchView, BuilderOptions, LeaderEpoch, Offset, TimestampMs, verify_payload};

const RECORDS: usize = 256;
const VALUE_BYTES: usize = 1024;

fn build(value: &[u8]) -> AlignedVec {
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    for index in 0..RECORDS {
        builder.push(TimestampMs(index as i64), Some(b"key"), Some(value), &[]).expect("a batch of 256 KiB has room");
    }
    builder.build()
}

fn batch(criterion: &mut Criterion) {
    let value = vec![7_u8; VALUE_BYTES];
    let bytes = build(&value);
    let mut group = criterion.benchmark_group("batch");
    group.throughput(Throughput::Elements(RECORDS as u64));
    group.bench_function("build", |bencher| bencher.iter(|| build(black_box(&value))));
    group.bench_function("check and stamp", |bencher| {
        let mut stamped = [0; 80];
        bencher.iter(|| {
            let mut header = BatchHeader::decode(black_box(&bytes)).expect("the batch is sound");
            verify_payload(&header, &bytes).expect("the batch is sound");
            header.stamp(Offset(7), LeaderEpoch(1), None);
            header.encode(&mut stamped);
            black_box(&stamped);
        });
    });
    group.bench_function("open and iterate", |bencher| {
        bencher.iter(|| {
            let view = BatchView::new(black_box(&bytes)).expect("the batch is sound");
            view.records().map(|record| record.value.map_or(0, <[u8]>::len)).sum::<usize>()
        });
    });
    group.finish();
}

criterion_group!(benches, batch);
criterion_main!(benches);
