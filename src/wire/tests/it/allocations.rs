//! Reading records allocates nothing, and building them nothing per record.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use wire::*;

use crate::samples;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread-local cell that needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `pointer` and `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn batch_of(records: usize) -> AlignedVec {
    let mut builder = BatchBuilder::new(BuilderOptions::default());
    for index in 0..records {
        let key = (index as u64).to_be_bytes();
        builder.push(TimestampMs(index as i64), Some(&key), Some(b"value"), &[("name", Some(b"x"))]).unwrap();
    }
    builder.build()
}

fn read_all(records: wire::batch::Records<'_>) {
    for record in records {
        std::hint::black_box((record.offset, record.timestamp_ms, record.key, record.value_as::<&str>().unwrap()));
        for header in record.headers.iter() {
            std::hint::black_box(header);
        }
    }
}

#[test]
fn checking_and_reading_a_batch_allocates_nothing() {
    let bytes = Arc::new(batch_of(1000));
    assert_eq!(
        allocations(|| {
            let view = BatchView::new(&bytes).unwrap();
            read_all(view.records());
            read_all(SharedBatch::new(&bytes, 0).unwrap().records());
        }),
        0
    );
}

#[test]
fn verifying_a_batch_allocates_nothing() {
    let bytes = samples::batch(Compression::None);
    assert_eq!(allocations(|| drop(std::hint::black_box(verify_batch(&bytes)))), 0);
}

#[test]
fn building_allocates_by_growth_only() {
    let few = allocations(|| drop(batch_of(1000)));
    let many = allocations(|| drop(batch_of(8000)));
    assert!(many <= few + 12, "{many} allocations for eight times the records of {few}");
}
