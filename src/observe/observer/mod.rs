// SPDX-License-Identifier: Apache-2.0
//! Implements the read and write traits of the agent loop with `observe` and `apply`, and keeps connections and cached reads
//! between rounds.

mod delivered;
pub(crate) mod limit;
mod local;
mod own_api;
mod read;
mod read_plan;
mod search;
mod situation;
mod state;
mod targets;
mod write;

use crate::agent::{Observe, Scope};
use crate::config::Settings;
use crate::decide::Now;
use crate::decide::identity::Identity;
use crate::decide::placement::{HostSource, Located};
use crate::facts::observation::Observation;
use crate::facts::placement::PlacementReads;
use crate::facts::requests::Requests;
use crate::observe::host_labels;
use crate::triggers::Targets;
use limit::{limited, too_slow_text};

pub use state::Observer;

impl Observe for Observer {
    type Targets = Targets;

    fn targets(&self, settings: &Settings, identity: &Identity) -> Targets {
        self.subscriptions(settings, identity)
    }

    fn requests(&self) -> Vec<Requests> {
        self.connections.requests()
    }

    async fn observation(
        &mut self,
        settings: &Settings,
        scope: Scope,
        now: Now,
        alive: &mut dyn FnMut(),
    ) -> Observation {
        // Boxed, so that an idle agent does not keep the memory.
        Box::pin(self.read(settings, scope, now, alive)).await
    }

    async fn placement(
        &mut self,
        settings: &Settings,
        located: &Located<'_>,
        now: Now,
    ) -> PlacementReads {
        let host = &located.host;
        let HostSource::Harvester(vmi) = located.host_source else {
            return PlacementReads::none(host.clone());
        };
        self.keep_found(vmi);
        if let Some(reads) = self.reads.as_ref().filter(|reads| reads.host == *host) {
            return reads.clone();
        }
        let reads = match self.connections.harvester.link() {
            Ok(link) => {
                let (client, generation) = (&link.client, link.generation);
                let kept = &mut self.host_labels;
                let reads =
                    host_labels::read(client, generation, settings, vmi, host, kept, now.uptime);
                let failed =
                    || PlacementReads::failed(host.clone(), &too_slow_text("the Harvester API"));
                Box::pin(limited(reads)).await.unwrap_or_else(failed)
            }
            Err(_) => PlacementReads::none(host.clone()),
        };
        self.read_for = Some((settings.topology.clone(), settings.labels.clone()));
        self.reads = Some(reads.clone());
        reads
    }
}
