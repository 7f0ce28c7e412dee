// SPDX-License-Identifier: Apache-2.0
//! Changes of the files that the agent reads: credentials, `/etc/hostname`, the configuration of the distribution.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::inbox::Sender;
use super::source::{Lost, Output, Source, Work, keep};
use crate::agent::Trigger;
use crate::agent::signal_board::SignalBoard;
use crate::sys::file_watch::{What, describe, follow, poll};
use crate::sys::root::Root;

/// Reports changes of `files` until dropped. A watch that the kernel refuses is a finding, and is tried again.
pub(super) async fn listen(
    root: Root,
    files: BTreeSet<PathBuf>,
    sender: Sender,
    board: SignalBoard,
) {
    let polling = poll(root.clone(), files.clone(), || sender.send(Trigger::Files));
    let mut source = Files {
        root: root.clone(),
        files: files.into_iter().collect(),
    };
    let out = Output::new(&source, sender.clone(), board);
    tokio::join!(polling, keep(&mut source, &root, &out));
}

struct Files {
    root: Root,
    files: Vec<PathBuf>,
}

impl Source for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    fn loss(&self) -> &'static str {
        "changes of files are detected late"
    }

    fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost> {
        let count = self.files.len();
        let report = move |refused: Option<&std::io::Error>| match refused {
            None => out.live(format!("inotify for {count} paths")),
            Some(error) => out.lost(&describe(error)),
        };
        let changed = move || out.fire(Trigger::Files);
        let (root, files) = (self.root.clone(), self.files.clone());
        Box::pin(async move {
            let ended = follow(root, files, What::Content, changed, report).await;
            let stopped = || std::io::Error::other("stopped");
            Lost::Failed(describe(&ended.err().unwrap_or_else(stopped)))
        })
    }
}
