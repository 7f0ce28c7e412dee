// SPDX-License-Identifier: Apache-2.0
//! What can be listened to, given what is known.

use std::path::PathBuf;

use super::World;
use crate::config::{Mode, Settings};
use crate::connections::Link;
use crate::decide::identity::{Identity, OwnVm};
use crate::facts::registration::LabelFileKind;
use crate::observe::{distribution, harvester, machine};
use crate::triggers::Targets;
use crate::triggers::watch::Target;

impl World {
    /// The watches of our VM and our Node, and the files whose change matters.
    pub(super) fn aims(&self, settings: &Settings, identity: &Identity) -> Targets {
        let target = |link: &Link, path: String, name: &str| Target {
            client: link.client.clone(),
            generation: link.generation,
            path,
            name: name.to_owned(),
        };
        let standing = settings.mode == Mode::Watch;
        // While Harvester is away the watch of the VM that was found goes on.
        let vmi = match &identity.vm {
            OwnVm::Identified(vmi) | OwnVm::Remembered(vmi, _) => Some(vmi),
            _ => None,
        };
        let vmi = vmi
            .zip(self.connections.harvester.link().ok())
            .filter(|_| standing);
        let node = self
            .kubelet
            .known()
            .zip(self.connections.guest.link().ok())
            .filter(|_| standing);
        Targets {
            vmi: vmi.map(|(vmi, link)| {
                target(
                    link,
                    harvester::collection(&vmi.namespace),
                    vmi.name.as_str(),
                )
            }),
            node: node.map(|(kubelet, link)| {
                target(link, "/api/v1/nodes".to_owned(), kubelet.node_name.as_str())
            }),
            files: self
                .connections
                .files(&self.root)
                .into_iter()
                .chain(distribution::watched())
                .chain([PathBuf::from(machine::STATIC_HOSTNAME)])
                .chain(LabelFileKind::ALL.map(|kind| kind.path().to_owned()))
                .collect(),
        }
    }
}
