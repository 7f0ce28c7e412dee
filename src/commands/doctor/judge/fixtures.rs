// SPDX-License-Identifier: Apache-2.0
//! A node whose examination has no findings, unless a test changes it.

use serde_json::json;

use super::Case;
use crate::catalog::{Code, Finding};
use crate::commands::doctor::facts::Examination;
use crate::commands::doctor::facts::clock::ClockFacts;
use crate::commands::doctor::facts::conflicts::Conflicts;
use crate::commands::doctor::facts::credentials::Credentials;
use crate::commands::doctor::facts::image::Image;
use crate::commands::doctor::facts::instance::{InstanceFacts, Interface};
use crate::commands::doctor::facts::node::NodeDetails;
use crate::commands::doctor::facts::pods::{Component, PodOrigin, Pods};
use crate::commands::doctor::facts::servers::Servers;
use crate::commands::doctor::facts::system::SystemFacts;
use crate::commands::doctor::facts::versions::Versions;
use crate::decide::fixtures::{MAC, World, now};
use crate::facts::distribution::{Distribution, DistributionKind};
use crate::facts::release::Release;
use crate::facts::{Fact, Unavailable, UnavailableKind};

/// The time of the fixtures, in seconds since 1970.
pub(super) const NOW: i64 = 1_795_000_000;

/// The address of the Node, in Harvester and on this machine.
pub(super) const ADDRESS: &str = "172.19.106.159";

/// A node and its examination.
pub(super) struct Bench {
    pub(super) world: World,
    pub(super) examination: Examination,
}

impl Bench {
    /// Creates an RKE2 node of a Rancher cluster, with a Harvester release of the same age.
    pub(super) fn new() -> Self {
        let mut world = World::new();
        world.node().provider_id = Some("harvester://vm-uid".to_owned());
        world.observation.distributions = vec![Distribution {
            cloud_provider_name: Some("harvester".to_owned()),
            ..Distribution::new(DistributionKind::Rke2)
        }];
        let why = Unavailable::new(UnavailableKind::NotAsked, "not part of this test");
        let node = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
            "nodeInfo": {"kubeletVersion": "v1.33.5+rke2r1"},
        }});
        let vmi = json!({
            "metadata": {"labels": {
                "harvesterhci.io/creator": "docker-machine-driver-harvester",
                "guestcluster.harvesterhci.io/name": "gc8",
            }},
            "status": {
                "conditions": [{"type": "AgentConnected", "status": "True"}],
                "interfaces": [{
                    "name": "nic-0", "mac": MAC, "infoSource": "domain, guest-agent", "ipAddresses": [ADDRESS, "fe80::1"],
                }],
            },
        });
        let examination = Examination {
            versions: Versions {
                harvester: release("v1.6.1"),
                kubevirt: release("v1.5.2"),
                host_kubernetes: release("v1.33.5+rke2r1"),
                guest_kubernetes: release("v1.33.5+rke2r1"),
            },
            node: serde_json::from_value(node).unwrap(),
            pods: Pods {
                here: Fact::Known(Vec::new()),
                cloud_provider: component("v0.2.4"),
                csi_driver: component("v0.2.3"),
                unreadable: None,
            },
            conflicts: Conflicts {
                instance: Fact::Known(serde_json::from_value(vmi).unwrap()),
                namespace: Fact::Known(vec![world.vmi().clone()]),
                addresses: addresses(&[("eth0", ADDRESS), ("cni0", "10.42.0.1")]),
            },
            credentials: Credentials::unseen(&why),
            servers: Servers::unseen(&why),
            clock: ClockFacts::unseen(&why),
            system: no_system(),
            image: Image::unseen(&why),
            permissions: Vec::new(),
        };
        Self { world, examination }
    }

    /// Returns the codes and texts of the findings of one topic.
    pub(super) fn found(
        &self,
        question: impl Fn(&Case<'_>) -> Vec<Finding>,
    ) -> Vec<(&str, String)> {
        let findings = ask(&self.world, &self.examination, question).into_iter();
        findings
            .map(|finding| (finding.code.as_str(), finding.seen))
            .collect()
    }

    pub(super) fn codes(&self, question: impl Fn(&Case<'_>) -> Vec<Finding>) -> Vec<&str> {
        let found = self.found(question).into_iter();
        found.map(|(code, _)| code).collect()
    }

    pub(super) fn instance(&mut self) -> &mut InstanceFacts {
        match &mut self.examination.conflicts.instance {
            Fact::Known(instance) => instance,
            other => panic!("no instance: {other:?}"),
        }
    }

    /// Gives the Node another name than the VM.
    pub(super) fn rename_node(&mut self) {
        if let Fact::Known(kubelet) = &mut self.world.observation.kubelet {
            kubelet.node_name = crate::facts::names::NodeName::parse("renamed").unwrap();
        }
    }
}

pub(super) fn release(text: &str) -> Fact<Release> {
    Fact::Known(Release::parse(text).unwrap())
}

pub(super) fn component(text: &str) -> Fact<Component> {
    release(text).map(|release| Component {
        release,
        origin: PodOrigin::Pod("kube-system/p".to_owned()),
    })
}

pub(super) fn addresses(list: &[(&str, &str)]) -> Fact<Vec<Interface>> {
    let interfaces = list.iter().map(|(name, address)| Interface {
        name: (*name).to_owned(),
        addresses: vec![address.parse().unwrap()],
    });
    Fact::Known(interfaces.collect())
}

/// Returns an examination without any facts.
pub(crate) fn unseen() -> Examination {
    let why = Unavailable::new(UnavailableKind::Unreachable, "no answer");
    Examination {
        versions: Versions::unseen(&why),
        node: NodeDetails::unseen(&why),
        pods: Pods::unseen(&why),
        conflicts: Conflicts::unseen(&why),
        credentials: Credentials::unseen(&why),
        servers: Servers::unseen(&why),
        clock: ClockFacts::unseen(&why),
        system: no_system(),
        image: Image::unseen(&why),
        permissions: Vec::new(),
    }
}

/// Returns a VM of which no file is known.
fn no_system() -> SystemFacts {
    SystemFacts {
        cpus_online: Fact::Absent,
        cpus_present: Fact::Absent,
        memory_kib: Fact::Absent,
        inhibit_delay: Fact::Known(5),
        macvlan: Fact::Absent,
        overlays: Fact::Absent,
    }
}

/// Returns the findings of one topic.
fn ask(
    world: &World,
    examination: &Examination,
    question: impl Fn(&Case<'_>) -> Vec<Finding>,
) -> Vec<Finding> {
    let (identity, placement) = (world.identity(), world.placement());
    question(&Case {
        settings: &world.settings,
        observation: &world.observation,
        identity: &identity,
        placement: placement.as_ref(),
        examination,
        now: now(world.uptime),
    })
}

/// Returns the codes of the findings of one topic.
pub(crate) fn codes(
    world: &World,
    examination: &Examination,
    question: impl Fn(&Case<'_>) -> Vec<Finding>,
) -> Vec<Code> {
    let found = ask(world, examination, question);
    found.iter().map(|finding| finding.code).collect()
}

#[test]
fn nothing_is_found_where_nothing_is_wrong_or_nothing_is_known() {
    let mut bench = Bench::new();
    assert_eq!(bench.found(super::findings), []);
    bench.examination = unseen();
    assert_eq!(bench.found(super::findings), []);
    assert!(bench.examination.gaps().len() >= 12);
    assert_eq!(codes(&World::new(), &unseen(), super::findings), []);
}
