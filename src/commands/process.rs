// SPDX-License-Identifier: Apache-2.0
//! The options and environment of the process.

use std::io::{IsTerminal, stderr};
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

use time::UtcDateTime;

use super::answer::Output;
use crate::config::LogLevel;
use crate::report::journal::Journal;
use crate::report::sink::{JOURNAL_SOCKET, Sink, choose_sink};
use crate::report::systemd::{Notifier, NotifyEnvironment};
use crate::report::text::{Show, TermStyle};
use crate::sys::root::Root;
use crate::wire::dbus::Bus;

/// The options and environment of the process, read once in `main`.
#[derive(Debug, Clone)]
pub struct Process {
    /// The file system root.
    pub root: Root,
    /// The only configuration file, if set.
    pub config: Option<PathBuf>,
    /// The output format.
    pub output: Output,
    /// The capabilities of standard output.
    pub term: TermStyle,
    /// `--verbose`.
    pub is_verbose: bool,
    /// Whether `JOURNAL_STREAM` is set.
    pub has_journal_stream: bool,
    /// What systemd sets for a service.
    pub notify: NotifyEnvironment,
    /// `DBUS_SYSTEM_BUS_ADDRESS`; only `unix:path=PATH` is used.
    pub system_bus_address: Option<String>,
}

impl Process {
    /// Returns a process without options and environment.
    #[cfg(test)]
    pub(super) fn plain(root: Root) -> Self {
        Self {
            root,
            config: None,
            output: Output::Text,
            term: TermStyle::PLAIN,
            is_verbose: false,
            has_journal_stream: false,
            notify: NotifyEnvironment::default(),
            system_bus_address: None,
        }
    }

    /// Returns a process whose only configuration file, in a directory of its own, has this content.
    #[cfg(test)]
    pub(super) fn configured(name: &str, content: &str) -> (tempfile::TempDir, Self) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), content).unwrap();
        let mut process = Self::plain(Root::new(dir.path()));
        process.config = Some(Path::new("/").join(name));
        (dir, process)
    }

    /// Returns the display settings.
    pub fn show_now(&self) -> Show {
        self.show(UtcDateTime::now())
    }

    /// Returns the display settings for times relative to `now`.
    pub fn show(&self, now: UtcDateTime) -> Show {
        Show {
            style: self.term,
            verbose: self.is_verbose,
            now,
        }
    }

    /// Returns the journal, or standard error if that is not the journal.
    pub(super) fn journal(&self, level: LogLevel) -> Journal {
        Journal::new(self.sink(stderr().is_terminal()), level)
    }

    fn sink(&self, is_terminal: bool) -> Sink {
        let has_journal = self.root.is_live() && self.root.exists(JOURNAL_SOCKET);
        choose_sink(has_journal, is_terminal, self.has_journal_stream)
    }

    pub(super) fn bus(&self) -> Bus {
        Bus::new(&self.root, self.system_bus_address.as_deref())
    }

    pub(super) fn notifier(&self) -> Notifier {
        Notifier::new(&self.notify, std::process::id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::{tree, write};

    #[test]
    fn a_tree_never_leads_to_the_journal_of_the_running_system() {
        let (_dir, root) = tree();
        write(&root, JOURNAL_SOCKET, "");
        let sink = Process::plain(root).sink(false);
        assert_eq!(sink, Sink::Stderr { is_prefixed: false });
    }
}
