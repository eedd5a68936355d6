//! Which machine this thread is. Set once when a shard or a simulation starts on the thread.

use std::cell::RefCell;
use std::rc::Rc;

use crate::real;
use crate::simulated::World;

/// The machine of a thread.
#[derive(Clone)]
pub(crate) enum Machine {
    /// An ordinary thread: clock, randomness and plain memory work; spawning, disk and sockets do not.
    Ordinary,
    /// A shard of the real machine.
    Real(Rc<real::Shard>),
    /// A simulation runs on this thread.
    Simulated(Rc<World>),
}

thread_local! {
    static MACHINE: RefCell<Machine> = const { RefCell::new(Machine::Ordinary) };
}

/// Calls `use_machine` with the machine of this thread. The borrow ends with the call, so the closure must not poll a future.
pub(crate) fn with<R>(use_machine: impl FnOnce(&Machine) -> R) -> R {
    MACHINE.with(|machine| use_machine(&machine.borrow()))
}

/// This thread is a shard of the real machine.
pub(crate) fn is_real() -> bool {
    with(|machine| matches!(machine, Machine::Real(_)))
}

/// The machine of this thread.
pub(crate) fn current() -> Machine {
    with(Machine::clone)
}

/// Makes `machine` the machine of this thread until the guard is dropped.
pub(crate) fn enter(machine: Machine) -> Entered {
    let previous = MACHINE.with(|current| current.replace(machine));
    Entered { previous: Some(previous) }
}

/// Restores the previous machine of the thread when dropped.
pub(crate) struct Entered {
    previous: Option<Machine>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(previous) = self.previous.take() {
            // At the end of a thread the slot may be gone already; then there is nothing to restore.
            let _ = MACHINE.try_with(|current| current.replace(previous));
        }
    }
}

/// Stops with a message that names the call: a program error, not an operating one.
#[cold]
pub(crate) fn outside(call: &str) -> ! {
    panic!("{call} was called on an ordinary thread; it works only on a shard or in a simulation")
}
