// SPDX-License-Identifier: Apache-2.0
//! For tests only: runs one test in a separate process, optionally in a separate mount namespace.

use std::process::{Command, Output};

/// Set in the process that runs one test only.
const OWN_PROCESS: &str = "HARVESTER_NODE_AGENT_TEST_OWN_PROCESS";

/// Makes a mount namespace whose mounts no one else sees.
const UNSHARE: [&str; 3] = ["--mount", "--propagation", "private"];

/// Which of the two processes this is.
#[derive(Debug)]
pub(crate) enum Role {
    /// The one with the test for itself.
    Child,
    /// The one that started it, with what came of it.
    Parent(Output),
    /// There is no other process, for want of namespaces.
    Skipped,
}

/// Runs the test called `test` once more, in a process of its own.
///
/// For tests that change or end the process, and for those that a `fork` of another test would disturb.
pub(crate) fn own_process(test: &str) -> Role {
    start(Command::new(std::env::current_exe().unwrap()), test)
}

/// As [`own_process`], with a mount namespace of its own.
pub(crate) fn own_mounts(test: &str) -> Role {
    own_namespaces(test, &UNSHARE)
}

/// As [`own_process`], with namespaces of its own, as these options of `unshare` say.
pub(crate) fn own_namespaces(test: &str, options: &[&str]) -> Role {
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
        start(command, test)
    } else {
        println!("SKIP {test}: `unshare {}` fails here", options.join(" "));
        Role::Skipped
    }
}

impl Role {
    /// True in the process with the test for itself; false in the one that started it, after its success.
    pub(crate) fn is_child(&self) -> bool {
        if let Self::Parent(output) = self {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}\n{errors}");
            assert!(text.contains("1 passed"), "no such test: {text}");
            // What it says, without what its harness says: that would be counted twice.
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

/// Runs a program that must succeed.
pub(crate) fn run(command: &[&str]) {
    let status = Command::new(command[0]).args(&command[1..]).status();
    assert!(status.unwrap().success(), "{command:?}");
}

fn start(mut command: Command, test: &str) -> Role {
    if std::env::var_os(OWN_PROCESS).is_some() {
        return Role::Child;
    }
    command
        .args(["--exact", test, "--nocapture"])
        .env(OWN_PROCESS, "1");
    Role::Parent(command.output().unwrap())
}
