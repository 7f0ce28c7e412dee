// SPDX-License-Identifier: Apache-2.0
//! Schedules the next round if no trigger arrives before, and what it reads: a retry, a read of the re-sync window, an expected
//! change, or a poll. [`schedule`] computes the delays.

use std::time::Duration;

use super::input::{Now, Scene};
use super::memory::{Memory, Unread};
use super::placement::Known;
use super::schedule;
use crate::config::Settings;
use crate::facts::trigger::{Next, Scope, Trigger};
use crate::facts::{self, Unavailable, UnavailableKind};

/// Returns how long to wait for Harvester's own annotations.
///
/// Harvester's cloud provider compares annotations and labels at each event of the VM. Labels that are newer than the annotations
/// would make it taint the Node and write the old values again, so on its Nodes Harvester writes first.
pub(super) fn settling(
    settings: &Settings,
    seen: Scene<'_>,
    memory: &Memory,
    now: Now,
) -> Option<Duration> {
    let vmi = seen.identity.vmi()?;
    let by_cloud_provider = seen
        .observation
        .node
        .known()
        .is_some_and(|node| node.vm_uid().is_some());
    let (_, since) = memory.host.as_ref()?;
    let waited = now.uptime.saturating_sub(*since);
    let expected = vmi.annotated_by_harvester && !vmi.annotations_are_fresh();
    let only_source = !matches!(
        seen.placement.and_then(|placement| placement.known.as_ref()),
        Some(Known { topology, .. }) if !topology.is_empty()
    );
    (expected && (by_cloud_provider || only_source))
        .then(|| settings.timing.settle.saturating_sub(waited))
        .filter(|left| !left.is_zero())
}

/// Returns what to read again after failures: nothing from an API that answered.
fn unanswered(seen: Scene<'_>) -> Scope {
    let placement = seen
        .placement
        .and_then(|placement| placement.trouble.as_ref());
    Scope {
        // A new credential may fix the failure.
        files: true,
        vm: seen.observation.candidates.known().is_none(),
        host: placement.is_some(),
        node: seen.observation.node.known().is_none(),
        ..Scope::NONE
    }
}

/// Returns when files are read again that the kernel could not read, whatever the rounds until then are for.
fn unread(seen: Scene<'_>, memory: &mut Memory, now: Now) -> Option<Duration> {
    let planned = memory.unread.filter(|_| !seen.reasons.scope.files);
    memory.unread = seen.observation.is_unread.then(|| {
        planned.unwrap_or_else(|| {
            let failures = memory
                .unread
                .map_or(1, |unread| unread.failures.saturating_add(1));
            Unread {
                failures,
                due: now.uptime + schedule::retry(failures, None, now.random),
            }
        })
    });
    memory.unread.map(|unread| unread.due)
}

/// Returns the next round if no trigger arrives before.
pub(super) fn next_round(
    settings: &Settings,
    seen: Scene<'_>,
    memory: &mut Memory,
    settling: Option<Duration>,
    now: Now,
) -> Next {
    let passing = seen.trouble();
    // A watch that is being re-established detects when its API is available again.
    let passing: Vec<&Unavailable> = passing.into_iter().filter(|why| !why.is_watched).collect();
    // The shortest delay of both APIs. A round that is due for one API does not send requests to the other during its backoff.
    let asked = passing.iter().filter_map(|why| why.retry_after).min();
    let is_trouble = !passing.is_empty() || seen.observation.node == facts::Fact::Absent;
    let has_asked = seen.reasons.scope.asks_apis();
    memory.failures = match (is_trouble, has_asked) {
        (true, true) => memory.failures.saturating_add(1),
        (true, false) => memory.failures.max(1),
        (false, _) => 0,
    };
    let again = |after, trigger, scope| Next {
        after,
        trigger,
        scope,
    };
    let usual = match &memory.window {
        // While the window is open, its schedule is the only retry of reads.
        Some(window) => {
            let scope = Scope {
                host: !passing.is_empty(),
                node: seen.observation.node.known().is_none(),
                ..Scope::MOVED
            };
            let after = window.wait(now.uptime).max(asked.unwrap_or_default());
            again(after, Trigger::Resync, scope)
        }
        None if is_trouble => {
            // A round without API requests does not postpone a retry.
            let due = memory.retry.filter(|_| !has_asked);
            let was_sent = passing.iter().any(|why| !why.is_deferred);
            let wait = || match asked {
                // A watch that fails repeatedly restarts the backoff each time, so a read must be sent as soon as the delay ends.
                Some(left) if !was_sent => left,
                // An API may answer one request and fail the next: its backoff restarts each time, but this count does not.
                Some(left) => left.max(schedule::retry(memory.failures, None, now.random)),
                None => schedule::retry(memory.failures, None, now.random),
            };
            let due = due.unwrap_or_else(|| now.uptime + wait());
            memory.retry = Some(due);
            again(
                due.saturating_sub(now.uptime),
                Trigger::Timer,
                unanswered(seen),
            )
        }
        None => {
            let phase =
                schedule::Phase::of(seen.observation.machine.phase(), schedule::Purpose::Poll);
            // A round that read less does not postpone the poll.
            let read = seen.reasons.scope;
            let planned = memory
                .poll
                .filter(|due| !(read.refused || read.vm && read.node) && *due > now.uptime);
            let due = planned.unwrap_or_else(|| {
                now.uptime + schedule::poll(settings.timing.poll, phase, now.uptime, now.random)
            });
            memory.poll = Some(due);
            let after = due.saturating_sub(now.uptime);
            again(after, Trigger::Timer, Scope::KNOWN)
        }
    };
    let settled = settling.map(|left| again(left, Trigger::Timer, Scope::MOVED));
    let left = |due: Duration| due.saturating_sub(now.uptime);
    let reload = memory
        .reload
        .map(|due| again(left(due), Trigger::Reload, Scope::KNOWN));
    // No name identified the VM, and the namespace is listed later. A round that did not read the VM does not postpone that.
    let unlisted = seen.observation.candidates.why();
    let unlisted = unlisted.filter(|why| why.kind == UnavailableKind::NotAsked);
    memory.list = unlisted.and_then(|why| why.retry_after).map(|after| {
        let planned = memory.list.filter(|_| !seen.reasons.scope.vm);
        planned.unwrap_or(now.uptime + after)
    });
    let list = memory
        .list
        .map(|due| again(left(due), Trigger::Timer, Scope::MOVED));
    let searched = Scope {
        search: true,
        ..Scope::MOVED
    };
    let search = memory.search;
    let search = search.map(|due| again(left(due), Trigger::Timer, searched));
    // A write that is sent in this round has no time of its retry yet.
    let refused = memory.refusals.iter().map(|refused| refused.due);
    let refused = refused.filter(|due| *due > now.uptime).min();
    let refused = refused.map(|due| again(left(due), Trigger::Timer, Scope::REFUSED));
    // Names that have been stable for long enough get their final verdict, and the VMs that have them are searched for.
    let quiet = match (
        memory.names_left(settings, now),
        memory.are_names_unsearched(),
    ) {
        (left, true) => Some(again(
            left.unwrap_or_default(),
            Trigger::Hostname,
            Scope::MOVED,
        )),
        (Some(left), false) => Some(again(left, Trigger::Hostname, Scope::NONE)),
        (None, false) => None,
    };
    let unit = memory
        .guest_agent
        .wait_to_start(now.uptime)
        .filter(|left| !left.is_zero() && settings.guest_agent.start)
        .map(|left| again(left, Trigger::Units, Scope::UNITS));
    let told = memory.guest_agent.wait_to_tell(now.uptime);
    let told = told.map(|left| again(left, Trigger::Timer, Scope::NONE));
    // Updates that are delayed because there were too many.
    let writes = memory
        .withheld
        .map(|left| again(left, Trigger::Timer, Scope::NONE));
    // Local files that change without an event.
    let pod = memory.pod_poll(seen, now);
    let pod = pod.map(|left| again(left, Trigger::Timer, Scope::NONE));
    let unread = unread(seen, memory, now);
    let unread = unread.map(|due| again(left(due), Trigger::Timer, Scope::LOCAL));
    let node = Scope {
        node: true,
        ..Scope::NONE
    };
    let reporter = memory.reporters.check();
    let reporter = reporter.map(|left| again(left, Trigger::Timer, node));
    [
        settled, quiet, unit, told, reload, list, refused, writes, pod, unread, search, reporter,
    ]
    .into_iter()
    .flatten()
    .fold(usual, |first, other| {
        if other.after < first.after {
            other
        } else {
            first
        }
    })
}
