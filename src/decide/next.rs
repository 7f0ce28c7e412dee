// SPDX-License-Identifier: Apache-2.0
//! Schedules the next round if no trigger arrives before, and what it reads: a retry, a read of the fast-poll window, an expected
//! change, or a poll. [`schedule`] computes the delays, and the [`Agenda`](super::agenda::Agenda) has the times.

use std::time::Duration;

use super::agenda::Job;
use super::doing::Doing;
use super::input::Scene;
use super::memory::Memory;
use super::name_match::Verdict;
use super::schedule::{self, Phase, Purpose};
use crate::facts::observation::Coverage;
use crate::facts::trigger::{Next, Scope, Trigger};
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// The reads of both APIs.
const READ: Scope = Scope::VM.union(Scope::NODE);

/// Plans all deadlines. Returns the next round if no trigger arrives before.
pub(super) fn next_round(seen: Scene<'_>, memory: &mut Memory, doing: &Doing) -> Next {
    let now = seen.now;
    plan_reads(seen, memory);
    plan_lists(seen, memory);
    // While the window is open, its schedule is the only one of reads of everything.
    let is_open = |job| job != Job::Poll || memory.window.is_none();
    let planned = memory.agenda.all().filter(|(job, _)| is_open(*job));
    let waits = waits(seen, memory, doing).into_iter();
    let all = planned.chain(waits.filter_map(|(job, due)| Some((job, due?))));
    // Deadlines that have passed are equally early.
    let first = all.min_by_key(|(job, due)| ((*due).max(now.uptime), *job));
    let (job, due) = first.unwrap_or((Job::Poll, now.uptime + seen.settings.timing.poll));
    let (trigger, scope) = reads(job, seen, memory);
    Next {
        after: due.saturating_sub(now.uptime),
        trigger,
        scope,
    }
}

/// Returns the trigger and the reads of a round that is scheduled for a job.
fn reads(job: Job, seen: Scene<'_>, memory: &Memory) -> (Trigger, Scope) {
    let is_node_unread = seen.observation.node.known().is_none();
    match job {
        Job::Window => {
            let mut scope = Scope::VM;
            scope.set(Scope::HOST, !unwatched(seen).is_empty());
            scope.set(Scope::NODE, is_node_unread);
            (Trigger::FastPoll, scope)
        }
        // Nothing from an API that answered. A new credential may fix the failure.
        Job::Retry => {
            let placement = seen.placement;
            let trouble = placement.and_then(|placement| placement.trouble.as_ref());
            let mut scope = Scope::FILES;
            scope.set(Scope::VM, seen.observation.candidates.known().is_none());
            scope.set(Scope::HOST, trouble.is_some());
            scope.set(Scope::NODE, is_node_unread);
            (Trigger::Timer, scope)
        }
        Job::Poll => (Trigger::Timer, Scope::KNOWN),
        Job::Settle | Job::List => (Trigger::Timer, Scope::VM),
        Job::Names if memory.names.is_unsearched => (Trigger::Hostname, Scope::VM),
        Job::Names => (Trigger::Hostname, Scope::NONE),
        Job::Start => (Trigger::Units, Scope::UNITS),
        Job::Reload => (Trigger::Reload, Scope::KNOWN),
        Job::Refused => (Trigger::Timer, Scope::REFUSED),
        Job::GuestAgent | Job::Withheld | Job::Reports | Job::Pod => (Trigger::Timer, Scope::NONE),
        Job::Unread => (Trigger::Timer, Scope::LOCAL),
        Job::Search => (Trigger::Timer, Scope::VM | Scope::SEARCH),
        Job::Reporter => (Trigger::Timer, Scope::NODE),
    }
}

/// Returns the failed reads that may succeed soon. A watch that is being re-established detects when its API is available again.
fn unwatched(seen: Scene<'_>) -> Vec<&Unavailable> {
    let mut passing = seen.trouble();
    passing.retain(|why| !why.is_watched);
    passing
}

/// Returns the shortest delay that an API requested. A round that is due for one API sends no requests to the other during its backoff.
fn requested_delay(passing: &[&Unavailable]) -> Option<Duration> {
    passing.iter().filter_map(|why| why.retry_after).min()
}

/// Plans the reads that are repeated: after failures, periodically, after a reload, and of a Node that the kubelet of
/// another machine reported.
fn plan_reads(seen: Scene<'_>, memory: &mut Memory) {
    let (now, scope) = (seen.now, seen.reasons.scope);
    let machine = seen.observation.machine.phase();
    // While the window is open, its schedule is the only retry of reads.
    let (is_open, agenda) = (memory.window.is_some(), &mut memory.agenda);
    let passing = unwatched(seen);
    let is_trouble = !passing.is_empty() || seen.observation.node == Fact::Absent;
    // A round without API requests does not postpone a retry.
    let is_tried = scope.asks_apis();
    let failures = agenda.count(Job::Retry, is_trouble, is_tried);
    let was_sent = passing.iter().any(|why| !why.is_deferred);
    let backoff = schedule::retry(failures, None, now.random);
    let wait = match requested_delay(&passing) {
        // A watch that fails repeatedly restarts the backoff each time, so a read must be sent as soon as the delay ends.
        Some(left) if !was_sent => left,
        // An API may answer one request and fail the next: its backoff restarts each time, but this count does not.
        Some(left) => left.max(backoff),
        None => backoff,
    };
    let is_wanted = is_trouble && !is_open;
    agenda.plan(Job::Retry, is_wanted, is_tried, now.uptime + wait);

    // What fails for days does not keep everything else from being read. A round that read less does not postpone the poll.
    if !is_open {
        let is_late = agenda.due(Job::Poll).is_some_and(|due| due <= now.uptime);
        let is_polled = scope.contains(Scope::AFRESH) || scope.contains(READ);
        let phase = Phase::of(machine, Purpose::Poll);
        let wait = schedule::poll(seen.settings.timing.poll, phase, now.uptime, now.random);
        let is_served = is_polled || is_late;
        agenda.plan(Job::Poll, true, is_served, now.uptime + wait);
    }

    let is_reloaded = scope.contains(Scope::AFRESH);
    let is_planned = is_reloaded || agenda.due(Job::Reload).is_some();
    let is_wanted = is_planned && !scope.contains(READ);
    let wait = schedule::reload_delay(Phase::of(machine, Purpose::Reload));
    agenda.plan(Job::Reload, is_wanted, is_reloaded, now.uptime + wait);

    let check = memory.reporters.check();
    let is_checked = scope.contains(Scope::NODE);
    let due = now.uptime + check.unwrap_or_default();
    agenda.plan(Job::Reporter, check.is_some(), is_checked, due);

    // Files that the kernel could not read are read again, whatever the rounds until then are for.
    let (is_unread, is_tried) = (seen.observation.is_unread, scope.contains(Scope::FILES));
    let failures = agenda.count(Job::Unread, is_unread, is_tried);
    let due = now.uptime + schedule::retry(failures, None, now.random);
    agenda.plan(Job::Unread, is_unread, is_tried, due);
}

/// Plans the lists of VMs: to find ours if no name identified it, and other VMs that may have the hostname that KubeVirt made of its
/// name, or its MAC address if nothing else identifies it. One search since the start of the process is enough.
fn plan_lists(seen: Scene<'_>, memory: &mut Memory) {
    let (now, scope) = (seen.now, seen.reasons.scope);
    let candidates = &seen.observation.candidates;
    let unasked = candidates.why();
    let unasked = unasked.filter(|why| why.kind == UnavailableKind::NotAsked);
    let list = unasked.and_then(|why| why.retry_after);
    // A round that did not read the VM does not postpone that.
    let is_read = scope.contains(Scope::VM);
    let agenda = &mut memory.agenda;
    let due = now.uptime + list.unwrap_or_default();
    agenda.plan(Job::List, list.is_some(), is_read, due);

    let is_search = scope.contains(Scope::SEARCH);
    if is_search {
        let known = candidates.known();
        let is_done = known.is_some_and(|known| known.coverage != Coverage::Listed);
        memory.has_searched |= is_done;
        agenda.count(Job::Search, !is_done, true);
    }
    let mut names = seen.identity.names.iter();
    let is_wanted = names.any(|judged| judged.verdict == Verdict::PlatformHostname)
        || seen.identity.is_imitable();
    let phase = Phase::of(seen.observation.machine.phase(), Purpose::List);
    let wait = match agenda.failures(Job::Search) {
        0 => schedule::list_delay(phase, now.random),
        failures => schedule::list_retry(failures, now.random),
    };
    let is_wanted = is_wanted && !memory.has_searched;
    agenda.plan(Job::Search, is_wanted, is_search, now.uptime + wait);
}

/// After a conflict, the round for a retry is later by up to this time: the other writer may have reverted the labels of all Nodes at
/// once. Another round may retry before.
const BACKING_OFF_SPREAD: Duration = Duration::from_secs(6 * 60);

/// Returns the ends of waits. Each follows from what other decisions remember or made in this round, so none is kept in the agenda.
fn waits(seen: Scene<'_>, memory: &Memory, doing: &Doing) -> [(Job, Option<Duration>); 8] {
    let now = seen.now;
    let after = |left: Duration| now.uptime + left;
    let window = memory.window.as_ref().map(|window| {
        let requested = requested_delay(&unwatched(seen)).unwrap_or_default();
        window.wait(now.uptime).max(requested)
    });
    let start = memory.guest_agent.wait_to_start(now.uptime);
    let start = start.filter(|left| !left.is_zero() && seen.settings.guest_agent.start);
    // A write that is sent in this round has no time of its retry yet.
    let refused = memory.refusals.iter().map(|refused| refused.due);
    let refused = refused.filter(|due| *due > now.uptime).min();
    let guest_agent = memory.guest_agent.wait_to_tell(now.uptime);
    let reports = memory.report_writes.left(now.uptime);
    // A refused patch is scheduled with other refused writes.
    let (settle, withheld) = match doing {
        Doing::Settling(until) => (Some(*until), None),
        Doing::Withheld(until) => (None, Some(*until)),
        // Another writer may have reverted the labels of all Nodes at once.
        Doing::BackingOff(until) => {
            let phase = Phase::of(seen.observation.machine.phase(), Purpose::Poll);
            (
                None,
                Some(*until + BACKING_OFF_SPREAD.mul_f64(phase.value())),
            )
        }
        _ => (None, None),
    };
    [
        (Job::Window, window.map(after)),
        (Job::Settle, settle),
        (Job::Start, start.map(after)),
        (Job::GuestAgent, guest_agent.map(after)),
        (Job::Refused, refused),
        (Job::Withheld, withheld),
        (Job::Reports, reports.map(after)),
        (Job::Pod, memory.pod_poll(seen).map(after)),
    ]
}
