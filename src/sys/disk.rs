// SPDX-License-Identifier: Apache-2.0
//! Keeps the caller from waiting for a disk, which may be slow, full, or frozen by a backup (`fsfreeze(8)`). A system call on a frozen
//! file system does not return before it is thawed, not even if the process is killed.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::atomic_file::{self, WriteError};
use super::root::Root;

/// How long a write may take until it is reported. A sync takes seconds on a busy disk.
const STALL: Duration = Duration::from_secs(10);

/// Runs `work` in a thread and returns its result; `None` if it has none within `limit`. The thread then goes on, and keeps its result
/// until the process ends: a lock stays locked.
pub fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (result, results) = mpsc::channel();
    in_thread(move || {
        let _ = result.send(work());
    });
    let done = results.recv_timeout(limit).ok();
    if done.is_none() {
        // What comes from now on stays in the channel, whose receiver is never dropped.
        Box::leak(Box::new(results));
    }
    done
}

/// Runs `work` in a thread, or, if the system allows no more threads, before it returns.
fn in_thread(work: impl FnOnce() + Send + 'static) {
    let work = Arc::new(Mutex::new(Some(work)));
    let run = move || {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.into_iter().for_each(|work| work());
    };
    let here = run.clone();
    let thread = thread::Builder::new().name("disk".to_owned());
    if thread.spawn(run).is_err() {
        here();
    }
}

/// Runs work in another thread, one piece at a time: a disk that does not respond holds one thread, and not the caller.
#[derive(Debug)]
pub struct DiskWork<T> {
    /// What has not returned, and whether it has exceeded its limit.
    pending: Option<(oneshot::Receiver<T>, bool)>,
}

impl<T> Default for DiskWork<T> {
    fn default() -> Self {
        Self { pending: None }
    }
}

impl<T: Send + 'static> DiskWork<T> {
    /// Reports whether the last piece has exceeded its limit.
    pub fn is_late(&self) -> bool {
        matches!(self.pending, Some((_, true)))
    }

    /// Returns the result of `work`; `None` if it has none within `limit`, or if an earlier piece that was late still has none. A call
    /// that is canceled delays the next one until its work ends.
    pub async fn run(
        &mut self,
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // A simulated system has its files in this thread.
        #[cfg(test)]
        if super::root::testing::is_declared() {
            return Some(work());
        }
        // An earlier result may be out of date.
        if let Some((pending, is_late)) = &mut self.pending {
            let left = if *is_late { Duration::ZERO } else { limit };
            *is_late = timeout(left, pending).await.is_err();
            if *is_late {
                return None;
            }
        }
        let (result, results) = oneshot::channel();
        let (pending, is_late) = self.pending.insert((results, false));
        in_thread(move || {
            let _ = result.send(work());
        });
        let done = timeout(limit, pending).await;
        *is_late = done.is_err();
        if done.is_ok() {
            self.pending = None;
        }
        done.ok()?.ok()
    }

    /// Creates one with work that is late, and what ends that.
    #[cfg(test)]
    pub(crate) fn stalled() -> (Self, oneshot::Sender<T>) {
        let (end, pending) = oneshot::channel();
        let pending = Some((pending, true));
        (Self { pending }, end)
    }
}

/// A file as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The path.
    pub path: PathBuf,
    /// The content; `None` if there is to be no file.
    pub text: Option<String>,
    /// The permissions.
    pub mode: u32,
}

impl Content {
    fn write(&self, root: &Root) -> Result<(), WriteError> {
        match &self.text {
            Some(text) => {
                atomic_file::write_atomic(root, &self.path, text.as_bytes(), self.mode).map(drop)
            }
            None => atomic_file::remove(root, &self.path),
        }
    }
}

/// What became of a write.
#[derive(Debug)]
pub enum Outcome {
    /// The file is as it is to be.
    Written,
    /// It is not.
    Failed(WriteError),
    /// It is not yet: the disk has not responded for 10 s. Another outcome follows.
    Stalled,
}

type Write = dyn Fn(&Content) -> Result<(), WriteError> + Send + Sync;
type Tell = dyn Fn(&Content, Outcome) + Send + Sync;

/// Writes a file in another thread. Of contents that come while the disk is busy only the last one is written.
pub struct FileWriter {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Signaled when a write has ended or stalled.
    changed: Condvar,
    write: Box<Write>,
    tell: Box<Tell>,
    stall: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    /// What was written last.
    written: Option<Content>,
    /// What is being written.
    current: Option<Content>,
    /// What is to be written next.
    next: Option<Content>,
    is_stalled: bool,
}

impl fmt::Debug for FileWriter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.lock().fmt(formatter)
    }
}

impl FileWriter {
    /// Creates a writer. It calls `tell` with each outcome, from another thread.
    pub fn new(root: &Root, tell: impl Fn(&Content, Outcome) + Send + Sync + 'static) -> Self {
        let root = root.clone();
        Self::with(STALL, move |content| content.write(&root), tell)
    }

    /// Creates a writer with another write function.
    pub(crate) fn with(
        stall: Duration,
        write: impl Fn(&Content) -> Result<(), WriteError> + Send + Sync + 'static,
        tell: impl Fn(&Content, Outcome) + Send + Sync + 'static,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                changed: Condvar::new(),
                write: Box::new(write),
                tell: Box::new(tell),
                stall,
            }),
        }
    }

    /// Writes the content, unless it was written last or is about to be. Does not block.
    pub fn write(&self, content: Content) {
        let mut queue = self.shared.lock();
        let latest = queue.next.as_ref().or(queue.current.as_ref());
        if latest.or(queue.written.as_ref()) == Some(&content) {
            return;
        }
        if queue.current.is_some() {
            queue.next = Some(content);
            return;
        }
        queue.current = Some(content.clone());
        drop(queue);
        let shared = Arc::clone(&self.shared);
        in_thread(move || shared.work(content));
    }

    /// Waits until all is written, at most for `limit`, and not for a disk that has stalled. Reports whether it is.
    pub fn settle(&self, limit: Duration) -> bool {
        let is_busy = |queue: &mut Queue| queue.current.is_some() && !queue.is_stalled;
        let changed = &self.shared.changed;
        let waited = changed.wait_timeout_while(self.shared.lock(), limit, is_busy);
        let (queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.current.is_none()
    }

    /// Reports whether this is what was written last.
    pub fn has_written(&self, content: &Content) -> bool {
        self.shared.lock().written.as_ref() == Some(content)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(self: Arc<Self>, first: Content) {
        let mut next = Some(first);
        while let Some(content) = next {
            let result = self.write(&content);
            let is_written = result.is_ok();
            let outcome = result.map_or_else(Outcome::Failed, |()| Outcome::Written);
            (self.tell)(&content, outcome);
            let mut queue = self.lock();
            queue.written = is_written.then_some(content);
            queue.is_stalled = false;
            next = queue.next.take();
            // In the same lock: there is never more than one thread.
            queue.current.clone_from(&next);
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// Writes in one more thread, to tell if that stalls.
    fn write(self: &Arc<Self>, content: &Content) -> Result<(), WriteError> {
        let (done, ended) = mpsc::channel();
        let (shared, job) = (Arc::clone(self), content.clone());
        in_thread(move || {
            let _ = done.send((shared.write)(&job));
        });
        let ended = match ended.recv_timeout(self.stall) {
            Err(RecvTimeoutError::Timeout) => {
                self.lock().is_stalled = true;
                self.changed.notify_all();
                (self.tell)(content, Outcome::Stalled);
                ended.recv().ok()
            }
            result => result.ok(),
        };
        ended.unwrap_or_else(|| {
            Err(WriteError::Io {
                action: "write",
                path: content.path.clone(),
                source: io::Error::other("the thread ended"),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::{AtomicBool, Ordering};

    use harvester_lab::world::SOON;

    const PATH: &str = "/run/harvester-node-agent/file";

    fn content(text: &str) -> Content {
        Content {
            path: PATH.into(),
            text: Some(text.to_owned()),
            mode: 0o600,
        }
    }

    fn ignore(_: &Content, _: Outcome) {}

    #[test]
    fn writes_keep_their_order_do_not_hold_up_the_caller_and_are_awaited_at_the_end() {
        let (allow, allowed) = mpsc::channel();
        let allowed = Mutex::new(allowed);
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&written);
        let write = move |content: &Content| {
            // A caller that waited for this disk would never go on.
            allowed.lock().unwrap().recv().unwrap();
            log.lock().unwrap().push(content.text.clone().unwrap());
            Ok(())
        };
        let writer = FileWriter::with(SOON, write, ignore);
        for text in ["first", "second", "second", "third", "third"] {
            writer.write(content(text));
        }
        assert!(!writer.settle(Duration::from_millis(20)));
        allow.send(()).unwrap();
        allow.send(()).unwrap();
        assert!(writer.settle(SOON));
        assert_eq!(*written.lock().unwrap(), ["first", "third"]);
        // What was written last is not written again.
        writer.write(content("third"));
        assert!(writer.settle(Duration::ZERO) && writer.has_written(&content("third")));
    }

    #[test]
    fn a_write_that_failed_is_repeated_when_its_content_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir(root.join("/run")).unwrap();
        std::fs::write(root.join("/run/harvester-node-agent"), "").unwrap();
        let (told, outcomes) = mpsc::channel();
        let writer = FileWriter::new(&root, move |_, outcome| told.send(outcome).unwrap());
        writer.write(content("new"));
        assert!(writer.settle(SOON));
        assert!(matches!(outcomes.recv().unwrap(), Outcome::Failed(_)));
        std::fs::remove_file(root.join("/run/harvester-node-agent")).unwrap();
        writer.write(content("new"));
        assert!(writer.settle(SOON));
        assert!(matches!(outcomes.recv().unwrap(), Outcome::Written));
        assert_eq!(root.read_text(PATH, 100).unwrap(), "new");
        writer.write(Content {
            text: None,
            ..content("")
        });
        assert!(writer.settle(SOON) && !root.exists(PATH));
    }

    #[test]
    fn a_stall_is_told_while_it_lasts_and_no_caller_waits_for_it() {
        let (thaw, thawed) = mpsc::channel();
        let thawed = Mutex::new(thawed);
        let (told, outcomes) = mpsc::channel();
        let writer = FileWriter::with(
            Duration::from_millis(1),
            move |_| {
                thawed.lock().unwrap().recv().unwrap();
                Ok(())
            },
            move |content, outcome| told.send((content.text.clone(), outcome)).unwrap(),
        );
        let is_told = |text: &str, expected: fn(&Outcome) -> bool| {
            let (of, outcome) = outcomes.recv().unwrap();
            assert!(
                of.as_deref() == Some(text) && expected(&outcome),
                "{outcome:?}"
            );
        };
        writer.write(content("first"));
        is_told("first", |outcome| matches!(outcome, Outcome::Stalled));
        // This would be a wait without end.
        assert!(!writer.settle(Duration::MAX));
        writer.write(content("second"));
        thaw.send(()).unwrap();
        thaw.send(()).unwrap();
        is_told("first", |outcome| matches!(outcome, Outcome::Written));
        loop {
            let (text, outcome) = outcomes.recv().unwrap();
            assert_eq!(text.as_deref(), Some("second"));
            if matches!(outcome, Outcome::Written) {
                break;
            }
        }
        // It is told before it is noted, and `settle` does not wait for a disk that has stalled.
        while !writer.has_written(&content("second")) {
            std::thread::yield_now();
        }
        assert!(writer.settle(SOON));
    }

    #[tokio::test]
    async fn work_that_does_not_return_holds_one_thread_and_not_the_caller() {
        let (end, ended) = mpsc::channel::<()>();
        let ended = Mutex::new(ended);
        let mut disk = DiskWork::default();
        let stuck = move || {
            let _ = ended.lock().unwrap().recv();
            1
        };
        assert_eq!(disk.run(Duration::from_millis(1), stuck).await, None);
        assert!(disk.is_late());
        let second = || panic!("a second thread");
        assert_eq!(disk.run(SOON, second).await, None);
        drop(end);
        // What the first one returns is out of date.
        while disk.run(SOON, || 2).await != Some(2) {
            tokio::task::yield_now().await;
        }
        assert_eq!(disk.run(SOON, || 3).await, Some(3));
        // What was canceled is awaited.
        let (end, ended) = mpsc::channel::<()>();
        let ended = Mutex::new(ended);
        let slow = move || {
            let _ = ended.lock().unwrap().recv();
            4
        };
        let canceled = timeout(Duration::ZERO, disk.run(SOON, slow)).await;
        assert!(canceled.is_err() && !disk.is_late());
        drop(end);
        assert_eq!(disk.run(SOON, || 5).await, Some(5));
    }

    #[test]
    fn what_takes_too_long_does_not_block_and_its_result_is_kept() {
        struct Held(Arc<AtomicBool>);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        assert_eq!(within(SOON, || 5), Some(5));
        let (end, ended) = mpsc::channel::<()>();
        let (ended, running) = (Mutex::new(ended), Arc::new(()));
        let is_released = Arc::<AtomicBool>::default();
        let (flag, runs) = (Arc::clone(&is_released), Arc::clone(&running));
        let late = within(Duration::from_millis(1), move || {
            let _runs = &runs;
            let _ = ended.lock().unwrap().recv();
            Held(Arc::clone(&flag))
        });
        assert!(late.is_none());
        drop(end);
        while Arc::strong_count(&running) > 1 {
            thread::yield_now();
        }
        assert!(!is_released.load(Ordering::SeqCst));
    }
}
