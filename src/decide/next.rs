// SPDX-License-Identifier: Apache-2.0
//! Schedules the next round if no trigger arrives before, and what it reads: a retry, a read of the re-sync window, an expected
//! change, or a poll. [`schedule`] computes the delays.

use std::time::Duration;

use super::agenda::Job;
use super::doing::Doing;
use super::input::{Now, Scene};
use super::memory::Memory;
use super::name_match::Verdict;
use super::schedule::{self, Phase, Purpose};
use crate::config::Settings;
use crate::facts::observation::Coverage;
use crate::facts::trigger::{Next, Scope, Trigger};
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// The reads of both APIs.
const READ: Scope = Scope::VM.union(Scope::NODE);

/// Returns what to read again after failures: nothing from an API that answered.
fn unanswered(seen: Scene<'_>) -> Scope {
    let placement = seen
        .placement
        .and_then(|placement| placement.trouble.as_ref());
    // A new credential may fix the failure.
    let mut scope = Scope::FILES;
    scope.set(Scope::VM, seen.observation.candidates.known().is_none());
    scope.set(Scope::HOST, placement.is_some());
    scope.set(Scope::NODE, seen.observation.node.known().is_none());
    scope
}

/// Returns when files are read again that the kernel could not read, whatever the rounds until then are for.
fn unread(seen: Scene<'_>, memory: &mut Memory, now: Now) -> Option<Duration> {
    if !seen.observation.is_unread {
        memory.unread = None;
        return None;
    }
    let planned = memory.agenda.due(Job::Unread);
    planned
        .filter(|_| !seen.reasons.scope.contains(Scope::FILES))
        .or_else(|| {
            let failures = memory.unread.map_or(1, |count| count.saturating_add(1));
            memory.unread = Some(failures);
            Some(now.uptime + schedule::retry(failures, None, now.random))
        })
}

/// Returns when reads are retried that failed.
fn retry(seen: Scene<'_>, memory: &Memory, passing: &[&Unavailable], now: Now) -> Duration {
    // A round without API requests does not postpone a retry.
    let planned = memory.agenda.due(Job::Retry);
    if let Some(due) = planned.filter(|_| !seen.reasons.scope.asks_apis()) {
        return due;
    }
    let was_sent = passing.iter().any(|why| !why.is_deferred);
    let backoff = schedule::retry(memory.failures, None, now.random);
    let after = match requested(passing) {
        // A watch that fails repeatedly restarts the backoff each time, so a read must be sent as soon as the delay ends.
        Some(left) if !was_sent => left,
        // An API may answer one request and fail the next: its backoff restarts each time, but this count does not.
        Some(left) => left.max(backoff),
        None => backoff,
    };
    now.uptime + after
}

/// Returns the shortest delay of both APIs. A round that is due for one API does not send requests to the other during its backoff.
fn requested(passing: &[&Unavailable]) -> Option<Duration> {
    passing.iter().filter_map(|why| why.retry_after).min()
}

/// Returns when everything is read again.
fn poll(settings: &Settings, seen: Scene<'_>, memory: &Memory, now: Now) -> Duration {
    let phase = Phase::of(seen.observation.machine.phase(), Purpose::Poll);
    let read = seen.reasons.scope;
    // A round that read less does not postpone the poll.
    let is_served = read.contains(Scope::AFRESH) || read.contains(READ);
    let planned = memory.agenda.due(Job::Poll);
    let planned = planned.filter(|due| !is_served && *due > now.uptime);
    let after = || schedule::poll(settings.timing.poll, phase, now.uptime, now.random);
    planned.unwrap_or_else(|| now.uptime + after())
}

/// Returns when the APIs are read after a reload of the configuration.
fn reload(seen: Scene<'_>, memory: &Memory, now: Now) -> Option<Duration> {
    let phase = Phase::of(seen.observation.machine.phase(), Purpose::Reload);
    let scope = seen.reasons.scope;
    match scope.contains(Scope::AFRESH) {
        _ if scope.contains(READ) => None,
        true => Some(now.uptime + schedule::reload_delay(phase)),
        false => memory.agenda.due(Job::Reload),
    }
}

/// Returns when the namespace is listed, if no name identified the VM.
fn list(seen: Scene<'_>, memory: &Memory, now: Now) -> Option<Duration> {
    let why = seen.observation.candidates.why();
    let why = why.filter(|why| why.kind == UnavailableKind::NotAsked);
    let after = why?.retry_after?;
    // A round that did not read the VM does not postpone that.
    let planned = memory.agenda.due(Job::List);
    let planned = planned.filter(|_| !seen.reasons.scope.contains(Scope::VM));
    Some(planned.unwrap_or(now.uptime + after))
}

/// Returns when other VMs are searched for: those that may have the hostname that KubeVirt made of our VM's name, and those with our
/// MAC address, if nothing else identifies ours. One search since the start of the process is enough.
fn search(seen: Scene<'_>, memory: &mut Memory, now: Now) -> Option<Duration> {
    let is_search = seen.reasons.scope.contains(Scope::SEARCH);
    if is_search {
        let known = seen.observation.candidates.known();
        let is_done = known.is_some_and(|known| known.coverage != Coverage::Listed);
        memory.has_searched |= is_done;
        memory.search_failures = match is_done {
            true => 0,
            false => memory.search_failures.saturating_add(1),
        };
    }
    let mut names = seen.identity.names.iter();
    let is_wanted = names.any(|judged| judged.verdict == Verdict::PlatformHostname)
        || seen.identity.is_imitable();
    let phase = Phase::of(seen.observation.machine.phase(), Purpose::List);
    let soon = || {
        let after = match memory.search_failures {
            0 => schedule::list_delay(phase, now.random),
            failures => schedule::list_retry(failures, now.random),
        };
        now.uptime + after
    };
    let planned = memory.agenda.due(Job::Search).filter(|_| !is_search);
    (is_wanted && !memory.has_searched).then(|| planned.unwrap_or_else(soon))
}

/// Plans the reads of the APIs, for one job at a time.
fn reads(
    settings: &Settings,
    seen: Scene<'_>,
    memory: &mut Memory,
    now: Now,
) -> (Job, Duration, Trigger, Scope) {
    // A watch that is being re-established detects when its API is available again.
    let mut passing = seen.trouble();
    passing.retain(|why| !why.is_watched);
    let is_trouble = !passing.is_empty() || seen.observation.node == Fact::Absent;
    memory.failures = match (is_trouble, seen.reasons.scope.asks_apis()) {
        (true, true) => memory.failures.saturating_add(1),
        (true, false) => memory.failures.max(1),
        (false, _) => 0,
    };
    match &memory.window {
        // While the window is open, its schedule is the only retry of reads.
        Some(window) => {
            let mut scope = Scope::VM;
            scope.set(Scope::HOST, !passing.is_empty());
            scope.set(Scope::NODE, seen.observation.node.known().is_none());
            let wait = window.wait(now.uptime);
            let wait = wait.max(requested(&passing).unwrap_or_default());
            (Job::Window, now.uptime + wait, Trigger::Resync, scope)
        }
        None if is_trouble => {
            let due = retry(seen, memory, &passing, now);
            (Job::Retry, due, Trigger::Timer, unanswered(seen))
        }
        None => {
            let due = poll(settings, seen, memory, now);
            (Job::Poll, due, Trigger::Timer, Scope::KNOWN)
        }
    }
}

/// Plans all deadlines. Returns the next round if no trigger arrives before.
pub(super) fn next_round(
    settings: &Settings,
    seen: Scene<'_>,
    memory: &mut Memory,
    doing: &Doing,
    now: Now,
) -> Next {
    let (job, due, trigger, scope) = reads(settings, seen, memory, now);
    memory.agenda.set(Job::Window, None);
    memory.agenda.set(Job::Retry, None);
    memory.agenda.set(job, Some(due));
    let mut first = (due, trigger, scope);
    if job == Job::Retry {
        // What fails for days does not keep everything else from being read.
        let polled = poll(settings, seen, memory, now);
        memory.agenda.set(Job::Poll, Some(polled));
        if polled < due {
            first = (polled, Trigger::Timer, Scope::KNOWN);
        }
    }
    let after = |left: Duration| now.uptime + left;
    let settling = match doing {
        Doing::Settling(left) => Some(*left),
        _ => None,
    };
    // Names that have been stable for long enough get their final verdict, and the VMs that have them are searched for.
    let is_unsearched = memory.are_names_unsearched();
    let names = memory.names_left(settings, now);
    let names = names.or(is_unsearched.then_some(Duration::ZERO));
    let start = memory.guest_agent.wait_to_start(now.uptime);
    let start = start.filter(|left| !left.is_zero() && settings.guest_agent.start);
    // A write that is sent in this round has no time of its retry yet.
    let refused = memory.refusals.iter().map(|refused| refused.due);
    let refused = refused.filter(|due| *due > now.uptime).min();
    let guest_agent = memory.guest_agent.wait_to_tell(now.uptime);
    let verdict = if is_unsearched {
        Scope::VM
    } else {
        Scope::NONE
    };
    let searched = Scope::VM | Scope::SEARCH;
    let (timer, pod) = (Trigger::Timer, memory.pod_poll(seen, now));
    let deadlines = [
        (Job::Settle, settling.map(after), timer, Scope::VM),
        (Job::Names, names.map(after), Trigger::Hostname, verdict),
        (Job::Start, start.map(after), Trigger::Units, Scope::UNITS),
        (Job::GuestAgent, guest_agent.map(after), timer, Scope::NONE),
        (
            Job::Reload,
            reload(seen, memory, now),
            Trigger::Reload,
            Scope::KNOWN,
        ),
        (Job::List, list(seen, memory, now), timer, Scope::VM),
        (Job::Refused, refused, timer, Scope::REFUSED),
        (
            Job::Withheld,
            memory.withheld.map(after),
            timer,
            Scope::NONE,
        ),
        (
            Job::Reports,
            memory.report_writes.left(now.uptime).map(after),
            timer,
            Scope::NONE,
        ),
        (Job::Pod, pod.map(after), timer, Scope::NONE),
        (Job::Unread, unread(seen, memory, now), timer, Scope::LOCAL),
        (Job::Search, search(seen, memory, now), timer, searched),
        (
            Job::Reporter,
            memory.reporters.check().map(after),
            timer,
            Scope::NODE,
        ),
    ];
    let left = |due: Duration| due.saturating_sub(now.uptime);
    for (job, due, trigger, scope) in deadlines {
        memory.agenda.set(job, due);
        if let Some(due) = due
            && left(due) < left(first.0)
        {
            first = (due, trigger, scope);
        }
    }
    let (due, trigger, scope) = first;
    Next {
        after: left(due),
        trigger,
        scope,
    }
}
