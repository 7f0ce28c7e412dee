// SPDX-License-Identifier: Apache-2.0
//! Makes all decisions of one round, in order. They are made once more when labels were written in it.

use std::time::Duration;

use super::action::{Action, DesiredCondition, HookRun, NodeEvents, Write};
use super::doing::{Doing, Labeling};
use super::guest_agent::GuestAgentHealth;
use super::input::{Now, RunKind, Scene};
use super::label_state::{self, LabelState};
use super::labeling::labeling;
use super::labels::LabelPlan;
use super::memory::{Memory, Migration};
use super::next::next_round;
use super::patches::conditions_patch;
use super::registration::{self, Registration};
use super::resync::{self, ProbeResult, WindowEnd, WindowOutcome};
use super::scheduled_events::ScheduledEvent;
use super::{conditions, events, findings, guest_agent};
use crate::catalog::{Code, Finding};
use crate::config::Settings;
use crate::facts::names::HostName;
use crate::facts::trigger::{Next, Reasons, Scope, Trigger};
use crate::facts::vmi::Vmi;

/// The time for which reads may fail before a condition with status `True` becomes `Unknown`. A failover of Harvester's VIP or a
/// restart of an API server takes less time.
const CONDITION_GRACE: Duration = Duration::from_secs(60);

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
    /// The labels for a kubelet that starts, if it gets any.
    pub registration: Option<Registration>,
    /// The state of the names, as a condition.
    pub identity: DesiredCondition,
    /// The state of the labels.
    pub sync: LabelState,
    /// What the agent does about the labels.
    pub doing: Doing,
    /// The label changes and the skipped labels.
    pub labels: LabelPlan,
    /// The migration that this decision detected.
    pub moved: Option<Migration>,
    /// How long the last migration interrupted the guest, in the round that estimated it.
    pub interruption: Option<Duration>,
    /// The end of a re-sync window, if it ended.
    pub window_end: Option<WindowEnd>,
    /// The time, since the start of the process, since which a watch must have delivered something. Other watches are
    /// re-established.
    pub verify: Option<Duration>,
    /// The first hint of the migration whose labels are not written yet, or are written in this round, or what showed it.
    pub cause: Option<(Trigger, Duration)>,
    /// The next scheduled round.
    pub next: Next,
    /// The new states of scheduled events, in order.
    pub scheduled: Vec<ScheduledEvent>,
    /// The state to remember.
    pub memory: Memory,
}

/// Makes all decisions and returns the plan.
pub fn plan(
    settings: &Settings,
    seen: Scene<'_>,
    mut memory: Memory,
    run_kind: RunKind,
    now: Now,
) -> Plan {
    let own = memory.reporters.without_node_of_another_machine(seen, now);
    memory.note_pod(seen, now);
    let seen = Scene {
        observation: own.as_ref().unwrap_or(seen.observation),
        placement: seen.placement.filter(|_| !memory.is_host_contradicted(now)),
        ..seen
    };
    let mut window_end = admit(&mut memory, seen, run_kind);
    memory.note_names(
        settings,
        seen.identity,
        seen.reasons.scope.contains(Scope::VM),
        now,
    );
    let interruption = memory.note_clock(seen.observation.clock, now);
    let moved = memory.remember(seen, now);
    let scheduled = match run_kind {
        RunKind::Daemon => memory
            .scheduled
            .observe(seen.identity, &seen.observation.vm, now),
        RunKind::Once => Vec::new(),
    };
    let agent = &seen.observation.guest_agent;
    let host = seen.identity.vmi().map(|vmi| &vmi.guest_agent);
    memory.guest_agent.note(agent, host, now.uptime);
    let wanted = labeling(settings, seen, &mut memory, run_kind, now);
    // A temporary refusal changes no condition.
    let refusal = memory.refusal(Write::Node);
    let refusal = refusal.filter(|refused| !refused.passing);
    let refusal = refusal.map(|refused| refused.text.as_str());
    let sync = label_state::state(seen, &wanted, refusal);
    let health = memory.guest_agent.health(now.uptime);
    let identity = conditions::identity(seen.identity);
    let mut actions = hooks(seen, &scheduled);
    if let Doing::Writing(patch) = &wanted.doing {
        actions.push(Action::PatchNode(patch.clone()));
    }
    actions.extend(start_of_unit(settings, seen, &memory, now));
    if wanted.doing.is_at_rest() {
        memory.forget_refusal(Write::Node);
    }
    let are_reports_paused = memory.report_writes.left(now.uptime).is_some();
    let node = seen.observation.node.known();
    let node = node.filter(|_| !are_reports_paused);
    let mut described = None;
    if let Some(node) = node {
        let shown = (&identity, &sync);
        let conditions = desired_conditions(settings, shown, &wanted, &memory, run_kind, now);
        let patch = conditions_patch(settings, node, conditions).map(Action::PatchConditions);
        // A round that cannot tell whether a change is wanted forgets no refusal.
        if patch.is_none() && sync != LabelState::Pending {
            memory.forget_refusal(Write::Conditions);
        }
        described = patch.filter(|patch| memory.held(patch, seen, now).is_none());
    }
    let (findings, consequences) = findings::raise(settings, seen, &wanted, &sync, &memory, now);
    memory.note_findings(&findings);
    if let (Some(node), RunKind::Daemon, true) = (node, run_kind, settings.report.events) {
        let is_unread = seen.placement.is_none();
        let news = memory.announced.news(&findings, is_unread, now.uptime);
        let announce = [events::scheduled(&scheduled), news].concat();
        if !announce.is_empty() {
            let node = node.name.clone();
            actions.push(Action::SendEvents(NodeEvents { node, announce }));
        }
    }
    // The last of a round.
    actions.extend(described);
    let found = probe_result(seen, &wanted.doing, &sync, &memory);
    // The time to the labels counts from the first hint, also while the API refuses them.
    if found.is_settled && sync.code() != Some(Code::NodeWriteFailed) {
        memory.cause = None;
    }
    let mut verify = None;
    if let Some(window) = memory.window.take() {
        let step = window.step(found, now);
        verify = step.verify;
        match step.state {
            Ok(window) => memory.window = Some(window),
            Err(end) => window_end = Some(end),
        }
    }
    let next = next_round(settings, seen, &mut memory, &wanted.doing, now);
    Plan {
        actions,
        guest_agent: health,
        findings,
        consequences,
        registration: registration(settings, seen, &wanted),
        identity,
        sync,
        labels: wanted.labels,
        moved,
        interruption,
        window_end,
        verify,
        cause: memory.cause,
        next,
        scheduled,
        doing: wanted.doing,
        memory,
    }
}

/// Returns the labels for a kubelet that starts.
fn registration(settings: &Settings, seen: Scene<'_>, wanted: &Labeling) -> Option<Registration> {
    // While the labels of the Node are not changed, the kubelet gets the labels that the Node has.
    let none = LabelPlan::default();
    let labels = if wanted.is_left_alone() {
        &none
    } else {
        &wanted.labels
    };
    registration::decide(settings, seen, labels)
}

/// Returns the runs of hooks. They run beside the writes, which may take long.
fn hooks(seen: Scene<'_>, scheduled: &[ScheduledEvent]) -> Vec<Action> {
    let node = seen.observation.node.known();
    let run = |event: &ScheduledEvent| HookRun {
        event: event.clone(),
        vm: seen.identity.vmi().map(Vmi::reference),
        node: node.map(|node| node.name.to_string()),
    };
    let runs = scheduled.iter().map(run);
    runs.map(Action::RunHooks).collect()
}

/// Returns the start of the guest agent's unit. It comes after the labels: the bus may take seconds.
fn start_of_unit(
    settings: &Settings,
    seen: Scene<'_>,
    memory: &Memory,
    now: Now,
) -> Option<Action> {
    let agent = &seen.observation.guest_agent;
    let unit = guest_agent::unit_to_start(agent, &memory.guest_agent, now.uptime);
    let unit = unit.filter(|_| settings.guest_agent.start)?;
    Some(Action::StartUnit(unit.to_owned()))
}

/// Returns the conditions that describe the state; none while the state of the labels is not final. While failed reads may pass, none
/// becomes `Unknown`.
fn desired_conditions(
    settings: &Settings,
    (identity, sync): (&DesiredCondition, &LabelState),
    wanted: &Labeling,
    memory: &Memory,
    run_kind: RunKind,
    now: Now,
) -> Vec<DesiredCondition> {
    if *sync == LabelState::Pending {
        return Vec::new();
    }
    let are_names_final = memory.names_left(settings, now).is_none();
    let is_backing_off = matches!(wanted.doing, Doing::BackingOff(_));
    let may_be_over = wanted.conflict.is_some() && !is_backing_off;
    let conditions = [
        are_names_final.then(|| identity.clone()),
        conditions::topology(sync)
            .filter(|_| !may_be_over || sync.code() == Some(Code::NodeWriteFailed)),
        memory.guest_agent.condition(now.uptime),
    ];
    let lifecycle = match (settings.report.lifecycle_conditions, run_kind) {
        (true, RunKind::Daemon) => conditions::lifecycle(memory.scheduled.open()).to_vec(),
        _ => Vec::new(),
    };
    let is_in_grace = run_kind == RunKind::Daemon
        && memory
            .unread_since
            .is_some_and(|since| now.uptime.saturating_sub(since) < CONDITION_GRACE);
    let conditions = conditions.into_iter().flatten().chain(lifecycle);
    conditions
        .filter(|wanted| !(is_in_grace && wanted.status == "Unknown"))
        .collect()
}

/// Returns what this round means for an open re-sync window.
fn probe_result<'a>(
    seen: Scene<'a>,
    doing: &Doing,
    sync: &LabelState,
    memory: &Memory,
) -> ProbeResult<'a> {
    let is_unwritten = matches!(doing, Doing::Writing(_));
    let is_host_late = memory.is_host_late(seen);
    ProbeResult {
        host: seen
            .placement
            .filter(|_| !is_host_late)
            .map(|placement| &placement.host),
        is_answered: !is_host_late && (seen.placement.is_some() || seen.identity.vmi().is_some()),
        is_read: seen.reasons.scope.contains(Scope::VM),
        is_settled: sync.is_final() && !is_unwritten,
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
fn admit(memory: &mut Memory, seen: Scene<'_>, run_kind: RunKind) -> Option<WindowEnd> {
    if run_kind == RunKind::Once {
        return None;
    }
    let before = memory.window.take();
    let host = memory.last_host(seen);
    memory.window = resync::admit(before, seen.reasons.hint, host.as_ref(), memory.moved);
    let (trigger, _) = seen.reasons.hint.filter(|_| memory.window.is_none())?;
    let Migration { from, to, .. } = memory.last_migration.as_ref()?;
    let (from, to) = (HostName::parse(from).ok()?, HostName::parse(to).ok()?);
    Some(WindowEnd {
        trigger,
        from: Some(from.clone()),
        outcome: WindowOutcome::Confirmed { from, to },
        took: Duration::ZERO,
        reads: 0,
    })
}
