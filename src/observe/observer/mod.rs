// SPDX-License-Identifier: Apache-2.0
//! Implements the read and write traits of the agent loop with `observe` and `apply`, and keeps connections and cached reads
//! between rounds.

mod credentials;
mod delivered;
mod due;
mod local;
mod own_api;
mod read;
mod search;
mod state;

use std::path::PathBuf;
use std::time::Duration;

use crate::agent::limit::{limited, too_slow};
use crate::agent::{Answer, Apply, Observe, Scope};
use crate::apply::Own;
use crate::config::Settings;
use crate::decide::identity::{Identity, OwnVm};
use crate::decide::placement::{Choice, HostSource, Located, Placement};
use crate::decide::schedule::{Phase, Purpose, reload_delay};
use crate::decide::{Action, Now, Refusal};
use crate::facts::Fact;
use crate::facts::observation::Observation;
use crate::facts::requests::Requests;
use crate::observe::api_access::{ApiLink, Connections};
use crate::observe::{distribution, host_labels, machine};
use crate::triggers::Targets;
use crate::triggers::feed::Feed;
use crate::triggers::watch::Target;
use crate::wire::kubeapi::{INSTANCES, NODES, ObjectPath};
use credentials::may_need_credentials;

pub use state::Observer;

impl Observe for Observer {
    type Targets = Targets;

    fn targets(&self, settings: &Settings, identity: &Identity) -> Targets {
        let delay = settings.timing.watch_delay;
        // While Harvester is unreachable, the watch of the known VM continues.
        let vmi = match &identity.vm {
            OwnVm::Identified(vmi) | OwnVm::Remembered(vmi, _) => Some(vmi),
            _ => None,
        };
        let vmi = vmi.zip(self.connections.harvester.link().ok());
        let kubelet = self.facts.kubelet.known();
        let node = kubelet.zip(self.connections.guest.link().ok());
        let files_delay = match may_need_credentials(self.failures()) {
            true => Duration::ZERO,
            false => reload_delay(Phase::of(self.facts.machine.phase(), Purpose::Files)),
        };
        let mut files = self.connections.files();
        files.extend(distribution::watched());
        files.insert(PathBuf::from(machine::STATIC_HOSTNAME));
        Targets {
            files_delay,
            vmi: vmi.map(|(vmi, link)| {
                let path = INSTANCES.within(&vmi.namespace).named(&vmi.name);
                target(link, path, self.vmi_feed.clone(), delay)
            }),
            node: node.map(|(kubelet, link)| {
                let path = NODES.named(&kubelet.node_name);
                target(link, path, self.node_feed.clone(), delay)
            }),
            files,
        }
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
    ) -> Placement {
        let mut choice = Choice::new(settings, located);
        if let HostSource::Harvester(vmi) = located.host_source {
            self.keep_found(vmi);
            if let Ok(link) = self.connections.harvester.link() {
                let (client, host, kept) = (&link.client, &located.host, &mut self.host_labels);
                kept.start(host, settings);
                let asked =
                    host_labels::ask(&mut choice, client, settings, vmi, host, kept, now.uptime);
                if Box::pin(limited(asked)).await.is_none() {
                    kept.give_up(&mut choice, &too_slow("the Harvester API"));
                }
            }
        }
        choice.end()
    }
}

/// Passes each action to `apply` with the credential of the kubelet, and keeps the Node of the response.
impl Apply for Observer {
    async fn apply(&mut self, action: &Action, now: Now) -> Answer {
        let own = own(&self.connections, &self.facts);
        let answer = self.writer.apply(own, action, now).await;
        // The response is the newest version of our Node: the next decision must not use the old one.
        if let Ok(Some(node)) = &answer {
            self.facts.node = Fact::Known(node.clone());
        }
        let left = self.connections.guest.deferred();
        answer.map_err(|refusal| Refusal {
            retry_after: left.filter(|_| refusal.passing).or(refusal.retry_after),
            ..refusal
        })
    }

    async fn announce(&mut self) {
        let own = own(&self.connections, &self.facts);
        let is_deferred = self.connections.guest.deferred().is_some();
        self.writer.announce(own, self.is_daemon, is_deferred).await;
    }
}

/// Returns what writes to our own Node need.
fn own<'a>(connections: &'a Connections, facts: &'a Observation) -> Option<Own<'a>> {
    let (link, kubelet) = (connections.guest.link().ok()?, facts.kubelet.known()?);
    Some((&link.client, &kubelet.node_name))
}

fn target<T: Clone>(link: &ApiLink, path: ObjectPath, feed: Feed<T>, delay: Duration) -> Target<T> {
    Target {
        client: link.client.clone(),
        generation: link.generation,
        path,
        feed,
        delay,
    }
}
