// SPDX-License-Identifier: Apache-2.0
//! What is remembered from one decision to the next.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::guest_agent;
use super::identity::{Identity, NameKind};
use super::rival::Rivalry;
use super::window::{Epoch, Found, Window};
use super::{ANNOTATION_HOST, Now, Seen, Write, rfc3339, trouble};
use crate::config::Settings;
use crate::facts::names::{HostName, VmName};
use crate::facts::vmi::Vmi;
use crate::findings::Finding;

/// What is remembered from one decision to the next.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// Our own instance when it was last read; names are judged against it while the API is away.
    pub last_vmi: Option<Vmi>,
    /// The other instances of that time: a name of theirs stays dangerous while the API is away.
    pub last_others: Vec<VmName>,
    /// The host that ran us when it was last read, and since when we know of it.
    pub host: Option<(HostName, Duration)>,
    /// When the last move was seen, since the start of the process.
    pub moved: Option<Duration>,
    /// The re-sync window that is open after a sign of a move.
    pub window: Option<Window>,
    /// The host names when they were last read.
    pub names: Option<HostNames>,
    /// Since when Harvester cannot be read.
    pub unread_since: Option<Duration>,
    /// Decisions in a row that wait for something passing.
    pub failures: u32,
    /// Why our last change of the Node was refused, until it is accepted or not wanted any more.
    pub refusal: Option<Refused>,
    /// The last migration.
    pub last_migration: Option<Migration>,
    /// Who writes the same labels.
    pub rivalry: Rivalry,
    /// QEMU's guest agent.
    pub guest_agent: guest_agent::Memory,
}

/// The host names of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNames {
    names: Vec<String>,
    /// When they changed, since the start of the process, if they did while we looked.
    changed: Option<Duration>,
    /// Whether they are complained about.
    are_wrong: bool,
}

/// A change of our Node that the API refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Which change.
    pub write: Write,
    /// One line for people.
    pub text: String,
    /// Whether the same change may be accepted later, with nothing changed here.
    pub passing: bool,
    /// How long the server asked us to stay away.
    pub retry_after: Option<Duration>,
}

/// A move from one host to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// The host before.
    pub from: String,
    /// The host after.
    pub to: String,
    /// When the agent saw it, RFC 3339.
    pub at: String,
}

impl Memory {
    /// Takes note of where we are and how long reads have failed. Answers a move that was not known before.
    pub(super) fn remember(&mut self, seen: Seen<'_>, now: Now) -> Option<Migration> {
        if trouble(seen).is_empty() {
            self.unread_since = None;
        } else {
            self.unread_since.get_or_insert(now.uptime);
        }
        if let Some(vmi) = seen.identity.vmi() {
            self.last_vmi = Some(vmi.clone());
            let others = seen
                .who
                .candidates
                .known()
                .map(|candidates| candidates.vmis.as_slice())
                .unwrap_or_default();
            self.last_others = others
                .iter()
                .map(|other| other.name.clone())
                .filter(|name| *name != vmi.name)
                .collect();
        }
        let host = seen.placement.map(|placement| placement.host.clone())?;
        let labelled = seen
            .who
            .node
            .known()
            .and_then(|node| node.annotations.get(ANNOTATION_HOST))
            .cloned();
        let before = self.host.as_ref().map(|(host, _)| host.to_string());
        let first = before.is_none();
        if before.as_deref() != Some(host.as_str()) {
            self.host = Some((host.clone(), now.uptime));
        }
        // After a restart the annotation tells where we were: a move while the agent was down is a move as well.
        let from = before.or(labelled).filter(|from| *from != host.as_str())?;
        let known = |last: &Migration| last.from == from && last.to == host.as_str();
        if first && self.last_migration.as_ref().is_some_and(known) {
            return None;
        }
        let migration = Migration {
            from,
            to: host.to_string(),
            at: rfc3339(now.wall),
        };
        self.last_migration = Some(migration.clone());
        self.moved = Some(now.uptime);
        Some(migration)
    }

    /// Takes note of the host names.
    pub(super) fn note_names(&mut self, identity: &Identity, now: Now) {
        let names: Vec<String> = identity
            .names
            .iter()
            .filter(|judged| judged.kind != NameKind::NodeName)
            .map(|judged| judged.name.clone())
            .collect();
        match &mut self.names {
            Some(known) if known.names == names => {}
            Some(known) => {
                known.names = names;
                known.changed = Some(now.uptime);
            }
            None => {
                self.names = Some(HostNames {
                    names,
                    changed: None,
                    are_wrong: false,
                });
            }
        }
    }

    /// Takes note of whether the host names are complained about.
    pub(super) fn note_complaints(&mut self, findings: &[Finding]) {
        if let Some(names) = &mut self.names {
            names.are_wrong = findings.iter().any(|finding| finding.code.is_of_names());
        }
    }

    /// Whether wrong host names are complained about now: they have been quiet, or were wrong before as well.
    pub(super) fn may_complain_about_names(&self, settings: &Settings, now: Now) -> bool {
        let were_wrong = self.names.as_ref().is_some_and(|names| names.are_wrong);
        were_wrong || self.names_left(settings, now).is_none()
    }

    /// How much longer the host names must be quiet before they are complained about. cloud-init and DHCP clients set them
    /// several times in a row.
    pub(super) fn names_left(&self, settings: &Settings, now: Now) -> Option<Duration> {
        let changed = self.names.as_ref()?.changed?;
        let quiet = now.uptime.saturating_sub(changed);
        let left = settings.timing.hostname_debounce.saturating_sub(quiet);
        (!left.is_zero()).then_some(left)
    }

    /// Takes the open window a step on. Answers its end, and since when a watch must have said something.
    pub(super) fn step_window(
        &mut self,
        found: Found<'_>,
        now: Now,
    ) -> (Option<Epoch>, Option<Duration>) {
        let Some(window) = self.window.take() else {
            return (None, None);
        };
        let step = window.step(found, now);
        match step.state {
            Ok(window) => {
                self.window = Some(window);
                (None, step.prove)
            }
            Err(epoch) => (Some(epoch), step.prove),
        }
    }

    /// The host that ran us when that was last known, to this process or to the one that labelled the Node.
    pub(super) fn last_host(&self, seen: Seen<'_>) -> Option<HostName> {
        let labelled = || {
            let annotations = &seen.who.node.known()?.annotations;
            HostName::parse(annotations.get(ANNOTATION_HOST)?).ok()
        };
        self.host
            .as_ref()
            .map(|(host, _)| host.clone())
            .or_else(labelled)
    }
}
