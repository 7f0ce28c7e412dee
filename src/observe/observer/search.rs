// SPDX-License-Identifier: Apache-2.0
//! The search for our own instance: when the namespace may be listed, and which results are kept.

use std::time::Duration;

use super::state::{Listing, Observer};
use crate::config::Settings;
use crate::decide::Now;
use crate::decide::identity::{is_certain, is_proven, shares_hostname};
use crate::decide::schedule::{Phase, Purpose, list_delay, list_retry};
use crate::facts::names::VmName;
use crate::facts::observation::Candidates;
use crate::facts::trigger::Scope;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::harvester::{List, ListPolicy, OwnInstance};
use crate::observe::host_labels::KeptLabels;

/// The minimum time between a list in which no instance was ours and the next list.
const LIST_AGAIN: Duration = Duration::from_secs(60 * 60);

impl Observer {
    /// Keeps our instance, and those of the other instances that have one of our names or our hardware.
    pub(super) fn keep_found(&mut self, vmi: &Vmi) {
        let Some(candidates) = self.facts.candidates.known() else {
            return;
        };
        if self.is_outdated {
            return;
        }
        // The names of the search: a name added since then must still be searched.
        let names = self.own.as_ref().map_or(&self.names, |own| &own.names);
        let names = names.clone();
        let concerns = |other: &&Vmi| {
            let is_ours = names.contains(&other.name) || self.duplicates.contains(&other.name);
            other.name != vmi.name && is_ours
        };
        // One is enough to know that the hostname identifies none of them.
        let mut vmis = candidates.vmis.iter();
        let namesake = vmis.find(|other| shares_hostname(vmi, other) && !concerns(other));
        let others = candidates.vmis.iter().filter(concerns).chain(namesake);
        let others = Candidates {
            vmis: others.cloned().collect(),
            coverage: candidates.coverage,
        };
        self.own = Some(OwnInstance {
            vmi: vmi.clone(),
            others,
            names,
        });
        // The rest of the namespace is not needed any more; an idle agent must not keep it.
        self.remember_candidates();
    }

    /// Returns whether the namespace may be listed in this round.
    pub(super) fn list(&mut self, settings: &Settings, scope: Scope, now: Now) -> ListPolicy {
        if !self.is_daemon || scope.contains(Scope::SEARCH) {
            return ListPolicy::Always;
        }
        if settings.harvester.vm.is_some() {
            return ListPolicy::Never;
        }
        if self.listing.names != self.names {
            self.listing = Listing {
                names: self.names.clone(),
                ..Listing::default()
            };
        }
        match self.listing.due {
            Some(due) if due <= now.uptime => ListPolicy::IfNeeded,
            Some(_) if self.listing.is_done => ListPolicy::Never,
            Some(due) => ListPolicy::After(due.saturating_sub(now.uptime)),
            None => {
                let phase = Phase::of(self.facts.machine.phase(), Purpose::List);
                ListPolicy::After(list_delay(phase, now.random))
            }
        }
    }

    /// Records the instances that were read: the time of the next list, and those with our hardware.
    pub(super) fn searched(
        &mut self,
        candidates: Fact<Candidates>,
        list: List,
        pinned: Option<&VmName>,
        now: Now,
    ) {
        if std::mem::take(&mut self.is_outdated) {
            self.host_labels = KeptLabels::default();
        }
        let listing = &mut self.listing;
        if list == List::Failed {
            listing.failures = listing.failures.saturating_add(1);
            listing.due = Some(now.uptime + list_retry(listing.failures, now.random));
        }
        if list == List::Done {
            listing.due = Some(now.uptime + LIST_AGAIN);
            listing.is_done = true;
            listing.failures = 0;
            let vmis = candidates.known().into_iter();
            let ours = vmis
                .flat_map(|candidates| &candidates.vmis)
                .filter(|vmi| is_proven(&self.facts, vmi, None));
            let ours: Vec<&VmName> = ours.map(|vmi| &vmi.name).collect();
            self.duplicates.clear();
            // Which of them is ours is ambiguous: each round reads all of them until one is left.
            if ours.len() > 1 {
                self.duplicates.extend(ours.into_iter().cloned());
                self.own = None;
            }
        } else if let Fact::Failed(Unavailable {
            kind: UnavailableKind::NotAsked,
            retry_after: Some(left),
            ..
        }) = &candidates
        {
            listing.due.get_or_insert(now.uptime + *left);
        } else if !listing.is_done
            && candidates.known().is_some_and(|candidates| {
                let mut vmis = candidates.vmis.iter();
                vmis.any(|vmi| is_certain(&self.facts, vmi, pinned))
            })
        {
            listing.due = None;
        }
        self.facts.candidates = candidates;
    }
}
