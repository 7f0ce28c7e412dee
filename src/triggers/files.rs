// SPDX-License-Identifier: Apache-2.0
//! Changes of the files that the agent reads: credentials, `/etc/hostname`, the configuration of the distribution.
//!
//! inotify reports no change that is made on another machine, such as the host through virtiofs: these files are also compared.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;

use super::source::{Lost, Output, Source, Work};
use crate::agent::Trigger;
use crate::sys::file_watch::{What, describe, poll, watch};
use crate::sys::root::Root;

/// The event source. A watch that the kernel refuses is a finding, and is tried again.
pub(super) struct Files {
    root: Root,
    /// The files, none before the first round.
    files: Receiver<BTreeSet<PathBuf>>,
    /// Compares files that another machine serves, also while inotify is not available.
    polling: JoinSet<()>,
}

impl Files {
    pub(super) fn new(root: &Root, files: &Receiver<BTreeSet<PathBuf>>) -> Self {
        Self {
            root: root.clone(),
            files: files.clone(),
            polling: JoinSet::new(),
        }
    }
}

impl Source for Files {
    fn about(&self) -> (&'static str, &'static str) {
        ("files", "changes of files are detected late")
    }

    fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost> {
        if self.polling.is_empty() {
            let (root, files, out) = (self.root.clone(), self.files.clone(), out.clone());
            self.polling
                .spawn(poll(root, files, move || out.fire(Trigger::Files)));
        }
        Box::pin(async move {
            loop {
                let files = self.files.borrow_and_update().clone();
                let count = files.len();
                let report = |refused: Option<&std::io::Error>| match refused {
                    None => out.active(format!("inotify for {count} paths")),
                    Some(error) => out.lost(&describe(error)),
                };
                let paths = files.iter().cloned().collect();
                let changed = || out.fire(Trigger::Files);
                let following = watch(self.root.clone(), paths, What::Content, changed, report);
                let others = self.files.wait_for(|now| *now != files);
                let ended = tokio::select! {
                    ended = following, if count > 0 => ended,
                    others = others => match others.is_ok() {
                        true => continue,
                        false => Ok(()),
                    },
                };
                let stopped = || std::io::Error::other("stopped");
                return Lost::Failed(describe(&ended.err().unwrap_or_else(stopped)));
            }
        })
    }
}
