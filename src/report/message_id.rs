// SPDX-License-Identifier: Apache-2.0
//! The kinds of records in the journal: `MESSAGE_ID`, and what `journalctl -x` tells about it.
//!
//! The catalog that is shipped is made from this file, so each text is there for a person who has just seen the record.
//! `@FIELD@` stands for a field of the record (`systemd.journal-fields(7)`); only fields that every such record has.
//!
//! To add one: `systemd-id128 new`, and an entry below. An id never changes once released.

/// One kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// `MESSAGE_ID`: 32 hexadecimal digits.
    pub id: &'static str,
    /// What happened, in one line.
    pub subject: &'static str,
    /// What it means and what to type next.
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
    "The Harvester node agent started",
    "It now reads which Harvester VM this machine is and which host runs it. What it\n\
     found a moment later:\n\
     \n    harvester-node-agent status\n";

    /// The agent ends.
    STOPPED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a108",
    "The Harvester node agent ended",
    "Labels and annotations of the Node stay as they are. Until it runs again nobody\n\
     corrects them after a live migration. To start it:\n\
     \n    systemctl start harvester-node-agent\n";

    /// It became known which VM this is.
    IDENTIFIED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a106",
    "This machine is the Harvester VM @HNA_VM@",
    "The evidence, and whether hostname and node name are the VM's name:\n\
     \n    harvester-node-agent whoami\n";

    /// A finding appeared or changed.
    FINDING = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a102",
    "The Harvester node agent found something wrong: @HNA_FINDING@",
    "@MESSAGE@\n\
     \n\
     What to do: @HNA_REMEDY@\n\
     \n\
     The long explanation:\n\
     \n    harvester-node-agent explain @HNA_FINDING@\n";

    /// A finding went away.
    RESOLVED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a103",
    "No longer a problem: @HNA_FINDING@",
    "What the Harvester node agent complained about earlier is gone. When it began:\n\
     \n    journalctl -u harvester-node-agent HNA_FINDING=@HNA_FINDING@\n";

    /// The VM moved to another host.
    MIGRATED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a104",
    "This VM moved from Harvester host @HNA_HOST_OLD@ to @HNA_HOST@",
    "It was live-migrated, or it was stopped and started elsewhere. The labels of the\n\
     Node follow, unless the configuration says otherwise (topology.on_change). Pods\n\
     that run already are not moved by that.\n\
     \n    harvester-node-agent status\n";

    /// The labels of the Node were written.
    LABELLED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a105",
    "The labels of this machine's Node were changed",
    "@MESSAGE@\n\
     \n\
     The scheduler uses the new region and zone for pods that it places from now on.\n\
     Where the values come from:\n\
     \n    harvester-node-agent whoami\n";

    /// The configuration was read again.
    RELOADED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a107",
    "The Harvester node agent read its configuration again",
    "What is in force now, and from which file each value comes:\n\
     \n    harvester-node-agent config show\n";

    /// The configuration at the start has faults.
    CONFIGURATION_REFUSED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10f",
    "The Harvester node agent cannot use its configuration",
    "It does nothing until the faults are mended, and then begins by itself. The\n\
     faults, with file and line:\n\
     \n    harvester-node-agent config check\n";

    /// A sign of a move was seen.
    SIGN = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a109",
    "A sign of a live migration: @HNA_TRIGGER@",
    "Something in this machine looked as it does after a live migration. For a minute\n\
     the agent asks Harvester again and again where the VM runs. A record says how it\n\
     ended: the VM moved, or it did not, or nobody answered.\n";

    /// A sign of a move turned out to be none, or nobody could tell.
    UNCONFIRMED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10a",
    "A sign of a live migration was not confirmed",
    "@MESSAGE@\n\
     \n\
     The labels of the Node stay. A restore from a saved state, or a restart of the\n\
     program on the host that holds a port of this VM, gives the same sign. If no API\n\
     answered, the findings tell why:\n\
     \n    harvester-node-agent status\n";

    /// A host name of the machine changed.
    RENAMED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10b",
    "A host name of this machine changed",
    "@MESSAGE@\n\
     \n\
     CSI driver, cloud provider and Rancher expect the name of the Harvester VM. To see\n\
     all names side by side:\n\
     \n    harvester-node-agent whoami\n";

    /// The wall clock was set.
    CLOCK_SET = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10c",
    "The wall clock was set",
    "KubeVirt does that after a live migration, and so does whatever keeps the time of\n\
     this machine. By itself it means nothing; the agent takes it as a reason to look.\n";

    /// The guest agent's unit was started.
    UNIT_STARTED = "0d4c1a7e5f6b4c57a0b2f0c6d1f7a10d",
    "systemd was asked to start QEMU's guest agent",
    "The configuration asks for it (qemu_guest_agent.auto_start = true): the unit was installed,\n\
     enabled or static, and had stood still. This is tried once in ten minutes at most.\n\
     \n    systemctl status qemu-guest-agent\n";

    /// Records that the journal did not take.
    RECORDS_LOST = "e8d7a7fe0b8748ff93d3f26f38cc20de",
    "Records of the Harvester node agent were lost",
    "The journal did not take them in time. The agent went on without waiting for it.\n\
     What it knows now:\n\
     \n    harvester-node-agent status\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_as_the_journal_wants_them_and_each_is_used_once() {
        let mut seen = BTreeSet::new();
        for kind in ALL {
            assert_eq!(kind.id.len(), 32, "{}", kind.id);
            assert!(
                kind.id
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
                "{}",
                kind.id
            );
            assert!(seen.insert(kind.id), "{} is used twice", kind.id);
        }
    }

    #[test]
    fn texts_fit_a_terminal() {
        for kind in ALL {
            assert!(!kind.subject.contains('\n') && !kind.subject.ends_with('.'));
            assert!(kind.explanation.ends_with('\n'), "{}", kind.subject);
            for line in kind.explanation.lines() {
                // `journalctl -x` puts three characters before each.
                assert!(line.len() <= 85, "{line}");
            }
        }
    }
}
