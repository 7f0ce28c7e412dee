// SPDX-License-Identifier: Apache-2.0
//! Children that never outlive who owns them: this process, or whoever holds the write end of a FIFO.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Runs a command until the writer of the shell's standard input closes it, which the kernel does for a process that is
/// killed. Not a parent-death signal: that one fires when the *thread* that started the child ends, as each test's does.
///
/// The child of a child goes first: it may be the first process of a PID namespace, and `unshare` ends when all of it is gone. What
/// goes on without its child, as QEMU does, has a second for that.
const GUARD: &str = r#"
exec 3<&0
dir=$1; shift
"$@" 3<&- </dev/null &
child=$!
(read -r _ <&3; pkill -KILL -P "$child" && sleep 1; kill -KILL "$child"; [ -z "$dir" ] || rm -rf "$dir") 2>/dev/null &
wait "$child"
"#;

/// A child that ends when this value is dropped or this process is gone.
#[derive(Debug)]
pub struct Guard {
    shell: Child,
}

impl Guard {
    /// Starts program and arguments of a command; its environment is ours. What it prints goes to `log`; `remove` is a directory
    /// that goes with it when this process is killed.
    ///
    /// # Panics
    /// When there is no shell or the log cannot be written.
    #[must_use]
    pub fn start(command: &Command, log: &Path, remove: Option<&Path>) -> Self {
        Self {
            shell: spawn(command, log, remove, Stdio::piped()),
        }
    }

    /// Whether it is gone.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.shell.try_wait(), Ok(Some(_)))
    }
}

/// Starts a child that ends when no process holds the FIFO `owner` open for writing. Gives its process group, for [`end`].
///
/// # Panics
/// As [`Guard::start`].
#[must_use]
pub fn start_owned(command: &Command, log: &Path, owner: &Path) -> i32 {
    let owner = std::fs::File::open(owner).expect("the FIFO has a writer");
    spawn(command, log, None, owner.into()).id().cast_signed()
}

/// Whether a child of [`start_owned`] that this process has started is gone.
#[must_use]
pub fn has_ended(group: i32) -> bool {
    let status = waitpid(Pid::from_raw(group), Some(WaitPidFlag::WNOHANG));
    status != Ok(WaitStatus::StillAlive)
}

/// Ends a process group of [`start_owned`], if it is still there.
pub fn end(group: i32) {
    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
}

fn spawn(command: &Command, log: &Path, remove: Option<&Path>, owner: Stdio) -> Child {
    let output = std::fs::File::create(log).expect("the directory is writable");
    let error = output.try_clone().expect("a file can be opened twice");
    Command::new("/bin/sh")
        .args(["-c", GUARD, "guard"])
        .arg(remove.map_or_else(Default::default, Path::as_os_str))
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(owner)
        .stdout(output)
        .stderr(error)
        // Out of the terminal's process group: Ctrl-C must end the tests first, and then, through the pipe, this.
        .process_group(0)
        .spawn()
        .expect("there is a shell")
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            let _ = pipe.write_all(b"\n");
        }
        let _ = self.shell.wait();
    }
}
