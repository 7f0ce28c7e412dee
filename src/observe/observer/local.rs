// SPDX-License-Identifier: Apache-2.0
//! Reads the files of this machine, which may be on a disk that does not respond.

use std::fs::File;
use std::io;
use std::time::Duration;

use super::state::Observer;
use crate::catalog::{Code, Finding};
use crate::observe::machine::read_machine;

/// How long a round waits for the disk.
const STALL: Duration = Duration::from_secs(5);

/// More files than the reads of a round have open at the same time.
const DESCRIPTORS: usize = 8;

/// Returns the error if this process or the system has no file descriptors left: then each file would be reported as one that cannot be
/// read, although none of them is wrong.
fn has_descriptors() -> io::Result<()> {
    let open = |_| File::open("/dev/null");
    (0..DESCRIPTORS).map(open).collect::<io::Result<Vec<_>>>()?;
    Ok(())
}

impl Observer {
    /// Reads the files of this machine. While they cannot be read, the facts stay, and there is a finding.
    pub(super) async fn read_local(&mut self) -> Option<Finding> {
        let root = self.root.clone();
        let read = move || has_descriptors().map(|()| read_machine(&root));
        let what = match self.files.run(STALL, read).await {
            Some(Ok(machine)) => {
                self.facts.machine = machine;
                return None;
            }
            Some(Err(error)) => format!("no file can be opened: {error}"),
            None => format!("the disk did not respond within {} s", STALL.as_secs()),
        };
        Some(Finding::new(Code::FileNotRead, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::source_board::SourceBoard;
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
        let mut observer = Observer::new(root.clone(), bus, SourceBoard::default(), None);
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
