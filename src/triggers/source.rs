// SPDX-License-Identifier: Apache-2.0
//! An event source of this machine, and how it is run: its restarts, its reports and its rate limit are the same for all.

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::inbox::Sender;
use crate::agent::Trigger;
use crate::agent::source_board::{SourceBoard, SourceState};
use crate::sys::file_watch::{What, watch};
use crate::sys::root::Root;

/// The first delay before a source that failed is tried again.
const FIRST: Duration = Duration::from_secs(1);

/// The longest delay, and the time that a source must run before the delay is reset.
const LONGEST: Duration = Duration::from_secs(60);

/// The interval of checks for a path if inotify is not available.
const CHECK_AGAIN: Duration = Duration::from_secs(60);

/// The work of a source. Boxed, so that its memory is freed at its end: the task lives as long as the process.
pub(super) type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An event source.
pub(super) trait Source: Send + Sync {
    /// Returns its name in reports, and what is not detected, or later, without it.
    fn about(&self) -> (&'static str, &'static str);

    /// Reports whether others, such as the host or a time daemon, can cause its events at any rate, and each one causes an API request.
    fn is_paced(&self) -> bool {
        false
    }

    /// Listens. Reports its state once it does, and returns when it no longer can.
    fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost>;

    /// Returns its state, for a process that does not listen. `out` is its own.
    fn probe<'a>(&'a mut self, out: &'a Output) -> Work<'a, SourceState> {
        let mut work = self.follow(out);
        // Only the work itself reports.
        Box::pin(poll_fn(move |context| {
            let lost = work.as_mut().poll(context);
            match out.board.sources().remove(out.name) {
                Some(state) => Poll::Ready(state),
                None => lost.map(|lost| SourceState {
                    is_active: false,
                    detail: lost.detail(),
                }),
            }
        }))
    }
}

/// The reason why a source does not listen, and when it is tried again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It failed. It is tried again after a delay.
    Failed(String),
    /// It failed, and cannot recover while this process runs.
    Hidden(String),
    /// This machine does not have it, which is intended. It is tried again when the path exists; never, if there is none.
    Absent(String, Option<PathBuf>),
}

impl Lost {
    /// Returns the reason.
    pub(super) fn detail(self) -> String {
        match self {
            Self::Failed(detail) | Self::Hidden(detail) | Self::Absent(detail, _) => detail,
        }
    }
}

/// The reports and reasons of one source.
#[derive(Debug, Clone)]
pub(super) struct Output {
    name: &'static str,
    loss: &'static str,
    sender: Sender,
    pub(super) board: SourceBoard,
}

impl Output {
    pub(super) fn new<S: Source + ?Sized>(source: &S, sender: Sender, board: SourceBoard) -> Self {
        let (name, loss) = source.about();
        Self {
            name,
            loss,
            sender,
            board,
        }
    }

    /// Sends a reason to reconcile.
    pub(super) fn fire(&self, trigger: Trigger) {
        self.sender.send(trigger);
    }

    /// Reports that the source listens.
    pub(super) fn active(&self, detail: impl Into<String>) {
        let (is_active, detail) = (true, detail.into());
        self.state(SourceState { is_active, detail });
    }

    /// Reports a state that is no fault.
    pub(super) fn state(&self, state: SourceState) {
        self.board.set(self.name, state.is_active, state.detail);
        self.board.report(self.name, None);
    }

    /// Reports that the source failed.
    pub(super) fn lost(&self, detail: &str) {
        self.board.set(self.name, false, detail);
        self.board
            .unavailable(self.name, format!("{detail}; {}", self.loss));
    }
}

/// Runs a source until dropped; returns if it will never listen.
pub(super) async fn keep(source: &mut (impl Source + ?Sized), root: &Root, out: &Output) {
    let mut next = FIRST;
    loop {
        let began = Instant::now();
        let lost = source.follow(out).await;
        let lived = began.elapsed();
        match lost {
            Lost::Failed(detail) => {
                out.lost(&detail);
                sleep(wait(&mut next, lived)).await;
            }
            Lost::Hidden(detail) => return out.lost(&detail),
            Lost::Absent(detail, path) => {
                let is_active = false;
                out.state(SourceState { is_active, detail });
                let Some(path) = path else { return };
                appeared(root, &path, || wait(&mut next, lived)).await;
            }
        }
    }
}

/// Waits until a path appears. If it already exists, what is behind it may not be ready: waits for `wait` at most.
async fn appeared(root: &Root, path: &Path, wait: impl FnOnce() -> Duration) {
    // In a tree, a link to a pseudo-terminal leads nowhere.
    let exists = || root.link_target(path).is_some() || root.exists(path);
    let existed = exists();
    let news = Notify::new();
    let mut is_watched = false;
    let look = || {
        // The first call only means that the watch is established: the path may have appeared before.
        if is_watched || (!existed && exists()) {
            news.notify_one();
        }
        is_watched = true;
    };
    tokio::select! {
        () = news.notified() => {}
        () = async { sleep(wait()).await }, if existed => {}
        // inotify is not available.
        _ = watch(root.clone(), vec![path.to_owned()], What::Name, look, |_| {}) => sleep(CHECK_AGAIN).await,
    }
}

/// Returns the delay after a source that ran for `lived`. The next one doubles. It needs no jitter because it only waits for this
/// machine.
fn wait(next: &mut Duration, lived: Duration) -> Duration {
    let wait = if lived >= LONGEST { FIRST } else { *next };
    *next = (wait * 2).min(LONGEST);
    wait
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::time::timeout;

    use super::*;
    use crate::triggers::testing::sender;

    const DAY: Duration = Duration::from_secs(86_400);

    /// A source that listens for a time, and then ends.
    struct Played(VecDeque<(Duration, Lost)>);

    impl Source for Played {
        fn about(&self) -> (&'static str, &'static str) {
            ("played", "nothing is heard")
        }

        fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost> {
            Box::pin(async move {
                let Some((lived, lost)) = self.0.pop_front() else {
                    return std::future::pending().await;
                };
                if !lived.is_zero() {
                    out.active("listens");
                    out.fire(Trigger::Units);
                    sleep(lived).await;
                }
                lost
            })
        }
    }

    fn failed(lived: u64) -> (Duration, Lost) {
        (
            Duration::from_secs(lived),
            Lost::Failed("broken".to_owned()),
        )
    }

    /// Runs a source, and returns what its output goes to.
    fn run(
        root: &Root,
        played: impl IntoIterator<Item = (Duration, Lost)>,
    ) -> (
        super::super::Inbox,
        SourceBoard,
        tokio::task::JoinHandle<()>,
    ) {
        let (sender, reasons) = sender();
        let board = SourceBoard::default();
        let mut source = Played(played.into_iter().collect());
        let out = Output::new(&source, sender, board.clone());
        let root = root.clone();
        let task = tokio::spawn(async move { keep(&mut source, &root, &out).await });
        (reasons, board, task)
    }

    #[test]
    fn waits_double_up_to_a_minute_and_begin_anew_after_a_life_of_one() {
        let mut next = FIRST;
        let mut after = |lived| wait(&mut next, Duration::from_secs(lived)).as_secs();
        let short: Vec<u64> = (0..8).map(|_| after(59)).collect();
        assert_eq!(short, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(after(60), 1);
        assert_eq!(after(0), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_fails_is_reported_once_and_tried_again_until_it_listens() {
        let root = Root::new("/nonexistent");
        let (mut reasons, board, _task) = run(&root, [failed(0), failed(0), failed(5), failed(0)]);
        board.changed().await;
        let state = board.sources()["played"].clone();
        assert_eq!((state.is_active, state.detail.as_str()), (false, "broken"));
        let [finding] = &board.findings()[..] else {
            panic!("{:?}", board.findings());
        };
        assert_eq!(finding.seen, "broken; nothing is heard");
        // The next attempts are after one and two seconds; the second of them listens.
        let began = Instant::now();
        board.changed().await;
        assert_eq!((Instant::now() - began).as_secs(), 3);
        assert_eq!(board.findings(), []);
        assert!(board.sources()["played"].is_active);
        assert_eq!(reasons.try_recv().unwrap().0, Trigger::Units);
        board.changed().await;
        assert_eq!(board.findings().len(), 1, "it fails again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_this_machine_does_not_have_is_no_finding_and_ends() {
        let root = Root::new("/nonexistent");
        for (lost, findings) in [
            (Lost::Absent("not here".to_owned(), None), 0),
            (Lost::Hidden("not here".to_owned()), 1),
        ] {
            let (_reasons, board, task) = run(&root, [(Duration::ZERO, lost)]);
            timeout(DAY, task).await.expect("it ends").unwrap();
            assert!(!board.sources()["played"].is_active);
            assert_eq!(board.findings().len(), findings);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_that_does_not_exist_is_not_looked_at_by_the_clock_and_one_that_does_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let path = Path::new("/run/socket");
        let asleep = timeout(365 * DAY, appeared(&root, path, || FIRST)).await;
        assert!(asleep.is_err(), "woken");
        std::fs::create_dir(root.join("/run")).unwrap();
        std::fs::write(root.join(path), "").unwrap();
        let began = Instant::now();
        appeared(&root, path, || Duration::from_secs(32)).await;
        assert_eq!((Instant::now() - began).as_secs(), 32);
    }

    #[tokio::test]
    async fn a_path_that_appears_is_used_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let path = Path::new("/run/dbus/socket");
        let appears = async {
            tokio::task::yield_now().await;
            std::fs::create_dir_all(root.join("/run/dbus")).unwrap();
            std::fs::write(root.join(path), "").unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            waited = timeout(DAY, appeared(&root, path, || DAY)) => waited.expect("it is noticed"),
            () = appears => {}
        }
    }
}
