// SPDX-License-Identifier: Apache-2.0
//! Decisions: pure functions of observations, configuration, remembered state, and time.
//!
//! Each file contains one decision. [`plan`] calls them in order and collects the results. It does no I/O, reads no clock and logs
//! nothing, so that a test can pass any input.
//!
//! To add a decision: add a file with its function and result type, and a line in [`plan`].

pub mod action;
pub mod conditions;
pub mod conflict;
pub mod events;
pub mod findings;
pub mod guest_agent;
pub mod identity;
mod interruption;
pub mod label_state;
pub mod labels;
pub mod memory;
pub mod name_match;
mod next;
pub mod node_ownership;
pub mod patches;
pub mod placement;
pub mod read_plan;
pub mod registration;
pub mod resync;
pub mod schedule;
pub mod scheduled_events;
pub mod unread;
pub mod watch_cuts;
pub mod write_results;

use std::time::Duration;

use time::UtcDateTime;

use crate::catalog::{Code, Finding};
use crate::config::Settings;
use crate::facts::names::HostName;
use crate::facts::observation::Observation;
use crate::facts::trigger::{Next, Reasons, Trigger};
use crate::facts::vmi::Vmi;
use guest_agent::GuestAgentHealth;
use identity::Identity;
use label_state::LabelState;
use labels::{LabelPlan, Owned, plan_labels};
use next::{next_round, settling};
use patches::{conditions_patch, node_patch};
use placement::Placement;
use registration::{FileChange, Registration};
use resync::{ProbeResult, WindowId, WindowOutcome};
use schedule::Random;
use scheduled_events::ScheduledEvent;

pub use action::{
    Action, ConditionsPatch, HookRun, NodeEvents, NodePatch, Refusal, Transition, Write,
    WriteResult,
};
pub use memory::{Memory, Migration, Refused};
pub use write_results::{FollowUp, learn};

/// The prefix of our annotations on the Node.
pub const ANNOTATION_PREFIX: &str = "node-agent.harvesterhci.io/";

/// The VM, as `namespace/name`.
pub const ANNOTATION_VM: &str = "node-agent.harvesterhci.io/vm";
/// The host for which the labels were written.
pub const ANNOTATION_HOST: &str = "node-agent.harvesterhci.io/host";
/// The source of the region and zone.
pub const ANNOTATION_SOURCE: &str = "node-agent.harvesterhci.io/source";
/// The labels that we own, as a JSON object of keys with the value that we wrote.
pub const ANNOTATION_OWNED: &str = "node-agent.harvesterhci.io/owned-labels";
/// The last migration, as a JSON object with `from`, `to` and `at`.
pub const ANNOTATION_MIGRATION: &str = "node-agent.harvesterhci.io/last-migration";

/// The time for which reads may fail before a condition with status `True` becomes `Unknown`. A failover of Harvester's VIP or a
/// restart of an API server takes less time.
const CONDITION_GRACE: Duration = Duration::from_secs(60);

/// The time of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Now {
    /// The time since the start of the process, from a monotonic clock.
    pub uptime: Duration,
    /// The wall clock, used only for texts and expiration.
    pub wall: UtcDateTime,
    /// A new random number.
    pub random: Random,
}

/// The kind of run that a decision is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunKind {
    /// The daemon: temporary failures change no condition, and Harvester gets time to write its annotations.
    Daemon,
    /// A single round.
    Once,
}

/// The writes, the findings and the next round.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The writes, in order.
    pub actions: Vec<Action>,
    /// The health of the guest agent.
    pub guest_agent: GuestAgentHealth,
    /// The findings, the most severe first, without those that another finding explains.
    pub findings: Vec<Finding>,
    /// The findings that another one explains, which only `doctor` lists.
    pub consequences: Vec<Finding>,
    /// The labels for a kubelet that starts.
    pub registration: Registration,
    /// The state of the labels.
    pub sync: LabelState,
    /// The label changes and the skipped labels.
    pub labels: LabelPlan,
    /// The migration that this decision detected.
    pub moved: Option<Migration>,
    /// How long the last migration interrupted the guest, in the round that estimated it.
    pub interruption: Option<Duration>,
    /// The end of a re-sync window, if it ended.
    pub window_end: Option<WindowId>,
    /// The time, since the start of the process, since which a watch must have delivered something. Other watches are
    /// re-established.
    pub verify: Option<Duration>,
    /// The next scheduled round.
    pub next: Next,
    /// The new states of scheduled events, in order.
    pub scheduled: Vec<ScheduledEvent>,
    /// The state to remember.
    pub memory: Memory,
}

/// The inputs of a decision: one observation and its evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The reasons and the scope of this round.
    pub reasons: Reasons,
    /// The observed facts.
    pub observation: &'a Observation,
    /// The identity that follows from them.
    pub identity: &'a Identity,
    /// The host of the VM and its topology.
    pub placement: Option<&'a Placement>,
}

impl Scene<'_> {
    /// Reports whether the host is known only from the files of the pod.
    fn is_by_pod(self) -> bool {
        let located = placement::locate(self.identity, self.observation);
        located.is_some_and(|located| located.host_source.is_pod())
    }
}

/// Makes all decisions and returns the plan.
pub fn plan(
    settings: &Settings,
    seen: Scene<'_>,
    memory: &Memory,
    run_kind: RunKind,
    now: Now,
) -> Plan {
    let mut memory = memory.clone();
    let own = memory.reporters.without_node_of_another_machine(seen, now);
    memory.note_pod(seen, now);
    let seen = Scene {
        observation: own.as_ref().unwrap_or(seen.observation),
        placement: seen.placement.filter(|_| !memory.is_host_contradicted(now)),
        ..seen
    };
    let Scene {
        observation,
        identity,
        placement,
        reasons,
    } = seen;
    let known = admit(&mut memory, seen, run_kind);
    memory.note_schedule(seen, now);
    memory.note_names(settings, identity, reasons.scope.vm, now);
    memory.is_doubtful &= !reasons.scope.vm;
    let interruption = memory.note_clock(observation.clock, now);
    let moved = memory.remember(seen, now);
    let scheduled = match run_kind {
        RunKind::Daemon => memory
            .scheduled
            .observe(identity, &seen.observation.vm, now),
        RunKind::Once => Vec::new(),
    };
    let agent = &observation.guest_agent;
    let host = identity.vmi().map(|vmi| &vmi.guest_agent);
    memory.guest_agent.note(agent, host, now.uptime);
    let start = guest_agent::unit_to_start(agent, &memory.guest_agent, now.uptime);
    let start = start
        .filter(|_| settings.guest_agent.start)
        .map(str::to_owned);
    let node = observation.node.known();
    let settling = match run_kind {
        RunKind::Daemon => settling(settings, seen, &memory, now),
        RunKind::Once => None,
    };
    // The Node may belong to the other VM.
    let is_of_another = identity.is_named_as_another();
    let labeled = placement.filter(|_| settling.is_none() && !is_of_another);
    let mut labels = LabelPlan::default();
    if let (Some(node), Some(placement)) = (node, labeled) {
        let labeled_host = node.annotations.get(ANNOTATION_HOST).map(String::as_str);
        let owned = Owned::parse(node.annotations.get(ANNOTATION_OWNED));
        labels = plan_labels(settings, node, placement, labeled_host, &owned);
    }
    let mut patch = None;
    let mut stand_down = None;
    if let (Some(node), Some(placement)) = (node, labeled) {
        patch = node_patch(settings, node, identity, placement, &labels, &memory);
        stand_down = memory
            .conflicts
            .judge(node, &placement.host, patch.as_ref(), now.uptime)
            .cloned();
    }
    // A writer that reverts each attempt is one conflict, and is reported as one.
    let retried = memory.conflicts.retried().filter(|_| labeled.is_some());
    let conflict = stand_down.clone().or(retried.cloned());
    let is_retried = conflict.is_some() && stand_down.is_none();
    // A source that changes constantly must not cause constant writes.
    let are_reports_paused = memory.report_writes.left(now.uptime).is_some();
    memory.withheld = memory.writes.left(now.uptime).filter(|_| patch.is_some());
    let inputs = label_state::Inputs {
        identity,
        placement,
        observation: seen.observation,
        labels: &labels,
        settling: settling.is_some() || memory.withheld.is_some(),
        stand_down: stand_down.as_ref(),
        // A temporary refusal changes no condition.
        refusal: memory
            .refusal(Write::Node)
            .filter(|refused| !refused.passing)
            .map(|refused| refused.text.as_str()),
    };
    let sync = label_state::state(&inputs);
    // While the labels of the Node are not changed, the file keeps the labels that the Node has.
    let none = LabelPlan::default();
    let is_left_alone = stand_down.is_some() || memory.withheld.is_some();
    let changed = if is_left_alone { &none } else { &labels };
    let reloaded = memory.reloaded.map(|at| now.uptime.saturating_sub(at));
    let (registration, changes) = registration::decide(settings, seen, changed, reloaded);
    if !changes.is_empty() {
        // A new edit must be loaded at once, whenever the previous one was.
        let is_missed = changes.iter().all(FileChange::is_reload);
        memory.reloaded = is_missed.then_some(now.uptime);
    }
    if changes.is_empty() && !registration::is_unloaded(observation) {
        memory.unwritten_file = None;
    }
    let mut actions = Vec::from_iter(start.map(Action::StartUnit));
    // Hooks run beside the other writes, which may take long.
    actions.extend(scheduled.iter().map(|event| {
        Action::RunHooks(HookRun {
            event: event.clone(),
            vm: identity.vmi().map(Vmi::reference),
            node: node.map(|node| node.name.to_string()),
        })
    }));
    // Before the Node: a kubelet that starts in between must not set the previous labels of the Node. systemd may take seconds to
    // reload, which the Node does not wait for.
    let (reload, edits): (Vec<_>, Vec<_>) = changes.into_iter().partition(FileChange::is_reload);
    actions.extend(edits.into_iter().map(Action::EditLabelFile));
    if !is_left_alone {
        actions.extend(patch.map(Action::PatchNode));
    }
    actions.extend(
        node.filter(|_| !are_reports_paused)
            .and_then(|node| events::scheduled(settings, node, &scheduled))
            .map(Action::SendEvents),
    );
    if let Some(node) = node.filter(|_| sync != LabelState::Pending && !are_reports_paused) {
        let names_quiet = memory.names_left(settings, now).is_none();
        let wanted = [
            names_quiet.then(|| conditions::identity(identity)),
            conditions::topology(&sync).filter(|_| !is_retried),
            memory.guest_agent.condition(now.uptime),
        ];
        let lifecycle = match (settings.report.lifecycle_conditions, run_kind) {
            (true, RunKind::Daemon) => conditions::lifecycle(memory.scheduled.open()).to_vec(),
            _ => Vec::new(),
        };
        let is_daemon = run_kind == RunKind::Daemon
            && memory
                .unread_since
                .is_some_and(|since| now.uptime.saturating_sub(since) < CONDITION_GRACE);
        let wanted = wanted.into_iter().flatten().chain(lifecycle).collect();
        actions.extend(
            conditions_patch(settings, node, wanted, is_daemon).map(Action::PatchConditions),
        );
    }
    actions.extend(reload.into_iter().map(Action::EditLabelFile));
    // A round that cannot tell whether a change is wanted forgets no refusal.
    let is_decided = node.is_some() && placement.is_some() && settling.is_none();
    let is_described = node.is_some() && sync != LabelState::Pending && !are_reports_paused;
    for (write, is_told) in [
        (Write::Node, is_decided && !is_left_alone),
        (Write::Conditions, is_described),
    ] {
        if is_told && actions.iter().all(|action| action.write() != write) {
            memory.forget_refusal(write);
        }
    }
    // The same write is not sent before its retry is due, whatever caused this round.
    if !reasons.scope.refused {
        let is_due = |refused: &Refused| refused.due <= now.uptime;
        let waiting = memory.refusals.iter().filter(|refused| !is_due(refused));
        actions.retain(|action| !waiting.clone().any(|refused| refused.action == *action));
    }
    let (findings, consequences) = findings::raise(
        settings,
        seen,
        &labels,
        &sync,
        conflict.as_ref(),
        &memory,
        now,
    );
    memory.note_findings(&findings);
    let is_unwritten = actions.iter().any(|action| action.write() == Write::Node);
    let is_host_late = memory.is_host_late(seen);
    let found = ProbeResult {
        host: placement
            .filter(|_| !is_host_late)
            .map(|placement| &placement.host),
        is_answered: !is_host_late && (placement.is_some() || identity.vmi().is_some()),
        is_read: reasons.scope.vm,
        is_settled: sync.is_final() && !is_unwritten,
    };
    // The time to the labels counts from the first hint, also while the API refuses them.
    if found.is_settled && sync.code() != Some(Code::NodeWriteFailed) {
        memory.cause = None;
    }
    let (window_end, verify) = memory.step_window(found, now);
    let window_end = window_end.or(known);
    let next = next_round(settings, seen, &mut memory, settling, now);
    Plan {
        actions,
        guest_agent: memory.guest_agent.health(now.uptime),
        findings,
        consequences,
        registration,
        sync,
        labels,
        moved,
        interruption,
        window_end,
        verify,
        next,
        scheduled,
        memory,
    }
}

/// Returns the migration hint for which a re-sync window will be opened. It is reported before any read, because reads after a
/// migration may take long.
pub fn new_hint(memory: &Memory, reasons: &Reasons) -> Option<Trigger> {
    let before = memory.window.clone();
    let opened = before.as_ref().map(|window| window.opened);
    let window = resync::admit(before, reasons.hint, None, memory.moved)?;
    (opened != Some(window.opened)).then_some(window.trigger)
}

/// Opens a re-sync window if there is a migration hint. Returns its end at once if the hint belongs to a migration that is known.
fn admit(memory: &mut Memory, seen: Scene<'_>, run_kind: RunKind) -> Option<WindowId> {
    if run_kind == RunKind::Once {
        return None;
    }
    let before = memory.window.take();
    let host = memory.last_host(seen);
    memory.window = resync::admit(before, seen.reasons.hint, host.as_ref(), memory.moved);
    let (trigger, _) = seen.reasons.hint.filter(|_| memory.window.is_none())?;
    let Migration { from, to, .. } = memory.last_migration.as_ref()?;
    let (from, to) = (HostName::parse(from).ok()?, HostName::parse(to).ok()?);
    Some(WindowId {
        trigger,
        from: Some(from.clone()),
        outcome: WindowOutcome::Confirmed { from, to },
        took: Duration::ZERO,
        reads: 0,
    })
}

/// Formats a time as RFC 3339 with seconds, like Kubernetes.
pub fn rfc3339(time: UtcDateTime) -> String {
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.as_hms();
    format!(
        "{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z",
        u8::from(month)
    )
}

/// Formats a time as RFC 3339 with microseconds, like the type `MicroTime` of Kubernetes.
pub fn rfc3339_micros(time: UtcDateTime) -> String {
    let seconds = rfc3339(time);
    format!(
        "{}.{:06}Z",
        seconds.trim_end_matches('Z'),
        time.microsecond()
    )
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
