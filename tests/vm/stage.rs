// SPDX-License-Identifier: Apache-2.0
//! A machine in a world: the lab is Harvester and guest cluster, QEMU the hosts, and both tell the same story.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use harvester_lab::admin::paths;
use harvester_lab::downward_metrics;
use harvester_lab::figures::Figures;
use harvester_lab::guest::Distribution;
use harvester_lab::harvester::{Migration as Announced, Order};
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::pod_info::POD_INFO;
use harvester_lab::real::Signer;
use harvester_lab::world::{
    CloudState, Registration, World, WorldOptions, condition_of, eventually,
};
use serde_json::{Value, json};

use crate::clocks::Clocks;
use crate::hardware::{Firmware, Hardware, Port};
use crate::inside::{Inside, Record, micros};
use crate::kubelet;
use crate::machine::{BOOT_LIMIT, Machine, Move};
use crate::seed::Seed;
use crate::witness::Witness;
use crate::{HOST, IDENTITY, LIMIT, REGION, Setup, TOPOLOGY, ZONE};

/// What scenarios need that run on one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Everything that the agent can use, and the lab's own API servers.
    Lab,
    /// A whole node: the kubelet in it registers at a real kube-apiserver of its version, and Harvester's is real too.
    Node(Kubernetes),
    /// No credential for Harvester, but a table of hosts; and a name that user-data chose.
    Alone,
    /// No credential for Harvester and no channel from the host, but the files of the pod through virtiofs.
    Shared,
    /// A machine that KubeVirt did not make.
    Plain,
}

/// A kubelet on an emulated processor needs a minute until its Node is ready.
pub const REGISTRATION: Duration = Duration::from_secs(300);

/// The name that user-data gives.
pub const WRONG_NAME: &str = "wrong-from-user-data";

/// One of the agent's own files.
const CONFIG: &str = "/etc/harvester-node-agent/config.d/50-test.toml";

/// The machine and the world around it.
#[derive(Debug)]
pub struct Stage {
    /// Both API servers, and who acts on them.
    pub world: World,
    /// The machine.
    pub machine: Machine,
    /// Commands in it.
    pub inside: Inside,
    /// What its journal is asked for to show what was written since the scenario began.
    pub began: String,
    /// The host that runs it.
    pub host: String,
    /// Whether no other scenario may follow on this machine.
    pub spent: bool,
    /// What was measured.
    pub figures: Figures,
    /// Where its logs are.
    pub logs: PathBuf,
    setting: Setting,
    /// Who signs the certificates for which the kubelet asks.
    _signer: Option<Signer>,
}

/// A live migration, as QEMU and the API show it.
#[derive(Debug, Clone)]
pub struct Migration {
    /// QEMU's part.
    pub moved: Move,
    /// When the API showed the new host, its region and its zone.
    pub annotated: Instant,
    /// How the guest's wall clock stood to the machine's, where times are measured.
    pub clocks: Option<Clocks>,
}

/// How Harvester tells of a live migration.
#[derive(Debug, Clone, Copy)]
pub struct Telling {
    /// The version of KubeVirt.
    pub order: Order,
    /// From there to the annotations.
    pub annotations: Duration,
}

/// From QEMU's end of a migration to the API's.
const TOLD_AFTER: Duration = Duration::from_millis(500);

/// From the end of a migration until the host's programs are connected to the machine's ports.
const LOOK_AFTER: Duration = Duration::from_millis(1500);

impl Default for Telling {
    fn default() -> Self {
        Self {
            order: Order::From1_6,
            annotations: Duration::ZERO,
        }
    }
}

impl Setting {
    /// Whether the machine is a node with a kubelet.
    pub fn is_node(self) -> bool {
        matches!(self, Self::Node(_))
    }

    /// Its name, also in figures.
    pub fn label(self) -> String {
        match self {
            Self::Node(version) => format!("node-{version}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// Boots a machine in this setting.
    pub async fn boot(self, setup: &Setup, logs: &Path) -> Stage {
        let world = match self {
            Self::Node(version) => World::real(version, node()).await,
            Self::Shared => World::lab(unlabelled()).await,
            _ => World::lab(WorldOptions::default()).await,
        };
        let firmware = match self {
            Self::Plain => Firmware::Plain,
            _ => Firmware::KubeVirt {
                uuid: world.vm.firmware_uuid.clone(),
                serial: world.vm.spec.serial.clone(),
            },
        };
        let signer = self
            .is_node()
            .then(|| world.guest_api.real().sign_kubelet_certificates());
        let image = setup.image.as_ref().filter(|_| !self.is_node());
        let disk = image.unwrap_or(&setup.base);
        let mut hardware = Hardware::new(setup, disk, firmware, &world.vm.spec.macs[0]);
        let mut seed = Seed::new(world.node_name(), &world.vm.firmware_uuid);
        if image.is_none() {
            seed = seed.installing(&setup.package);
        }
        match self {
            Self::Alone => {
                seed = seed
                    .with_kubelet(&world.guest)
                    .with_file(CONFIG, &table_of_hosts())
                    .with_user_data("hostname", WRONG_NAME.into());
            }
            Self::Shared => {
                hardware.ports = vec![Port::GuestAgent, Port::Witness];
                hardware.pod = Some(crate::scenarios::first_pod());
                let options = "ro,nosuid,nodev,noexec,nofail";
                seed = seed.with_kubelet(&world.guest).with_user_data(
                    "mounts",
                    json!([["podinfo", POD_INFO, "virtiofs", options]]),
                );
            }
            Self::Node(version) => {
                hardware.memory = 1280;
                seed = kubelet::add_to(seed, &world, version)
                    .with_user_data("hostname", WRONG_NAME.into());
            }
            Self::Lab | Self::Plain => seed = seed.with_credentials(&world.guest),
        }
        let mut machine = Machine::boot(hardware, &seed, logs).await;
        machine.runs_while_copied = setup.live;
        machine.port_opens(Port::GuestAgent, true, BOOT_LIMIT).await;
        let inside = Inside::new(machine.attach(Port::GuestAgent).await).await;
        let stage = Stage {
            world,
            machine,
            inside,
            began: String::new(),
            host: "hv-a".to_owned(),
            spent: false,
            figures: Figures::default(),
            logs: logs.to_owned(),
            setting: self,
            _signer: signer,
        };
        stage.attend().await;
        stage
    }
}

/// A node that its kubelet has yet to register, without a cloud provider.
fn node() -> WorldOptions {
    WorldOptions {
        distribution: Distribution::Kubeadm,
        cloud: CloudState::Absent,
        registration: Registration::Kubelet,
        ..WorldOptions::default()
    }
}

/// A node without a cloud provider: only the agent can label it.
fn unlabelled() -> WorldOptions {
    WorldOptions {
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    }
}

/// Region and zone of the hosts, by configuration.
fn table_of_hosts() -> String {
    let hosts = harvester_lab::world::HOSTS.iter();
    hosts
        .map(|(name, region, zone)| {
            format!("[hosts.{name}]\nregion = \"{region}\"\nzone = \"{zone}\"\n")
        })
        .collect()
}

impl Stage {
    /// Whether scenarios of this setting may be played here.
    pub fn fits(&self, setting: Setting) -> bool {
        self.setting == setting && !self.spent
    }

    /// A scenario begins: what is written from now on belongs to it.
    pub async fn begin(&mut self) {
        self.began = self.inside.cursor().await;
    }

    /// Waits until cloud-init has ended and the agent has done what it can.
    pub async fn settled(&mut self) {
        self.cloud_init_ended().await;
        self.started().await;
        if self.setting.is_node() {
            self.registered().await;
        }
    }

    /// Gives the machine its name, unless it has it, and waits until its kubelet has registered.
    pub async fn registered(&mut self) {
        let name = self.world.node_name().to_owned();
        let rename = format!("[ $(hostname) = {name} ] || hostnamectl hostname {name}");
        self.inside.until(&rename).await;
        let path = paths::node(&name);
        eventually(REGISTRATION, "the Node is ready", || async {
            let node = self.world.guest_admin.find(&path).await.unwrap();
            node.is_some_and(|node| condition_of(&node, "Ready")["status"] == "True")
        })
        .await;
    }

    /// Waits until the agent runs.
    pub async fn started(&mut self) {
        let running = "systemctl is-active harvester-node-agent";
        self.inside.until(running).await;
    }

    /// Waits until cloud-init has ended. Seldom asked: it needs the processor itself.
    pub async fn cloud_init_ended(&mut self) {
        let script = "until [ -e /run/cloud-init/result.json ]; do sleep 1; done";
        self.inside.sh(script).await;
    }

    /// Waits until the agent has labelled the Node and says so.
    pub async fn synced(&self) {
        for (kind, reason) in [(TOPOLOGY, "Synced"), (IDENTITY, "NamesMatch")] {
            self.condition_becomes(kind, "True", reason).await;
        }
        self.labelled(&self.host).await;
    }

    /// Waits until the agent itself says that it has nothing to write.
    pub async fn says_that_it_is_synced(&mut self) {
        let is_synced = |status: &Value| status["labels"]["state"] == "synced";
        let what = "the labels are right";
        self.inside.status_becomes(what, is_synced).await;
    }

    /// virt-handler serves the downward metrics, where there are any.
    async fn attend(&self) {
        if let Ok(port) = self.machine.try_attach(Port::DownwardMetrics).await {
            downward_metrics::attend(port, &self.host);
        }
    }

    /// Cuts the power, when all that was written is on the disk.
    pub async fn power_off(&mut self) {
        self.inside.sh("sync").await;
        self.machine.power_off().await;
    }

    /// Boots the machine anew from inside.
    pub async fn reboot(&mut self) {
        let since = SystemTime::now();
        // Later, so that the guest agent can answer.
        let reboot = "systemd-run --quiet --on-active=1 systemctl reboot";
        self.inside.sh(reboot).await;
        self.machine.comes_up_after(since).await;
        self.inside.sync().await;
    }

    /// The host's programs connect to the machine's ports anew, as after every start of QEMU.
    pub async fn reattach(&mut self) {
        self.inside = Inside::new(self.machine.attach(Port::GuestAgent).await).await;
        self.attend().await;
    }

    /// Whether the NIC has a carrier.
    pub async fn plug_cable(&mut self, up: bool) {
        let arguments = json!({"name": "net", "up": up});
        self.machine.monitor().execute("set_link", arguments).await;
    }

    /// A shell on the machine's second serial line, which needs no guest agent.
    pub async fn witness(&mut self) -> Witness {
        let port = self.machine.attach(Port::Witness).await;
        let shell = "systemd-run --quiet --unit=witness --collect --property=StandardInput=tty \
                     --property=StandardOutput=tty --property=TTYPath=/dev/ttyS1 /bin/sh";
        self.inside.sh(shell).await;
        Witness::new(port).await
    }

    /// Live-migrates the machine, and lets Harvester tell of it.
    pub async fn migrate(&mut self, to: &str, telling: Telling) -> Migration {
        let announced = self.announce(to).await;
        self.migrate_as(&announced, to, telling).await
    }

    /// Harvester tells that the machine will move.
    pub async fn announce(&mut self, to: &str) -> Announced {
        let began = self.world.harvester.prepare_migration(&self.world.vm, to);
        began.await.unwrap()
    }

    /// The move that was announced.
    pub async fn migrate_as(&mut self, began: &Announced, to: &str, telling: Telling) -> Migration {
        let (harvester, vm) = (self.world.harvester.clone(), self.world.vm.clone());
        harvester.copy_memory(began).await.unwrap();
        let moved = self.machine.migrate().await;
        let resumed = tokio::time::Instant::now();
        to.clone_into(&mut self.host);
        tokio::time::sleep_until(resumed + TOLD_AFTER).await;
        harvester.switch_host(began, telling.order).await.unwrap();
        harvester
            .complete_migration(began, telling.order)
            .await
            .unwrap();
        tokio::time::sleep(telling.annotations).await;
        harvester.annotate(&vm).await.unwrap();
        let annotated = Instant::now();
        harvester.clean_up_migration(began).await.unwrap();
        // virt-launcher asks the guest agent at intervals, and nothing waits for it.
        tokio::time::sleep_until(resumed + LOOK_AFTER).await;
        self.reattach().await;
        let mut clocks = None;
        if self.machine.runs_while_copied {
            clocks = Some(Clocks::relate(self.machine.monitor(), &mut self.inside).await);
        }
        self.set_clock().await;
        Migration {
            moved,
            annotated,
            clocks,
        }
    }

    /// The machine is on the host on which each scenario finds it.
    pub async fn comes_home(&mut self) {
        if self.host != "hv-a" {
            self.migrate("hv-a", Telling::default()).await;
            self.labelled("hv-a").await;
        }
    }

    /// The guest's clock lost the time for which it did not run; KubeVirt sets it at the end of a migration.
    async fn set_clock(&mut self) {
        let now = i64::try_from(micros(SystemTime::now()) * 1000).unwrap();
        let time = json!({"time": now});
        self.inside.execute("guest-set-time", time).await;
    }

    /// Waits until the Node's labels are those of a host.
    pub async fn labelled(&self, host: &str) {
        let (_, _, zone) = harvester_lab::world::HOSTS
            .iter()
            .find(|(name, ..)| *name == host)
            .unwrap();
        let what = format!("labels of {host}");
        eventually(LIMIT, &what, || async {
            let node = self.world.node().await;
            let labels = &node["metadata"]["labels"];
            labels[HOST] == host && labels[ZONE] == *zone
        })
        .await;
    }

    /// Waits until the Node's region and zone are those of a host.
    pub async fn placed(&self, host: &str) {
        let (_, region, zone) = harvester_lab::world::HOSTS
            .iter()
            .find(|(name, ..)| *name == host)
            .unwrap();
        let what = format!("region and zone of {host}");
        eventually(LIMIT, &what, || async {
            let node = self.world.node().await;
            let labels = &node["metadata"]["labels"];
            labels[REGION] == *region && labels[ZONE] == *zone
        })
        .await;
    }

    /// Waits until a condition of the Node is so.
    pub async fn condition_becomes(&self, kind: &str, status: &str, reason: &str) {
        let what = format!("condition {kind}={status} ({reason})");
        eventually(LIMIT, &what, || async {
            let condition = self.world.condition(kind).await.unwrap_or(Value::Null);
            condition["status"] == status && condition["reason"] == reason
        })
        .await;
    }

    /// What the agent wrote to the journal since the scenario began.
    pub async fn records(&mut self) -> Vec<Record> {
        let began = self.began.clone();
        self.inside.records(&began).await
    }

    /// Waits until the agent has written a record since the scenario began; all of that time.
    pub async fn recorded(&mut self, message: &str) -> Vec<Record> {
        let began = self.began.clone();
        self.inside.recorded(&began, message).await
    }

    /// Leaves the guest's journal beside the other logs.
    pub async fn keep_journal(&mut self) {
        let script = "journalctl --boot --output=short-monotonic --no-hostname --lines=4000";
        let text = self.inside.run(script).await.text;
        std::fs::write(self.logs.join("journal"), text).unwrap();
    }
}

/// When an instant of this process was, by the wall clock.
pub fn wall_clock(at: Instant) -> SystemTime {
    SystemTime::now() - at.elapsed()
}
