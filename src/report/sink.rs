// SPDX-License-Identifier: Apache-2.0
//! The destination of records: the journal or stderr. Chosen once, from facts.

use std::io::{IsTerminal, stderr};

use nix::sys::stat::fstat;

use crate::sys::root::Root;

/// journald's socket; the client library supports no other path.
pub const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// The destination of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// journald's own protocol, with fields.
    Journal,
    /// Text on stderr.
    Stderr(StderrStyle),
}

/// The format of text on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StderrStyle {
    /// Without colors or prefixes.
    Plain,
    /// With terminal colors.
    Coloured,
    /// Each line with its priority as a prefix, `<4>`, which systemd parses on a service's stderr.
    Prefixed,
}

/// The inputs of the choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SinkFacts {
    /// Whether the root is the running system, not a tree below `--root`.
    pub live_root: bool,
    /// The environment variable `JOURNAL_STREAM`, `device:inode`.
    pub journal_stream: Option<String>,
    /// The device and inode of stderr.
    pub stderr: Option<(u64, u64)>,
    /// Whether stderr is a terminal.
    pub stderr_is_terminal: bool,
    /// Whether journald's socket exists.
    pub journal_socket_exists: bool,
    /// Whether the environment variable `NO_COLOR` is set and not empty.
    pub no_color: bool,
}

impl SinkFacts {
    /// Reads the state of stderr and of journald's socket; the environment is that of main.
    pub fn observe(root: &Root, journal_stream: Option<String>, no_color: Option<&str>) -> Self {
        Self {
            live_root: root.is_live(),
            journal_stream,
            stderr: fstat(stderr())
                .ok()
                .map(|found| (found.st_dev, found.st_ino)),
            stderr_is_terminal: stderr().is_terminal(),
            journal_socket_exists: root.exists(JOURNAL_SOCKET),
            no_color: no_color.is_some_and(|value| !value.is_empty()),
        }
    }

    /// Reports whether systemd connected stderr to the journal. The variable alone is not sufficient: children inherit it, even if
    /// their stderr is redirected.
    fn stderr_is_journal(&self) -> bool {
        let stream = self.journal_stream.as_deref().and_then(|text| {
            let (device, inode) = text.split_once(':')?;
            Some((device.parse().ok()?, inode.parse().ok()?))
        });
        stream.is_some() && stream == self.stderr
    }
}

/// Returns the journal for a service on the running system, otherwise stderr.
pub fn choose_sink(facts: &SinkFacts) -> Sink {
    let service = facts.stderr_is_journal() || !facts.stderr_is_terminal;
    if facts.live_root && facts.journal_socket_exists && service {
        Sink::Journal
    } else if facts.stderr_is_terminal {
        Sink::Stderr(if facts.no_color {
            StderrStyle::Plain
        } else {
            StderrStyle::Coloured
        })
    } else if facts.journal_stream.is_some() {
        Sink::Stderr(StderrStyle::Prefixed)
    } else {
        Sink::Stderr(StderrStyle::Plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_chosen_for_a_service_on_the_running_system_only() {
        type Change = fn(&mut SinkFacts);
        let service = SinkFacts {
            live_root: true,
            journal_stream: Some("9:77".into()),
            stderr: Some((9, 77)),
            stderr_is_terminal: false,
            journal_socket_exists: true,
            no_color: false,
        };
        let [plain, colored, prefixed] = [
            StderrStyle::Plain,
            StderrStyle::Coloured,
            StderrStyle::Prefixed,
        ]
        .map(Sink::Stderr);
        let cases: [(Change, Sink); 8] = [
            (|_| {}, Sink::Journal),
            (|facts| facts.journal_stream = None, Sink::Journal),
            (|facts| facts.stderr_is_terminal = true, Sink::Journal),
            (|facts| facts.live_root = false, prefixed),
            (|facts| facts.journal_socket_exists = false, prefixed),
            (
                |facts| (facts.journal_socket_exists, facts.journal_stream) = (false, None),
                plain,
            ),
            (
                |facts| (facts.stderr, facts.stderr_is_terminal) = (Some((9, 78)), true),
                colored,
            ),
            (
                |facts| {
                    facts.stderr = None;
                    facts.journal_stream = Some("rubbish".into());
                    (facts.stderr_is_terminal, facts.no_color) = (true, true);
                },
                plain,
            ),
        ];
        for (change, sink) in cases {
            let mut facts = service.clone();
            change(&mut facts);
            assert_eq!(choose_sink(&facts), sink, "{facts:?}");
        }
    }

    #[test]
    fn a_tree_for_tests_never_leads_to_the_journal_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let facts = SinkFacts::observe(&Root::new(dir.path()), None, Some("1"));
        assert!(!facts.live_root && !facts.journal_socket_exists && facts.no_color);
        assert!(facts.stderr.is_some());
        assert_ne!(choose_sink(&facts), Sink::Journal);
    }
}
