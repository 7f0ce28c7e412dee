// SPDX-License-Identifier: Apache-2.0
//! The targets of watches and of inotify, derived from the known facts.

use std::path::PathBuf;
use std::time::Duration;

use super::read_plan::may_need_credentials;
use super::state::Observer;
use crate::config::Settings;
use crate::decide::identity::{Identity, OwnVm};
use crate::decide::schedule::{Phase, Purpose, reload_delay};
use crate::facts::registration::LabelFileKind;
use crate::observe::api_access::ApiLink;
use crate::observe::{distribution, harvester, machine};
use crate::triggers::Targets;
use crate::triggers::feed::Feed;
use crate::triggers::watch::Target;

impl Observer {
    /// Returns the watches of our VM and our Node, and the files to watch.
    pub(super) fn subscriptions(&self, settings: &Settings, identity: &Identity) -> Targets {
        let delay = settings.timing.watch_delay;
        // While Harvester is unreachable, the watch of the known VM continues.
        let vmi = match &identity.vm {
            OwnVm::Identified(vmi) | OwnVm::Remembered(vmi, _) => Some(vmi),
            _ => None,
        };
        let vmi = vmi.zip(self.connections.harvester.link().ok());
        let node = self
            .facts
            .kubelet
            .known()
            .zip(self.connections.guest.link().ok());
        let files_delay = match may_need_credentials(self.failures()) {
            true => Duration::ZERO,
            false => reload_delay(Phase::of(self.facts.machine.phase(), Purpose::Files)),
        };
        let mut files = self.connections.files();
        files.extend(distribution::watched());
        files.insert(PathBuf::from(machine::STATIC_HOSTNAME));
        files.extend(LabelFileKind::ALL.map(|kind| kind.path().to_owned()));
        Targets {
            files_delay,
            vmi: vmi.map(|(vmi, link)| {
                let path = harvester::collection(&vmi.namespace);
                target(link, path, vmi.name.as_str(), &self.vmi_feed, delay)
            }),
            node: node.map(|(kubelet, link)| {
                let path = "/api/v1/nodes".to_owned();
                let name = kubelet.node_name.as_str();
                target(link, path, name, &self.node_feed, delay)
            }),
            files,
        }
    }
}

fn target<T>(
    link: &ApiLink,
    path: String,
    name: &str,
    feed: &Feed<T>,
    delay: Duration,
) -> Target<T> {
    Target {
        client: link.client.clone(),
        generation: link.generation,
        path,
        name: name.to_owned(),
        feed: feed.clone(),
        delay,
    }
}
