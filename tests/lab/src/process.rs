// SPDX-License-Identifier: Apache-2.0
//! The real agent binary as a child process: its output, its words to systemd, its cost.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::sync::watch;

mod usage;

pub use usage::Usage;

/// Largest notification that systemd reads.
const NOTIFY_LIMIT: usize = 4096;

/// Which stream a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A line that the agent wrote.
#[derive(Debug, Clone)]
pub struct Line {
    /// When it arrived.
    pub at: Instant,
    /// Where.
    pub stream: Stream,
    /// Without the line feed.
    pub text: String,
}

/// A datagram on the notification socket.
#[derive(Debug, Clone)]
pub struct Notification {
    /// When it arrived.
    pub at: Instant,
    /// `READY` to `1`, `STATUS` to its text, and so on.
    pub fields: BTreeMap<String, String>,
}

impl Notification {
    /// Whether the field stands in this datagram.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.fields.contains_key(key)
    }
}

/// What a command that ends by itself left behind.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
}

/// A running agent. Dropping it kills it.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    pid: u32,
    started: Instant,
    lines: watch::Receiver<Vec<Line>>,
    notifications: watch::Receiver<Vec<Notification>>,
    _socket_dir: tempfile::TempDir,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Until it is gone, it may write into the tree that is removed next.
        if self.child.start_kill().is_ok() && self.child.id().is_some() {
            let pid = Id::Pid(Pid::from_raw(self.pid.cast_signed()));
            let _ = waitid(pid, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        }
    }
}

impl Agent {
    /// Starts `binary ARGS --root ROOT` with an environment of `PATH`, `NOTIFY_SOCKET` and `env` alone.
    pub fn spawn(
        binary: impl AsRef<OsStr>,
        root: &Path,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let socket_dir = tempfile::tempdir().expect("a directory for the notification socket");
        let socket_path = socket_dir.path().join("notify");
        let socket = UnixDatagram::bind(&socket_path).expect("the socket's path is new");
        let mut child = command(binary, root, args)
            .env("NOTIFY_SOCKET", &socket_path)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the agent's binary can be started");
        let started = Instant::now();
        let (line_sender, lines) = watch::channel(Vec::new());
        let line_sender = Arc::new(line_sender);
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        tokio::spawn(collect_lines(stdout, Stream::Stdout, line_sender.clone()));
        tokio::spawn(collect_lines(stderr, Stream::Stderr, line_sender));
        let (notify_sender, notifications) = watch::channel(Vec::new());
        tokio::spawn(collect_notifications(socket, notify_sender));
        Self {
            pid: child.id().expect("the agent was just started"),
            child,
            started,
            lines,
            notifications,
            _socket_dir: socket_dir,
        }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it was started.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// What it costs now; `None` when it is gone.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        Usage::of(self.pid)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).expect("process ids are small");
        kill(Pid::from_raw(pid), signal).expect("the agent still runs");
    }

    /// How many notifications so far have this field.
    #[must_use]
    pub fn notified(&self, key: &str) -> usize {
        let notifications = self.notifications();
        notifications.iter().filter(|one| one.has(key)).count()
    }

    /// Makes it read its configuration again, and waits until it has: what it reports on from then on is a later round.
    pub async fn reload(&self, timeout: Duration) {
        let before = self.notified("RELOADING");
        self.signal(Signal::SIGHUP);
        let is_told = || async { self.notified("RELOADING") > before };
        crate::world::eventually(timeout, "it is reloaded", is_told).await;
    }

    /// Waits until it has ended and all that it wrote has been read. A process that it has started and that lives on may still hold its
    /// output, which is waited for as long and no longer.
    ///
    /// # Panics
    /// When it has not ended after `timeout`.
    pub async fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let status = match tokio::time::timeout(timeout, self.child.wait()).await {
            Ok(status) => status.expect("a child can be waited for"),
            Err(_) => panic!(
                "the agent still runs after {timeout:?}; it wrote:\n{}",
                self.transcript()
            ),
        };
        let all = async { while self.lines.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(timeout, all).await;
        status
    }

    /// Whether it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// All lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.lines.borrow().clone()
    }

    /// All notifications so far.
    #[must_use]
    pub fn notifications(&self) -> Vec<Notification> {
        self.notifications.borrow().clone()
    }

    /// The first line, past or future, that satisfies `predicate`.
    ///
    /// # Panics
    /// When there is none within `timeout`.
    pub async fn wait_line(
        &mut self,
        mut predicate: impl FnMut(&Line) -> bool,
        timeout: Duration,
    ) -> Line {
        let found = first_match(&mut self.lines, &mut predicate, timeout).await;
        found.unwrap_or_else(|| {
            panic!(
                "no such line within {timeout:?}; the agent wrote:\n{}",
                self.transcript()
            )
        })
    }

    /// The first notification, past or future, that satisfies `predicate`.
    ///
    /// # Panics
    /// When there is none within `timeout`.
    pub async fn wait_notify(
        &mut self,
        mut predicate: impl FnMut(&Notification) -> bool,
        timeout: Duration,
    ) -> Notification {
        let found = first_match(&mut self.notifications, &mut predicate, timeout).await;
        found.unwrap_or_else(|| {
            panic!(
                "no such notification within {timeout:?}; there were {:?}; the agent wrote:\n{}",
                self.notifications(),
                self.transcript()
            )
        })
    }

    /// Waits for `READY=1`.
    pub async fn wait_ready(&mut self, timeout: Duration) -> Notification {
        self.wait_notify(
            |notification| notification.fields.get("READY").is_some_and(|v| v == "1"),
            timeout,
        )
        .await
    }

    /// Everything that it wrote, with the milliseconds since its start.
    #[must_use]
    pub fn transcript(&self) -> String {
        self.lines()
            .iter()
            .map(|line| {
                let at = line.at.duration_since(self.started).as_millis();
                format!("{at:>7} ms {:?}: {}\n", line.stream, line.text)
            })
            .collect()
    }
}

/// Runs `binary ARGS --root ROOT` to its end.
///
/// # Panics
/// When it has not ended after `timeout`.
pub async fn run_once(
    binary: impl AsRef<OsStr>,
    root: &Path,
    args: &[&str],
    timeout: Duration,
) -> Output {
    let output = command(binary, root, args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(timeout, output)
        .await
        .unwrap_or_else(|_| panic!("`{}` did not end within {timeout:?}", args.join(" ")))
        .expect("the agent's binary can be started");
    Output {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn command(binary: impl AsRef<OsStr>, root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command
        .args(args)
        .arg("--root")
        .arg(root)
        // The tester's own proxies, locale and journal must not reach the agent.
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

async fn first_match<T: Clone>(
    receiver: &mut watch::Receiver<Vec<T>>,
    predicate: &mut impl FnMut(&T) -> bool,
    timeout: Duration,
) -> Option<T> {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut seen = 0;
    loop {
        {
            let all = receiver.borrow_and_update();
            if let Some(found) = all[seen..].iter().find(|one| predicate(one)) {
                return Some(found.clone());
            }
            seen = all.len();
        }
        match tokio::time::timeout_at(deadline, receiver.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return None,
        }
    }
}

async fn collect_lines(
    stream: impl AsyncRead + Unpin,
    kind: Stream,
    sender: Arc<watch::Sender<Vec<Line>>>,
) {
    let mut reader = BufReader::new(stream);
    let mut bytes = Vec::new();
    while let Ok(1..) = reader.read_until(b'\n', &mut bytes).await {
        let text = String::from_utf8_lossy(&bytes);
        let line = Line {
            at: Instant::now(),
            stream: kind,
            text: text.trim_end_matches('\n').to_owned(),
        };
        sender.send_modify(|lines| lines.push(line));
        bytes.clear();
    }
}

async fn collect_notifications(socket: UnixDatagram, sender: watch::Sender<Vec<Notification>>) {
    let mut buffer = [0; NOTIFY_LIMIT];
    loop {
        let received = tokio::select! {
            received = socket.recv(&mut buffer) => received,
            () = sender.closed() => return,
        };
        let Ok(length) = received else { return };
        let text = String::from_utf8_lossy(&buffer[..length]);
        let notification = Notification {
            at: Instant::now(),
            fields: text
                .lines()
                .filter_map(|line| line.split_once('='))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        };
        sender.send_modify(|all| all.push(notification));
    }
}
