// SPDX-License-Identifier: Apache-2.0
//! The kinds of journal entries: `MESSAGE_ID`. `systemd/harvester-node-agent.catalog` has the text that `journalctl -x` adds to each.
//!
//! To add one: `systemd-id128 new`, a constant below, and an entry of the catalog (<https://systemd.io/CATALOG/>). There, `@FIELD@` is
//! replaced by a field of the entry (`systemd.journal-fields(7)`): use only fields that every such entry has. An id never changes once
//! released.

use crate::decide::scheduled_events::ScheduledEventState;

/// The agent started.
pub const STARTED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a101";
/// The agent stopped.
pub const STOPPED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a108";
/// The VM of this node was identified.
pub const IDENTIFIED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a106";
/// A finding appeared or changed.
pub const FINDING: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a102";
/// A finding was resolved.
pub const RESOLVED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a103";
/// The VM runs on another host.
pub const MIGRATED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a104";
/// The labels of the Node were written.
pub const LABELED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a105";
/// The configuration was reloaded.
pub const RELOADED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a107";
/// The configuration at the start is invalid.
pub const CONFIGURATION_REFUSED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10f";
/// A migration hint was received.
pub const SIGN: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a109";
/// A migration hint was not confirmed.
pub const UNCONFIRMED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10a";
/// A hostname changed.
pub const RENAMED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10b";
/// The wall clock was set.
pub const CLOCK_SET: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10c";
/// The unit of the QEMU guest agent was started.
pub const UNIT_STARTED: &str = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10d";
/// The unit of the QEMU guest agent could not be started.
pub const UNIT_NOT_STARTED: &str = "bb25d6aff3c24cc59939c6ce8135701b";
/// A live migration or a stop of the VM is planned.
pub const EVENT_PLANNED: &str = "9083dfb603784bbd94e82cddf198fc46";
/// A live migration or a stop of the VM has started.
pub const EVENT_IN_PROGRESS: &str = "c1a34beb866a4588b2d375d8e215b058";
/// A live migration or a stop of the VM is done.
pub const EVENT_DONE: &str = "ba875a20faf1435790b1f2f2a1d48af3";
/// A live migration of the VM failed.
pub const EVENT_FAILED: &str = "52660345dfd14c77820a946e87063f37";
/// A live migration of the VM was canceled.
pub const EVENT_CANCELED: &str = "ff4c3d87c02a4995b074e5def0dc0aa9";
/// Entries that the journal did not accept.
pub const RECORDS_LOST: &str = "e8d7a7fe0b8748ff93d3f26f38cc20de";

/// Returns the ID of the entry for a state of a scheduled event.
pub fn of_event(state: ScheduledEventState) -> &'static str {
    match state {
        ScheduledEventState::Planned => EVENT_PLANNED,
        ScheduledEventState::InProgress => EVENT_IN_PROGRESS,
        ScheduledEventState::Done => EVENT_DONE,
        ScheduledEventState::Failed => EVENT_FAILED,
        ScheduledEventState::Canceled => EVENT_CANCELED,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    /// An entry of the catalog.
    pub(crate) struct Kind {
        pub(crate) id: &'static str,
        pub(crate) subject: &'static str,
        explanation: &'static str,
    }

    /// Returns the entries of the catalog.
    pub(crate) fn catalog() -> Vec<Kind> {
        let text = include_str!("../../systemd/harvester-node-agent.catalog");
        let entries = text.split("\n-- ").skip(1).map(|entry| {
            let (head, explanation) = entry.split_once("\n\n").unwrap();
            let [id, subject, program, page] = head.lines().collect::<Vec<_>>()[..] else {
                return Err(head);
            };
            assert_eq!(program, "Defined-By: harvester-node-agent");
            assert_eq!(page, "Documentation: man:harvester-node-agent(1)");
            let subject = subject.strip_prefix("Subject: ").ok_or(head)?;
            Ok(Kind {
                id,
                subject,
                explanation,
            })
        });
        entries.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn each_id_is_as_the_journal_wants_it_and_has_one_entry_of_the_catalog_that_fits_a_terminal() {
        let lines = include_str!("message_id.rs").lines();
        let ids = lines.filter_map(|line| line.strip_prefix("pub const ")?.split('"').nth(1));
        let mut ids: Vec<&str> = ids.collect();
        let mut entries: Vec<&str> = catalog().iter().map(|kind| kind.id).collect();
        ids.sort_unstable();
        entries.sort_unstable();
        assert_eq!(entries, ids);
        ids.dedup();
        assert_eq!(entries, ids, "an ID is used twice");
        for id in &ids {
            let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            assert!(id.len() == 32 && id.bytes().all(is_digit), "{id}");
        }
        for kind in catalog() {
            assert!(!kind.subject.ends_with('.'));
            assert!(kind.explanation.ends_with('\n'), "{}", kind.subject);
            for line in kind.explanation.lines() {
                // `journalctl -x` adds three characters before each line.
                assert!(line.len() <= 85, "{line}");
            }
        }
    }
}
