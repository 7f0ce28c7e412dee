// SPDX-License-Identifier: Apache-2.0
//! The state that is kept from one decision to the next.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::guest_agent;
use super::identity::{Identity, NameKind};
use super::next::trouble;
use super::schedule::{self, Phase, Purpose, SEARCH};
use super::{ANNOTATION_HOST, Action, Now, Scene, rfc3339};
use crate::catalogue::{Code, Finding};
use crate::config::Settings;
use crate::decide::conflict::ConflictTracker;
use crate::decide::resync::{ProbeResult, Window, WindowId, WindowOutcome};
use crate::facts::names::{HostName, VmName};
use crate::facts::trigger::Trigger;
use crate::facts::vmi::Vmi;
use crate::sys::escape::one_line;

/// Characters of the name of a host; the annotation that holds it may be anyone's text.
const HOST_MAX: usize = 253;

/// Host names that are never quiet are reported after so many times the quiet time.
const NOISE_MAX: u32 = 10;

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
    /// The re-sync window that is open after a migration hint.
    pub window: Option<Window>,
    /// The first migration hint whose labels are not written yet, and when it arrived.
    pub cause: Option<(Trigger, Duration)>,
    /// Whether a window ended without a move, and nothing was read since.
    pub is_doubtful: bool,
    /// The host names when they were last read.
    pub names: Option<HostNames>,
    /// Since when Harvester cannot be read.
    pub unread_since: Option<Duration>,
    /// Decisions in a row that wait for something passing.
    pub failures: u32,
    /// When it is tried again, since the start of the process.
    pub retry: Option<Duration>,
    /// When everything is read although nothing called for it, since the start of the process.
    pub poll: Option<Duration>,
    /// When the APIs are read because the configuration was read again, since the start of the process.
    pub reload: Option<Duration>,
    /// When duplicates are searched, since the start of the process.
    pub search: Option<Duration>,
    /// Why our last change of the Node was refused, until it is accepted or not wanted any more.
    pub refusal: Option<Refused>,
    /// How many updates of the Node were sent lately.
    pub writes: schedule::WritePace,
    /// How long updates of the Node are withheld, because there were too many.
    pub withheld: Option<Duration>,
    /// Why a file for the kubelet's first labels could not be changed, until it is or need not be.
    pub unwritten_file: Option<String>,
    /// When systemd was last reloaded for a missed reload, since the start of the process.
    pub reloaded: Option<Duration>,
    /// The last migration.
    pub last_migration: Option<Migration>,
    /// Who writes the same labels.
    pub conflicts: ConflictTracker,
    /// QEMU's guest agent.
    pub guest_agent: guest_agent::Memory,
}

/// The host names of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames {
    names: Vec<String>,
    /// While they are not quiet: when they changed first and last, since the start of the process.
    changed: Option<(Duration, Duration)>,
    /// Whether no VM of these names was searched yet.
    is_unsearched: bool,
    /// The findings about them.
    findings: BTreeSet<Code>,
}

/// A change of our Node that the API refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The change.
    pub action: Action,
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
    pub(super) fn remember(&mut self, seen: Scene<'_>, now: Now) -> Option<Migration> {
        if trouble(seen).is_empty() {
            self.unread_since = None;
        } else {
            self.unread_since.get_or_insert(now.uptime);
        }
        if let Some(vmi) = seen.identity.vmi() {
            self.last_vmi = Some(vmi.clone());
            let others = seen
                .observation
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
            .observation
            .node
            .known()
            .and_then(|node| node.annotations.get(ANNOTATION_HOST))
            .map(|host| one_line(host, HOST_MAX).into_owned());
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
        self.cause = self
            .window
            .as_ref()
            .map(|window| (window.trigger, window.opened));
        Some(migration)
    }

    /// Takes note of what this round did that is done at a time of this machine's own.
    pub(super) fn note_schedule(&mut self, seen: Scene<'_>, now: Now) {
        let phase = |purpose| Phase::of(seen.observation.machine.phase(), purpose);
        let scope = seen.reasons.scope;
        if scope.vm && scope.node {
            self.reload = None;
        } else if scope.refused {
            self.reload = Some(now.uptime + schedule::reload_delay(phase(Purpose::Reload)));
        }
        if self.search.is_none() || scope.search {
            let wait = schedule::poll(SEARCH, phase(Purpose::Search), now.uptime, now.random);
            self.search = Some(now.uptime + wait);
        }
    }

    /// Takes note of the host names. `is_searched`: this round searches the VMs that have them.
    pub(super) fn note_names(
        &mut self,
        settings: &Settings,
        identity: &Identity,
        is_searched: bool,
        now: Now,
    ) {
        let names: Vec<String> = identity
            .names
            .iter()
            .filter(|judged| judged.kind != NameKind::NodeName)
            .map(|judged| judged.name.clone())
            .collect();
        let Some(known) = &mut self.names else {
            self.names = Some(HostNames {
                names,
                ..HostNames::default()
            });
            return;
        };
        if known.names != names {
            known.names = names;
            known.is_unsearched = true;
            let first = known.changed.map_or(now.uptime, |(first, _)| first);
            known.changed = Some((first, now.uptime));
        }
        known.is_unsearched &= !is_searched;
        if self.names_left(settings, now).is_none()
            && let Some(known) = &mut self.names
        {
            known.changed = None;
        }
    }

    /// Takes note of the findings about the host names.
    pub(super) fn note_findings(&mut self, findings: &[Finding]) {
        if let Some(names) = &mut self.names {
            let codes = findings.iter().map(|finding| finding.code);
            names.findings = codes.filter(|code| code.is_of_names()).collect();
        }
    }

    /// Whether this finding about host names is raised now: they have been quiet, or it stood before.
    pub(super) fn may_report(&self, code: Code) -> bool {
        self.names
            .as_ref()
            .is_none_or(|names| names.changed.is_none() || names.findings.contains(&code))
    }

    /// How much longer the host names must be quiet before they are reported. cloud-init and DHCP clients set them
    /// several times in a row; two that conflict must not keep them unsaid indefinitely.
    pub(super) fn names_left(&self, settings: &Settings, now: Now) -> Option<Duration> {
        let (first, last) = self.names.as_ref()?.changed?;
        let quiet = settings.timing.hostname_debounce;
        let left = (last + quiet).min(first + quiet * NOISE_MAX);
        let left = left.saturating_sub(now.uptime);
        (!left.is_zero()).then_some(left)
    }

    /// Whether the VMs that have the host names are still to be searched.
    pub(super) fn are_names_unsearched(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.is_unsearched)
    }

    /// Takes the open window a step on. Answers its end, and since when a watch must have said something.
    pub(super) fn step_window(
        &mut self,
        found: ProbeResult<'_>,
        now: Now,
    ) -> (Option<WindowId>, Option<Duration>) {
        let Some(window) = self.window.take() else {
            return (None, None);
        };
        let step = window.step(found, now);
        match step.state {
            Ok(window) => {
                self.window = Some(window);
                (None, step.verify)
            }
            Err(window_end) => {
                self.is_doubtful = !matches!(window_end.outcome, WindowOutcome::Confirmed { .. });
                (Some(window_end), step.verify)
            }
        }
    }

    /// The host that ran us when that was last known, to this process or to the one that labelled the Node.
    pub(super) fn last_host(&self, seen: Scene<'_>) -> Option<HostName> {
        let labelled = || {
            let annotations = &seen.observation.node.known()?.annotations;
            HostName::parse(annotations.get(ANNOTATION_HOST)?).ok()
        };
        self.host
            .as_ref()
            .map(|(host, _)| host.clone())
            .or_else(labelled)
    }
}
