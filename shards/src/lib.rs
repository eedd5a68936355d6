//! The machine: pinned executors, disk, sockets, mesh, clock.
