// SPDX-License-Identifier: Apache-2.0
//! Reads the files of this machine, which may be on a disk that does not respond.

use std::time::Duration;

use super::state::Observer;
use crate::catalog::{Code, Finding};
use crate::observe::machine::read_machine;
use crate::observe::registration;

/// How long a round waits for the disk.
const STALL: Duration = Duration::from_secs(5);

impl Observer {
    /// Reads the files of this machine. While the disk does not respond, the facts stay, and there is a finding.
    pub(super) async fn read_local(&mut self) -> Option<Finding> {
        let root = self.root.clone();
        let read = move || (read_machine(&root), registration::read(&root));
        let Some((machine, label_files)) = self.files.run(STALL, read).await else {
            let what = format!("the disk did not respond within {} s", STALL.as_secs());
            return Some(Finding::new(Code::FileNotRead, what));
        };
        self.facts.machine = machine;
        self.facts.label_files = label_files;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::signal_board::SignalBoard;
    use crate::config::Settings;
    use crate::decide::fixtures::now;
    use crate::facts::Fact;
    use crate::facts::observation::Observation;
    use crate::facts::trigger::Scope;
    use crate::sys::disk::DiskWork;
    use crate::sys::root::Root;
    use crate::wire::dbus::Bus;

    async fn read(observer: &mut Observer) -> Observation {
        let settings = Settings::default();
        let time = now(Duration::ZERO);
        Box::pin(observer.read(&settings, Scope::NONE, time, &mut || ())).await
    }

    #[tokio::test]
    async fn a_disk_that_does_not_respond_costs_no_fact_that_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir(root.join("/etc")).unwrap();
        std::fs::write(root.join("/etc/hostname"), "vm-1").unwrap();
        let bus = Bus::new(&root, None);
        let mut observer = Observer::new(root.clone(), bus, SignalBoard::default(), None);
        let is_stalled = |seen: &Observation| {
            let mut findings = seen.findings.iter();
            let is_told = findings.any(|finding| finding.code == Code::FileNotRead);
            assert_eq!(is_told, seen.is_unread);
            is_told
        };
        let (stalled, end) = DiskWork::stalled();
        observer.files = stalled;
        let seen = read(&mut observer).await;
        assert!(is_stalled(&seen) && seen.machine.static_hostname.why().is_some());
        drop(end);
        let seen = read(&mut observer).await;
        let name = Fact::Known("vm-1".to_owned());
        assert!(!is_stalled(&seen) && seen.machine.static_hostname == name);
        std::fs::write(root.join("/etc/hostname"), "vm-2").unwrap();
        let (stalled, _end) = DiskWork::stalled();
        observer.files = stalled;
        let seen = read(&mut observer).await;
        assert!(is_stalled(&seen) && seen.machine.static_hostname == name);
    }
}
