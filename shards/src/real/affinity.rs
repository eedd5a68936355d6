use std::io;

/// Processors that the main thread of this process may use, ascending.
pub(crate) fn allowed_cpus() -> io::Result<Vec<u32>> {
    // By the number of the process: the calling thread may be pinned already.
    let set = rustix::thread::sched_getaffinity(Some(rustix::process::getpid()))?;
    let cpus: Vec<u32> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .map(|cpu| u32::try_from(cpu).expect("processor numbers are small"))
        .collect();
    assert!(!cpus.is_empty());
    Ok(cpus)
}

/// Keeps the calling thread on these processors. When the kernel refuses it stays where it was, which costs speed, no more.
pub(crate) fn pin_to(cpus: &[u32]) {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize);
    }
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(%error, "a thread could not be kept on the processors for housekeeping");
    }
}
