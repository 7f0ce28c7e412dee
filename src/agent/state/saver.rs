// SPDX-License-Identifier: Apache-2.0
//! Saves the state in a separate thread, because an fsync may take seconds on a busy disk.
//!
//! States are saved in order; a state that is replaced before its turn is skipped. The thread exits when there is nothing left to
//! save.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::{State, save};
use crate::sys::atomic_file::WriteError;
use crate::sys::root::Root;

type SaveRequest = dyn Fn(&State) -> Result<(), WriteError> + Send + Sync;

/// The handle to save states.
#[derive(Debug)]
pub struct Saver {
    shared: Arc<SharedState>,
}

struct SharedState {
    queue: Mutex<Queue>,
    /// Signaled when the thread ends.
    done: Condvar,
    write: Box<SaveRequest>,
}

#[derive(Debug)]
struct Queue {
    /// The state in the file.
    saved: State,
    /// The state that is being saved.
    current: Option<State>,
    /// The state to save next.
    next: Option<State>,
    /// The result of the last save, until it is read.
    outcome: Option<Result<(), WriteError>>,
}

impl fmt::Debug for SharedState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.fmt(formatter)
    }
}

impl Saver {
    /// Creates a saver for a file that contains `saved`.
    pub fn new(root: Root, saved: State) -> Self {
        Self::with(saved, move |state| save(&root, state))
    }

    /// Creates a saver with another write function.
    pub(crate) fn with(
        saved: State,
        write: impl Fn(&State) -> Result<(), WriteError> + Send + Sync + 'static,
    ) -> Self {
        let queue = Queue {
            saved,
            current: None,
            next: None,
            outcome: None,
        };
        Self {
            shared: Arc::new(SharedState {
                queue: Mutex::new(queue),
                done: Condvar::new(),
                write: Box::new(write),
            }),
        }
    }

    /// Returns the state in the file.
    pub fn saved(&self) -> State {
        self.shared.lock().saved.clone()
    }

    /// Saves the state, unless the file contains it or is about to. Does not block.
    pub fn save(&self, state: &State) {
        let mut queue = self.shared.lock();
        let latest = queue.next.as_ref().or(queue.current.as_ref());
        if latest.unwrap_or(&queue.saved) == state {
            return;
        }
        if queue.current.is_some() {
            queue.next = Some(state.clone());
            return;
        }
        queue.current = Some(state.clone());
        drop(queue);
        let (shared, first) = (Arc::clone(&self.shared), state.clone());
        let thread = thread::Builder::new().name("state".to_owned());
        if thread.spawn(move || shared.work(first)).is_err() {
            self.shared.work(state.clone());
        }
    }

    /// Returns the result of the last save, unless it was already read.
    pub fn outcome(&self) -> Option<Result<(), WriteError>> {
        self.shared.lock().outcome.take()
    }

    /// Waits until all states are saved, at most for `limit`. Reports whether they were saved.
    pub fn close(&self, limit: Duration) -> bool {
        let queue = self.shared.lock();
        let waited = self
            .shared
            .done
            .wait_timeout_while(queue, limit, |queue| queue.current.is_some());
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.current.is_none()
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves `state` and those after it. The decision that none is left also ends the work: a later state starts another thread.
    fn work(&self, mut state: State) {
        loop {
            let outcome = (self.write)(&state);
            let mut queue = self.lock();
            if outcome.is_ok() {
                queue.saved = state;
            }
            queue.outcome = Some(outcome);
            queue.current = queue.next.take();
            let Some(next) = queue.current.clone() else {
                break;
            };
            state = next;
        }
        self.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::state::MachineId;
    use crate::agent::state::tests::machine;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;

    use harvester_lab::world::SOON;

    fn state(vm: &str) -> State {
        State {
            vm: Some(vm.to_owned()),
            ..State::new(MachineId::clone(&machine("a")))
        }
    }

    #[test]
    fn saves_keep_their_order_do_not_hold_up_the_caller_and_are_awaited_at_the_end() {
        let (allow, allowed) = mpsc::channel();
        let allowed = Mutex::new(allowed);
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&written);
        let saver = Saver::with(state("old"), move |state| {
            // A caller that waited for this disk would never go on.
            allowed.lock().unwrap().recv().unwrap();
            log.lock().unwrap().push(state.vm.clone().unwrap());
            Ok(())
        });
        for vm in ["old", "first", "second", "second", "third", "third"] {
            saver.save(&state(vm));
        }
        assert!(!saver.close(Duration::from_millis(20)));
        allow.send(()).unwrap();
        allow.send(()).unwrap();
        assert!(saver.close(SOON));
        assert_eq!(*written.lock().unwrap(), ["first", "third"]);
        assert!(matches!(saver.outcome(), Some(Ok(()))));
        assert!(saver.outcome().is_none());
        // A state that the file contains is not written again.
        saver.save(&state("third"));
        assert!(saver.close(Duration::ZERO) && saver.outcome().is_none());
    }

    #[test]
    fn two_states_are_never_written_at_the_same_time() {
        let is_writing = AtomicBool::new(false);
        let overlaps = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&overlaps);
        let saver = Saver::with(state("old"), move |_| {
            if is_writing.swap(true, Ordering::SeqCst) {
                count.fetch_add(1, Ordering::SeqCst);
            }
            thread::yield_now();
            is_writing.store(false, Ordering::SeqCst);
            Ok(())
        });
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                // They make the thread that saves wait for the lock.
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        drop(saver.saved());
                    }
                });
            }
            for number in 0..2_000 {
                let next = state(&number.to_string());
                saver.save(&next);
                while saver.saved() != next && overlaps.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
            }
            is_over.store(true, Ordering::SeqCst);
        });
        assert!(saver.close(SOON));
        assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_state_that_could_not_be_saved_is_tried_again_when_it_is_given_again() {
        let (_dir, root) = crate::agent::state::tests::tree();
        std::fs::create_dir_all(root.join("/var/lib")).unwrap();
        std::fs::write(root.join("/var/lib/harvester-node-agent"), "").unwrap();
        let saver = Saver::new(root.clone(), state("old"));
        saver.save(&state("new"));
        assert!(saver.close(SOON));
        assert!(matches!(saver.outcome(), Some(Err(_))));
        std::fs::remove_file(root.join("/var/lib/harvester-node-agent")).unwrap();
        saver.save(&state("new"));
        assert!(saver.close(SOON));
        assert!(matches!(saver.outcome(), Some(Ok(()))));
        let (found, _) = crate::agent::state::load(&root, &machine("a"));
        assert_eq!(found, state("new"));
    }
}
