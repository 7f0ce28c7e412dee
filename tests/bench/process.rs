// SPDX-License-Identifier: Apache-2.0
//! Processes seen from outside: what they cost, and Debian's `qemu-ga` as the one beside which the agent stands.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use harvester_lab::figures::milliseconds;
use harvester_lab::process::Usage;
use harvester_lab::world::{SOON, eventually};
use tokio::process::{Child, Command};

/// The name in the table.
pub(crate) const QEMU_GA: &str = "qemu-ga";

/// Memory and threads at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub rss_mb: f64,
    pub pss_mb: f64,
    pub anonymous_mb: f64,
    pub threads: f64,
}

impl Memory {
    /// Reads `/proc/PID`.
    pub(crate) fn of(pid: u32) -> Self {
        let usage = Usage::of(pid).expect("the process runs");
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .expect("the process is ours");
        let anonymous = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Anonymous:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .expect("the kernel tells the anonymous memory");
        Self {
            rss_mb: megabytes(usage.rss_kib),
            pss_mb: megabytes(usage.pss_kib),
            anonymous_mb: megabytes(anonymous),
            threads: usage.threads as f64,
        }
    }
}

/// What a process did in a stretch of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    pub wake_ups: f64,
    pub cpu_ms: f64,
}

impl Activity {
    /// From one reading to a later one. Threads that ended in between took their counts with them, so there must be none.
    pub(crate) fn between(before: Usage, after: Usage) -> Self {
        assert_eq!(
            before.threads, after.threads,
            "threads came or went while the process was idle"
        );
        Self {
            wake_ups: (after.voluntary_switches - before.voluntary_switches) as f64,
            cpu_ms: milliseconds(after.cpu - before.cpu),
        }
    }
}

/// A `qemu-ga` without a client. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct QemuGa {
    child: Child,
    _dir: tempfile::TempDir,
}

impl QemuGa {
    /// Where it is installed.
    pub(crate) fn binary() -> PathBuf {
        ["/usr/sbin/qemu-ga", "/usr/bin/qemu-ga"]
            .map(PathBuf::from)
            .into_iter()
            .find(|path| path.is_file())
            .expect("tests/bench/footprint installs qemu-guest-agent")
    }

    /// Starts it on a socket of its own, and waits until it listens.
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory for its socket");
        let socket = dir.path().join("socket");
        let child = Command::new(Self::binary())
            .args(["-m", "unix-listen", "-p"])
            .arg(&socket)
            .arg("-t")
            .arg(dir.path())
            .arg("-f")
            .arg(dir.path().join("pid"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("qemu-ga can be started");
        eventually(SOON, "qemu-ga listens", async || socket.exists()).await;
        Self { child, _dir: dir }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for")
    }
}

/// How long a command takes from its start to its end.
pub(crate) async fn run_time(binary: &Path, argument: &str) -> Duration {
    let began = Instant::now();
    let status = Command::new(binary)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await
        .expect("the command can be started");
    let took = began.elapsed();
    assert!(status.success(), "{} {argument}", binary.display());
    took
}

/// Size of a file in millions of bytes.
pub(crate) fn size_mb(path: &Path) -> f64 {
    let metadata = std::fs::metadata(path).expect("the binary is there");
    metadata.len() as f64 / 1e6
}

fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}
