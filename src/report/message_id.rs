// SPDX-License-Identifier: Apache-2.0
//! The kinds of journal entries: `MESSAGE_ID`, and the text that `journalctl -x` adds.
//!
//! The message catalog is generated from this file. `@FIELD@` is replaced by a field of the entry
//! (`systemd.journal-fields(7)`): use only fields that every such entry has.
//!
//! To add one: `systemd-id128 new`, and an entry below. An id never changes once released.

use crate::decide::scheduled_events::ScheduledEventState;

/// One kind of journal entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// `MESSAGE_ID`: 32 hexadecimal digits.
    pub id: &'static str,
    /// The subject: what happened, in one line.
    pub subject: &'static str,
    /// The meaning, and the commands to run next.
    pub explanation: &'static str,
}

macro_rules! kinds {
    ($( $(#[$attribute:meta])* $name:ident = $id:literal, $subject:literal, $explanation:literal; )+) => {
        $( $(#[$attribute])* pub const $name: &str = $id; )+

        /// Every kind.
        pub const ALL: &[Kind] = &[
            $( Kind { id: $id, subject: $subject, explanation: $explanation } ),+
        ];
    };
}

kinds! {
    /// The agent started.
    STARTED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a101",
    "Harvester node agent started",
    "The agent now identifies the Harvester VM of this node and the host that runs it.\n\
     To show the result:\n\
     \n    harvester-node-agent status\n";

    /// The agent stopped.
    STOPPED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a108",
    "Harvester node agent stopped",
    "Labels and annotations of the Node are unchanged. While the agent is stopped, they\n\
     are not updated after a live migration. To start it:\n\
     \n    systemctl start harvester-node-agent\n";

    /// The VM of this node was identified.
    IDENTIFIED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a106",
    "This node is the Harvester VM @HNA_VM@",
    "To show the evidence, and whether hostname and node name match the VM:\n\
     \n    harvester-node-agent whoami\n";

    /// A finding appeared or changed.
    FINDING = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a102",
    "Harvester node agent found a problem: @HNA_FINDING@",
    "@MESSAGE@\n\
     \n\
     Impact: @HNA_IMPACT@\n\
     \n\
     Fix: @HNA_FIX@\n\
     \n\
     For the full description and the commands:\n\
     \n    harvester-node-agent explain @HNA_FINDING@\n";

    /// A finding was resolved.
    RESOLVED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a103",
    "Problem resolved: @HNA_FINDING@",
    "The Harvester node agent no longer reports this problem. Its history:\n\
     \n    journalctl -u harvester-node-agent HNA_FINDING=@HNA_FINDING@\n";

    /// The VM runs on another host.
    MIGRATED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a104",
    "Harvester host changed from @HNA_PREVIOUS_HOST@ to @HNA_HOST@",
    "The VM was live-migrated, or stopped and started on another host. The labels of the\n\
     Node are updated unless topology.on_change in the configuration says otherwise.\n\
     Running pods are not rescheduled.\n\
     \n    harvester-node-agent status\n";

    /// The labels of the Node were written.
    LABELED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a105",
    "Labels of this node were updated",
    "@MESSAGE@\n\
     \n\
     The scheduler uses the new region and zone for pods that it schedules from now on.\n\
     To show the source of the values:\n\
     \n    harvester-node-agent whoami\n";

    /// The configuration was reloaded.
    RELOADED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a107",
    "Harvester node agent reloaded its configuration",
    "To show the effective configuration, with the file that sets each value:\n\
     \n    harvester-node-agent config show\n";

    /// The configuration at the start is invalid.
    CONFIGURATION_REFUSED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10f",
    "Configuration of the Harvester node agent is invalid",
    "The agent is idle until the configuration is fixed, and then starts automatically.\n\
     To list the errors, with file and line:\n\
     \n    harvester-node-agent config check\n";

    /// A migration hint was received.
    SIGN = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a109",
    "Possible live migration: hint @HNA_TRIGGER@",
    "An event in the guest indicates a live migration. For one minute, the agent polls\n\
     Harvester for the current host. A later entry has the result: migrated, not migrated,\n\
     or unknown because the Harvester API was unavailable.\n";

    /// A migration hint was not confirmed.
    UNCONFIRMED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10a",
    "Migration hint was not confirmed",
    "@MESSAGE@\n\
     \n\
     The labels of the Node are unchanged. Other causes of the same hint: a VM that was\n\
     restored from a saved state, the QEMU command announce-self, or a restart of the\n\
     process on the host that holds a virtio-serial port of this VM. If the Harvester API\n\
     was unavailable, see the cause:\n\
     \n    harvester-node-agent doctor\n";

    /// A hostname changed.
    RENAMED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10b",
    "Hostname of this node changed",
    "@MESSAGE@\n\
     \n\
     The Harvester CSI driver and cloud provider and Rancher expect the name of the VM. To\n\
     show all names:\n\
     \n    harvester-node-agent whoami\n";

    /// The wall clock was set.
    CLOCK_SET = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10c",
    "Wall clock was set",
    "KubeVirt sets the clock after a live migration, and so does an NTP client. It is not\n\
     a problem in itself; the agent uses it as a trigger for a reconcile.\n";

    /// The unit of the QEMU guest agent was started.
    UNIT_STARTED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10d",
    "QEMU guest agent was started",
    "qemu_guest_agent.auto_start is true in the configuration, and the unit was installed,\n\
     not disabled, and stopped. It is started at most once in ten minutes.\n\
     \n    systemctl status qemu-guest-agent\n";

    /// The unit of the QEMU guest agent could not be started.
    UNIT_NOT_STARTED = "bb25d6aff3c24cc59939c6ce8135701b",
    "QEMU guest agent could not be started",
    "@MESSAGE@\n\
     \n\
     qemu_guest_agent.auto_start is true in the configuration, and the unit was installed,\n\
     not disabled, and stopped. It is tried again in ten minutes. The cause:\n\
     \n    systemctl status qemu-guest-agent\n    journalctl -u qemu-guest-agent\n";

    /// A live migration or a stop of the VM is planned.
    EVENT_PLANNED = "9083dfb603784bbd94e82cddf198fc46",
    "Planned: @HNA_EVENT_TYPE@ of the VM of this node",
    "@MESSAGE@\n\
     \n\
     Harvester announced it. This node cannot delay it. Later entries with the same\n\
     HNA_EVENT_ID have its other states:\n\
     \n    journalctl -u harvester-node-agent HNA_EVENT_ID=@HNA_EVENT_ID@\n";

    /// A live migration or a stop of the VM has started.
    EVENT_IN_PROGRESS = "c1a34beb866a4588b2d375d8e215b058",
    "In progress: @HNA_EVENT_TYPE@ of the VM of this node",
    "@MESSAGE@\n\
     \n\
     During a live migration, the VM is paused for a moment before it runs on the target\n\
     host. During a stop, the guest is destroyed at the deadline if it has not shut down.\n\
     \n    harvester-node-agent events\n";

    /// A live migration or a stop of the VM is done.
    EVENT_DONE = "ba875a20faf1435790b1f2f2a1d48af3",
    "Done: @HNA_EVENT_TYPE@ of the VM of this node",
    "@MESSAGE@\n\
     \n\
     All states of this event:\n\
     \n    journalctl -u harvester-node-agent HNA_EVENT_ID=@HNA_EVENT_ID@\n";

    /// A live migration of the VM failed.
    EVENT_FAILED = "52660345dfd14c77820a946e87063f37",
    "Failed: @HNA_EVENT_TYPE@ of the VM of this node",
    "@MESSAGE@\n\
     \n\
     The VM runs on its host as before. If the host is drained, Harvester retries. The\n\
     cause is in the VirtualMachineInstanceMigration on Harvester.\n";

    /// A live migration of the VM was canceled.
    EVENT_CANCELED = "ff4c3d87c02a4995b074e5def0dc0aa9",
    "Canceled: @HNA_EVENT_TYPE@ of the VM of this node",
    "@MESSAGE@\n\
     \n\
     The VM runs on its host as before.\n";

    /// Entries that the journal did not accept.
    RECORDS_LOST = "e8d7a7fe0b8748ff93d3f26f38cc20de",
    "Journal entries of the Harvester node agent were lost",
    "The journal did not accept them in time. The agent did not wait for it. To show its\n\
     current state:\n\
     \n    harvester-node-agent status\n";
}

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
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_as_the_journal_wants_them_and_each_is_used_once_and_texts_fit_a_terminal() {
        let mut seen = BTreeSet::new();
        for kind in ALL {
            assert_eq!(kind.id.len(), 32, "{}", kind.id);
            let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            assert!(kind.id.bytes().all(is_hex), "{}", kind.id);
            assert!(seen.insert(kind.id), "{} is used twice", kind.id);
            assert!(!kind.subject.contains('\n') && !kind.subject.ends_with('.'));
            assert!(kind.explanation.ends_with('\n'), "{}", kind.subject);
            for line in kind.explanation.lines() {
                // `journalctl -x` adds three characters before each line.
                assert!(line.len() <= 85, "{line}");
            }
        }
    }
}
