// SPDX-License-Identifier: Apache-2.0
//! Fixtures for the tests of decisions: one machine, its VM and its Node, which match unless a test changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use time::UtcDateTime;

use super::identity::{Identity, identify};
use super::placement::{Choice, Located, Placement, locate};
use super::schedule::Random;
use super::scheduled_events::{
    ScheduledEvent, ScheduledEventReason, ScheduledEventState, ScheduledEventType,
};
use super::{Action, Memory, Now, Plan, Scene as Decided, Write, WriteResult};
use crate::config::Settings;
use crate::facts::clock::ClockSteps;
use crate::facts::distribution::{Configured, Distribution, DistributionKind};
use crate::facts::guest_agent::{Enablement, Family, GuestAgent, HostView, Unit, UnitState};
use crate::facts::machine::{Machine, Vendor};
use crate::facts::names::{HostName, Namespace, NodeName, VmName, firmware_uuid};
use crate::facts::nic::{Announce, Mac, Nic};
use crate::facts::node::Node;
use crate::facts::observation::{Candidates, Coverage, Harvester, Kubelet, Observation};
use crate::facts::placement::{HostLabels, Source};
use crate::facts::scheduled_events::Announcements;
use crate::facts::topology::{REGION, ZONE};
use crate::facts::trigger::{Reasons, Trigger};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::document::json::Text;

pub(crate) const VM: &str = "pool1-abcde";
pub(crate) const MAC: &str = "6e:22:41:9c:0a:71";

/// The inputs of a decision.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) observation: Observation,
    pub(crate) reads: Reads,
    pub(crate) memory: Memory,
    pub(crate) is_daemon: bool,
    pub(crate) uptime: Duration,
    pub(crate) reasons: Reasons,
}

/// The answers of the sources about one host. Those that cannot be asked have none.
#[derive(Debug, Clone)]
pub(crate) struct Reads {
    pub(crate) host: HostName,
    pub(crate) answers: BTreeMap<Source, Fact<HostLabels>>,
}

impl Reads {
    pub(crate) fn none(host: HostName) -> Self {
        let answers = BTreeMap::new();
        Self { host, answers }
    }
}

impl World {
    /// Creates a VM, hostname and Node with one name, on host hv-a in eu-1/rack-a, read from the host's Node.
    pub(crate) fn new() -> Self {
        let mut world = Self {
            settings: Settings::default(),
            observation: observation(),
            reads: Reads::none(host("hv-a")),
            memory: Memory::default(),
            is_daemon: true,
            uptime: Duration::from_secs(100),
            reasons: Reasons::new(Trigger::Timer, Duration::from_secs(100)),
        };
        let labels = host_labels("eu-1", "rack-a");
        world.answer(Source::HostNode, Fact::Known(labels));
        world
    }

    /// Creates a world in which nothing is left to do.
    pub(crate) fn settled() -> Self {
        let mut world = Self::new();
        world.settle();
        world
    }

    /// Replaces the answer of a source about the host.
    pub(crate) fn answer(&mut self, source: Source, answer: Fact<HostLabels>) {
        self.reads.answers.insert(source, answer);
    }

    pub(crate) fn identity(&self) -> Identity {
        identify(
            &self.observation,
            self.settings.harvester.vm.as_ref(),
            self.memory
                .last_vmi
                .as_ref()
                .map(|vmi| (vmi, self.memory.last_others.as_slice())),
        )
    }

    pub(crate) fn placement(&self) -> Option<Placement> {
        let identity = self.identity();
        let located = locate(&identity, &self.observation)?;
        Some(self.place(&self.settings, &located))
    }

    /// Returns what the sources say of the host of the VM, if the answers are about it.
    pub(crate) fn place(&self, settings: &Settings, located: &Located<'_>) -> Placement {
        let mut choice = Choice::new(settings, located);
        while let Some(source) = choice.wants() {
            let answer = self.reads.answers.get(&source);
            match answer.filter(|_| self.reads.host == located.host) {
                Some(answer) => choice.answer(source, answer),
                None => choice.skip(source),
            }
        }
        choice.end()
    }

    pub(crate) fn plan(&self) -> Plan {
        self.see(|seen| super::plan(seen, self.memory.clone()))
    }

    fn see<T>(&self, decide: impl FnOnce(Decided<'_>) -> T) -> T {
        let (identity, placement) = (self.identity(), self.placement());
        decide(Decided {
            settings: &self.settings,
            now: now(self.uptime),
            reasons: self.reasons,
            observation: &self.observation,
            identity: &identity,
            placement: placement.as_ref(),
            is_daemon: self.is_daemon,
        })
    }

    /// Plays a round. `write` changes the Node and returns the result of an action, or `None` at the end. Returns the decisions and
    /// the results.
    pub(crate) fn round(
        &mut self,
        mut write: impl FnMut(&mut Self, &Action) -> Option<WriteResult>,
    ) -> (Plan, Vec<WriteResult>) {
        let now = now(self.uptime);
        let (mut plan, mut results) = (self.plan(), Vec::new());
        while let Some(action) = plan.actions.get(results.len()).cloned()
            && let Some(result) = write(self, &action)
        {
            plan.tried(&action, &result, now);
            let is_labeled = result.is_ok() && action.write() == Write::Node;
            results.push(result);
            if is_labeled {
                self.see(|seen| plan.conclude(seen, results.len()));
            }
        }
        (plan, results)
    }

    pub(crate) fn vmi(&mut self) -> &mut Vmi {
        match &mut self.observation.candidates {
            Fact::Known(candidates) => &mut candidates.vmis[0],
            other => panic!("no candidates: {other:?}"),
        }
    }

    /// Changes our own instance, if there is one.
    pub(crate) fn change_vmi(&mut self, change: impl FnOnce(&mut Vmi)) {
        if let Fact::Known(Candidates { vmis, .. }) = &mut self.observation.candidates
            && let Some(vmi) = vmis.first_mut()
        {
            change(vmi);
        }
    }

    /// Adds another instance, a changed copy of ours, if there is one.
    pub(crate) fn add_vmi(&mut self, change: impl FnOnce(&mut Vmi)) {
        if let Fact::Known(Candidates { vmis, .. }) = &mut self.observation.candidates
            && let Some(mut other) = vmis.first().cloned()
        {
            change(&mut other);
            vmis.push(other);
        }
    }

    pub(crate) fn node(&mut self) -> &mut Node {
        match &mut self.observation.node {
            Fact::Known(node) => node,
            other => panic!("no Node: {other:?}"),
        }
    }

    /// Labels the Node, as another writer does.
    pub(crate) fn label(&mut self, key: &str, value: &str) {
        let labels = &mut self.node().labels;
        labels.insert(key.to_owned(), value.to_owned());
    }

    /// Gives the machine another hostname, now and at the next boot.
    pub(crate) fn set_hostname(&mut self, name: &str) {
        let machine = &mut self.observation.machine;
        machine.kernel_hostname = Fact::Known(name.to_owned());
        machine.static_hostname = machine.kernel_hostname.clone();
    }

    /// Plans, and applies the plan.
    pub(crate) fn step(&mut self) -> Plan {
        let plan = self.plan();
        self.apply(&plan);
        plan
    }

    /// Applies the plan and reads the Node again.
    pub(crate) fn apply(&mut self, plan: &Plan) {
        self.memory = plan.memory.clone();
        for action in &plan.actions {
            if action.write() == Write::Node {
                self.memory.writes.note(self.uptime);
            }
            if let Action::PatchNode(patch) = action {
                self.memory.note_patch(patch);
            }
            self.change(action);
        }
    }

    /// Changes the Node as the API does.
    pub(crate) fn change(&mut self, action: &Action) {
        match action {
            Action::StartUnit(_) | Action::RunHooks(_) | Action::SendEvents(_) => {}
            Action::PatchNode(patch) => {
                let node = self.node();
                for (key, value) in &patch.labels {
                    match value {
                        Some(value) => node.labels.insert(key.clone(), value.to_string()),
                        None => node.labels.remove(key),
                    };
                }
                node.annotations.extend(patch.annotations.clone());
            }
            Action::PatchConditions(patch) => {
                let node = self.node();
                for (wanted, _) in &patch.conditions {
                    node.conditions
                        .retain(|condition| *condition.kind != *wanted.kind);
                    node.conditions.push(crate::facts::node::NodeCondition {
                        kind: Text(wanted.kind.to_owned()),
                        status: Text(wanted.status.to_owned()),
                        reason: Some(Text(wanted.reason.to_owned())),
                        message: Some(Text(wanted.message.clone())),
                    });
                }
            }
        }
    }

    /// Plans and applies until there is nothing left to do.
    pub(crate) fn settle(&mut self) {
        for _ in 0..4 {
            let plan = self.plan();
            if plan.actions.is_empty() {
                return;
            }
            self.apply(&plan);
        }
        panic!("the plan never comes to rest: {:?}", self.plan().actions);
    }

    /// Migrates the VM to another host, whose Node can be read.
    pub(crate) fn migrate(&mut self, to: &str, region: &str, zone: &str) {
        self.change_vmi(|vmi| vmi.host = Some(host(to)));
        self.reads = Reads::none(host(to));
        self.answer(Source::HostNode, Fact::Known(host_labels(region, zone)));
    }

    /// Adds the annotations of Harvester for a host.
    pub(crate) fn annotate(&mut self, to: &str, region: &str, zone: &str) {
        self.change_vmi(|vmi| {
            vmi.annotated_by_harvester = true;
            vmi.annotated_host = Some(to.to_owned());
            vmi.annotations = host_labels(region, zone);
        });
    }
}

/// Returns a kubelet of unknown origin of which only the node name is known.
pub(crate) fn kubelet_named(name: &str) -> Distribution {
    Distribution {
        node_name: Some(Configured {
            value: name.to_owned(),
            origin: PathBuf::new(),
        }),
        ..Distribution::new(DistributionKind::Unknown)
    }
}

pub(crate) fn host(name: &str) -> HostName {
    HostName::parse(name).unwrap()
}

pub(crate) fn host_labels(region: &str, zone: &str) -> HostLabels {
    [(REGION, region), (ZONE, zone)]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

pub(crate) fn forbidden<T>() -> Fact<T> {
    Fact::failed(UnavailableKind::Forbidden, "nodes is forbidden")
}

pub(crate) fn now(uptime: Duration) -> Now {
    let wall = UtcDateTime::from_unix_timestamp(1_795_000_000).unwrap();
    Now {
        uptime,
        wall,
        random: Random::from_bits(u64::MAX / 2),
    }
}

fn observation() -> Observation {
    let node = json!({
        "metadata": {"name": VM, "uid": "node-uid", "resourceVersion": "7"},
        "spec": {}
    });
    Observation {
        machine: Machine {
            kernel_hostname: Fact::Known(VM.to_owned()),
            static_hostname: Fact::Known(VM.to_owned()),
            platform_hostname: Fact::Known(VM.to_owned()),
            product_uuid: Fact::Known(firmware_uuid(VM)),
            product_serial: Fact::Absent,
            nics: Fact::Known(vec![Nic {
                name: "eth0".to_owned(),
                address: Mac::parse(MAC),
                driver: Some("virtio_net".to_owned()),
                announce: Announce::Negotiated,
            }]),
            vendor: Fact::Known(Vendor {
                sys_vendor: "KubeVirt".to_owned(),
                product_family: "KubeVirt".to_owned(),
            }),
            machine_id: Fact::Known("0123456789abcdef0123456789abcdef".to_owned()),
        },
        distributions: Vec::new(),
        kubelet: Fact::Known(Kubelet {
            kubeconfig: "/var/lib/rancher/rke2/agent/kubelet.kubeconfig".into(),
            server: "https://127.0.0.1:6443".to_owned(),
            node_name: NodeName::parse(VM).unwrap(),
            account: None,
            expires: None,
        }),
        node: Fact::Known(serde_json::from_value(node).unwrap()),
        harvester: Fact::Known(Harvester {
            kubeconfig: "/etc/kubernetes/cloud-config".into(),
            server: "https://192.0.2.1:6443".to_owned(),
            namespace: Namespace::parse("default").unwrap(),
            account: Some("system:serviceaccount:default:gc8".to_owned()),
            expires: None,
            secret: None,
        }),
        candidates: Fact::Known(Candidates {
            vmis: vec![vmi()],
            coverage: Coverage::Namespace,
        }),
        host_metrics: Fact::failed(UnavailableKind::NotAsked, "not needed"),
        pod_info: Fact::Absent,
        guest_agent: Fact::Known(GuestAgent {
            unit: Fact::Known(Unit {
                name: "qemu-guest-agent.service".to_owned(),
                state: UnitState::Active,
                enablement: Enablement::Static,
                shown: "running, static".to_owned(),
                restarts: Some(0),
            }),
            has_channel: true,
            family: Family::Debian,
            is_requested: false,
        }),
        vm: Fact::failed(UnavailableKind::NotAsked, "not needed"),
        clock: ClockSteps::default(),
        is_unread: false,
        findings: Vec::new(),
    }
}

fn vmi() -> Vmi {
    Vmi {
        name: VmName::parse(VM).unwrap(),
        namespace: Namespace::parse("default").unwrap(),
        uid: "vmi-uid".to_owned(),
        resource_version: None,
        vm_uid: Some("vm-uid".to_owned()),
        hostname: None,
        firmware_uuid: Some(firmware_uuid(VM)),
        serial: None,
        macs: BTreeSet::from([Mac::parse(MAC).unwrap()]),
        host: Some(host("hv-a")),
        annotated_by_harvester: false,
        announcements: Announcements::default(),
        guest_agent: HostView::Connected,
        annotated_host: None,
        annotations: HostLabels::default(),
        active_pods: Vec::new(),
    }
}

/// A live migration that was announced.
pub(crate) fn planned_event() -> ScheduledEvent {
    ScheduledEvent {
        id: "6f0f3f0c-2c0b-5f5e-9d0e-6a6b0f5b7c19".into(),
        time: "2026-11-24T10:00:00Z".into(),
        state: ScheduledEventState::Planned,
        kind: ScheduledEventType::LiveMigration,
        reason: ScheduledEventReason::Eviction,
        source: "status.evacuationNodeName".into(),
        host: None,
        target_host: None,
        start_time: None,
        deadline: None,
        message: None,
    }
}
