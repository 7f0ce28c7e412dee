// SPDX-License-Identifier: Apache-2.0
//! Makes all decisions of one round, in order. What is decided about the Node is decided again when labels were written in it.

use std::time::Duration;

use super::action::{Action, DesiredCondition, HookRun, NodeEvents, Write};
use super::doing::{Doing, Labeling};
use super::fast_poll::{self, ProbeResult, WindowEnd, WindowOutcome};
use super::guest_agent::GuestAgentHealth;
use super::input::Scene;
use super::label_state::{self, LabelState};
use super::labeling::labeling;
use super::labels::LabelPlan;
use super::memory::{Memory, Migration};
use super::next::next_round;
use super::patches::conditions_patch;
use super::registration::{self, Registration};
use super::scheduled_events::ScheduledEvent;
use super::{conditions, events, findings, guest_agent};
use crate::catalog::{Code, Finding};
use crate::facts::names::HostName;
use crate::facts::node::Node;
use crate::facts::observation::Observation;
use crate::facts::trigger::{Next, Reasons, Scope, Trigger};
use crate::facts::vmi::Vmi;

/// The time for which reads may fail before a condition with status `True` becomes `Unknown`. A failover of Harvester's VIP or a
/// restart of an API server takes less time.
const CONDITION_GRACE: Duration = Duration::from_secs(60);

/// The maximum number of changes of labels in one round: as many as show that a webhook reverts them.
const PATCHES_MAX: usize = 3;

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
    /// The end of a fast-poll window, if it ended.
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

/// Makes all decisions and returns the plan. What was observed is remembered first, once in a round.
pub fn plan(seen: Scene<'_>, mut memory: Memory) -> Plan {
    let now = seen.now;
    memory.note_pod(seen);
    let mut own = None;
    let seen = believed(&mut memory, seen, &mut own);
    let window_end = admit(&mut memory, seen);
    memory.note_names(seen);
    let interruption = memory.note_clock(seen.observation.clock, now);
    let moved = memory.remember(seen);
    let (vm, tracker) = (&seen.observation.vm, &mut memory.scheduled);
    let scheduled = match seen.is_daemon {
        true => tracker.observe(seen.identity, vm, now),
        false => Vec::new(),
    };
    let agent = &seen.observation.guest_agent;
    let host = seen.identity.vmi().map(|vmi| &vmi.guest_agent);
    memory.guest_agent.note(agent, host, now.uptime);
    let mut plan = Plan {
        actions: hooks(seen, &scheduled),
        guest_agent: memory.guest_agent.health(now.uptime),
        findings: Vec::new(),
        consequences: Vec::new(),
        registration: None,
        identity: conditions::identity(seen.identity),
        sync: LabelState::Pending,
        doing: Doing::Undecided,
        labels: LabelPlan::default(),
        moved,
        interruption,
        window_end,
        verify: None,
        cause: None,
        next: Next {
            after: seen.settings.timing.poll,
            trigger: Trigger::Timer,
            scope: Scope::KNOWN,
        },
        scheduled,
        memory,
    };
    plan.decide(seen);
    plan
}

/// Returns what is believed of the facts: not the Node of another machine, kept out of `own`, nor a host that the VM has left.
pub(super) fn believed<'a>(
    memory: &mut Memory,
    seen: Scene<'a>,
    own: &'a mut Option<Observation>,
) -> Scene<'a> {
    *own = memory.reporters.without_node_of_another_machine(seen);
    let is_contradicted = memory.is_host_contradicted(seen.now);
    Scene {
        observation: own.as_ref().unwrap_or(seen.observation),
        placement: seen.placement.filter(|_| !is_contradicted),
        ..seen
    }
}

impl Plan {
    /// Decides what to do about the labels, then what to say about the Node as it is, and when the next round is.
    pub(super) fn decide(&mut self, seen: Scene<'_>) {
        let (settings, now) = (seen.settings, seen.now);
        let wanted = labeling(seen, &mut self.memory);
        // A temporary refusal changes no condition.
        let refusal = self.memory.refusal(Write::Node);
        let refusal = refusal.filter(|refused| !refused.passing);
        let refusal = refusal.map(|refused| refused.text.as_str());
        self.sync = label_state::state(seen, &wanted, refusal);
        // While changes are withheld, or another writer reverts them, a kubelet that starts gets the labels that the Node has.
        let none = LabelPlan::default();
        let labels = match &wanted.doing {
            Doing::Withheld(_) | Doing::BackingOff(_) => &none,
            _ => &wanted.labels,
        };
        self.registration = registration::decide(seen, labels);

        let is_patch = |action: &&Action| action.write() == Write::Node;
        let patches = self.actions.iter().filter(is_patch).count();
        if let (Doing::Writing(patch), 0..PATCHES_MAX) = (&wanted.doing, patches) {
            self.actions.push(Action::PatchNode(patch.clone()));
        }
        // After the labels: the bus may take seconds.
        let agent = &seen.observation.guest_agent;
        let unit = guest_agent::unit_to_start(agent, &self.memory.guest_agent, now.uptime);
        let unit = unit.filter(|_| settings.guest_agent.start);
        self.actions.extend(unit.map(Action::StartUnit));
        if wanted.doing.is_at_rest() {
            self.memory.forget_refusal(Write::Node);
        }
        let are_reports_paused = self.memory.report_writes.left(now.uptime).is_some();
        let node = seen.observation.node.known();
        let node = node.filter(|_| !are_reports_paused);
        let described = node.and_then(|node| self.describe(seen, node, &wanted));
        (self.findings, self.consequences) =
            findings::raise(seen, &wanted, &self.sync, &self.memory);
        self.memory.note_findings(&self.findings);
        if let (Some(node), true, true) = (node, seen.is_daemon, settings.report.events) {
            let is_unread = seen.placement.is_none();
            let announced = &mut self.memory.announced;
            let news = announced.news(&self.findings, is_unread, now.uptime);
            let announce = [events::scheduled(&self.scheduled), news].concat();
            if !announce.is_empty() {
                let node = node.name.clone();
                let events = NodeEvents { node, announce };
                self.actions.push(Action::SendEvents(events));
            }
        }
        // The last of a round.
        self.actions.extend(described);
        (self.labels, self.doing) = (wanted.labels, wanted.doing);
        self.step_window(seen);
        self.next = next_round(seen, &mut self.memory, &self.doing);
    }

    /// Plans the conditions that describe the state; none while the state of the labels is not final. While failed reads may pass, none
    /// becomes `Unknown`.
    fn describe(&mut self, seen: Scene<'_>, node: &Node, wanted: &Labeling) -> Option<Action> {
        let (sync, memory) = (&self.sync, &mut self.memory);
        let now = seen.now;
        // A round that cannot tell whether a change is wanted forgets no refusal.
        if *sync == LabelState::Pending {
            return None;
        }
        let is_backing_off = matches!(wanted.doing, Doing::BackingOff(_));
        let may_be_over = wanted.conflict.is_some() && !is_backing_off;
        let conditions = [
            memory.are_names_stable().then(|| self.identity.clone()),
            conditions::topology(sync)
                .filter(|_| !may_be_over || sync.code() == Some(Code::NodeWriteFailed)),
            memory.guest_agent.condition(now.uptime),
        ];
        let lifecycle = match seen.settings.report.lifecycle_conditions && seen.is_daemon {
            true => conditions::lifecycle(memory.scheduled.open()).to_vec(),
            false => Vec::new(),
        };
        let unread = memory.unread_since.filter(|_| seen.is_daemon);
        let is_in_grace =
            unread.is_some_and(|since| now.uptime.saturating_sub(since) < CONDITION_GRACE);
        let conditions = conditions.into_iter().flatten().chain(lifecycle);
        let conditions = conditions.filter(|wanted| !(is_in_grace && wanted.status == "Unknown"));
        let patch = conditions_patch(seen, node, conditions.collect());
        let patch = patch.map(Action::PatchConditions);
        if patch.is_none() {
            let lost = memory.lost_events(node);
            memory.forget_refusal(Write::Conditions);
            return lost;
        }
        patch.filter(|patch| !memory.is_held(patch, seen))
    }

    /// Advances an open fast-poll window.
    fn step_window(&mut self, seen: Scene<'_>) {
        let memory = &mut self.memory;
        // While the host is known only from the files of the pod, there is no VM.
        let placement = seen.placement.filter(|_| !memory.is_host_late(seen));
        let is_unwritten = matches!(self.doing, Doing::Writing(_));
        let found = ProbeResult {
            host: placement.map(|placement| &placement.host),
            is_answered: placement.is_some() || seen.identity.vmi().is_some(),
            is_read: seen.reasons.scope.contains(Scope::VM),
            is_settled: self.sync.is_final() && !is_unwritten,
        };
        // The time to the labels counts from the first hint, also while the API refuses them.
        if found.is_settled && memory.refusal(Write::Node).is_none() {
            memory.cause = None;
        }
        self.cause = memory.cause.or(self.cause);
        let Some(window) = &mut memory.window else {
            return;
        };
        let ended = window.step(found, seen.now);
        self.verify = window.verify(ended.is_some(), seen.now).or(self.verify);
        if ended.is_some() {
            memory.window = None;
            self.window_end = ended;
        }
    }
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

/// Returns the migration hint for which a fast-poll window will be opened. It is reported before any read, because reads after a
/// migration may take long.
pub fn new_hint(memory: &Memory, reasons: &Reasons) -> Option<Trigger> {
    let before = memory.window.clone();
    let opened = before.as_ref().map(|window| window.opened);
    let window = fast_poll::admit(before, reasons.hint, None, memory.moved)?;
    (opened != Some(window.opened)).then_some(window.trigger)
}

/// Opens a fast-poll window if there is a migration hint. Returns its end at once if the hint belongs to a migration that is known.
fn admit(memory: &mut Memory, seen: Scene<'_>) -> Option<WindowEnd> {
    if !seen.is_daemon {
        return None;
    }
    let before = memory.window.take();
    let host = memory.last_host(seen);
    memory.window = fast_poll::admit(before, seen.reasons.hint, host.as_ref(), memory.moved);
    let (trigger, _) = seen.reasons.hint.filter(|_| memory.window.is_none())?;
    let last = memory.last_migration.as_ref()?;
    Some(WindowEnd {
        trigger,
        from: HostName::parse(&last.from).ok(),
        outcome: WindowOutcome::Confirmed,
        took: Duration::ZERO,
        reads: 0,
    })
}
