// SPDX-License-Identifier: Apache-2.0
//! For tests only: runs one test in a separate process, optionally in a separate mount namespace; timeouts of several tests; marks a
//! thread's system as simulated.

use std::cell::Cell;
use std::process::{Command, Output};
use std::time::Duration;

use harvester_lab::world::SOON;

use crate::wire::virtio::downward_metrics::ReadTimeouts;

const BRIEF: Duration = Duration::from_millis(100);

/// Timeouts for a host that responds, however busy the machine is. What is always waited for is brief.
pub(crate) const TIMEOUTS: ReadTimeouts = ReadTimeouts {
    send: SOON,
    receive: SOON,
    again: BRIEF,
};

/// Timeouts for a host that does not accept a request.
pub(crate) const NOT_SERVED: ReadTimeouts = ReadTimeouts {
    send: BRIEF,
    ..TIMEOUTS
};

/// Timeouts for a host that does not respond.
pub(crate) const NO_ANSWER: ReadTimeouts = ReadTimeouts {
    receive: BRIEF,
    ..TIMEOUTS
};

thread_local! {
    static SIMULATED: Cell<bool> = const { Cell::new(false) };
}

/// Declares that the system of this thread is simulated: its event sources are not started, and its timers are on tokio's clock.
pub(crate) fn simulate_system() {
    SIMULATED.set(true);
}

/// Reports whether the system of this thread is simulated.
pub(crate) fn is_simulated() -> bool {
    SIMULATED.get()
}

/// The environment variable that is set in a process that runs only one test.
const OWN_PROCESS: &str = "HARVESTER_NODE_AGENT_TEST_OWN_PROCESS";

/// The options for a mount namespace whose mounts are not visible outside.
const UNSHARE: [&str; 3] = ["--mount", "--propagation", "private"];

/// The role of the current process.
#[derive(Debug)]
pub(crate) enum Role {
    /// The child, which runs only the test.
    Child,
    /// The parent, with the result of the child.
    Parent(Output),
    /// No child was started, because namespaces are not available.
    Skipped,
}

/// Runs the test of this thread again, in a separate process.
///
/// For tests that change or end the process, and for those that a `fork` of another test would disturb.
pub(crate) fn own_process() -> Role {
    start(Command::new(std::env::current_exe().unwrap()))
}

/// Runs a test as [`own_process`] does, in a separate mount namespace.
pub(crate) fn own_mounts() -> Role {
    own_namespaces(&UNSHARE)
}

/// Runs a test as [`own_process`] does, in the namespaces of these `unshare` options.
pub(crate) fn own_namespaces(options: &[&str]) -> Role {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(options);
        command
    };
    if unshare()
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        let mut command = unshare();
        command.arg(std::env::current_exe().unwrap());
        start(command)
    } else {
        let why = format!("`unshare {}` fails here", options.join(" "));
        harvester_lab::skip(&this_test(), why);
        Role::Skipped
    }
}

impl Role {
    /// Returns true in the child, which runs only the test; false in the parent, after the child's success.
    pub(crate) fn is_child(&self) -> bool {
        if let Self::Parent(output) = self {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}\n{errors}");
            assert!(text.contains("1 passed"), "no such test: {text}");
            // The output of the test without that of its harness, whose summary would be counted twice.
            let said = |line: &&str| {
                !["test ", "running "]
                    .iter()
                    .any(|word| line.starts_with(word))
            };
            for line in text.lines().filter(|line| !line.is_empty()).filter(said) {
                println!("{line}");
            }
        }
        matches!(self, Self::Child)
    }
}

/// Runs a program, which must succeed.
pub(crate) fn run(command: &[&str]) {
    let status = Command::new(command[0]).args(&command[1..]).status();
    assert!(status.unwrap().success(), "{command:?}");
}

/// Returns the name of the test of this thread: the harness gives it to the thread.
pub(crate) fn this_test() -> String {
    std::thread::current().name().unwrap().to_owned()
}

fn start(mut command: Command) -> Role {
    if std::env::var_os(OWN_PROCESS).is_some() {
        return Role::Child;
    }
    command
        .args(["--exact", &this_test(), "--nocapture"])
        .env(OWN_PROCESS, "1");
    Role::Parent(command.output().unwrap())
}
