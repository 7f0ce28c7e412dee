// SPDX-License-Identifier: Apache-2.0
//! One world for one scenario: a Harvester side, a guest side, the players, the guest's file tree, and a record of every
//! version of the guest's Node.
//!
//! The standard story: hosts `hv-a`, `hv-b` (region `eu-1`) and `hv-c` (region `eu-2`), each its own rack; one VM on
//! `hv-a`, which is an RKE2 node that Rancher made and whose Node the cloud controller has initialised. Everything
//! in it can be changed before the agent starts, by [`WorldOptions`] and by the players.

use std::ffi::OsStr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::admin::{Admin, ApiError, paths};
use crate::cloud_controller::CloudController;
use crate::guest::{Distribution, GuestTree, KubeconfigForm};
use crate::harvester::{Harvester, Migration, Order, Vm, VmSpec};
use crate::kubernetes::Kubernetes;
use crate::pki::Identity;
use crate::process::Agent;
use crate::real::{RealApi, RealOptions, StaticToken};
use crate::server::{RequestRecord, Server, User};

mod api;
mod expect;
mod machine;
mod recorder;
mod wait;

pub use api::{Api, On};
pub use expect::SOON;
use machine::register_node;
pub use machine::{Machine, service_account_token};
pub use recorder::{NodeVersion, Recorder};
pub use wait::{always, eventually, found, nothing_is_missing};

/// The VM of the story, and the Node of the same name. The agent spreads reads after a reload, or after a change of a credential, over
/// ten seconds by the firmware UUID; that of this name comes first, after 17 ms.
pub const VM_NAME: &str = "gc8-pool1-q99l7-qwfz9";

/// Its namespace.
pub const NAMESPACE: &str = "default";

/// The service account of the guest cluster, which has the guest cluster's name.
pub const ACCOUNT: &str = "gc8";

/// How the User-Agent of the agent begins.
pub const AGENT: &str = "harvester-node-agent";

/// The hosts of the story with region and zone.
pub const HOSTS: [(&str, &str, &str); 3] = [
    ("hv-a", "eu-1", "rack-a"),
    ("hv-b", "eu-1", "rack-b"),
    ("hv-c", "eu-2", "rack-c"),
];

/// The namespace of what RKE2 brings along.
const SYSTEM: &str = "kube-system";

/// Between two looks of [`eventually`].
const POLL: Duration = Duration::from_millis(10);

/// Whether the cloud controller has seen the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudState {
    /// It has, and the Node carries provider id, region and zone under both keys.
    Initialised,
    /// There is none: no provider id, no topology, no beta keys.
    Absent,
}

/// What of the VM and its host the credential may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAccess {
    /// None, and not the VM either: a service account to which no role is bound.
    Nothing,
    /// Harvester's own role: VMIs and pods, no Nodes.
    Annotations,
    /// The hosts' Nodes too.
    Nodes,
}

/// Who makes the guest's Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// The world, as a kubelet does.
    World,
    /// A real kubelet, later.
    Kubelet,
}

/// What may differ from the standard story.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// The VM.
    pub vm: VmSpec,
    /// The distribution of the guest.
    pub distribution: Distribution,
    /// The form of the Harvester kubeconfig.
    pub form: KubeconfigForm,
    /// What the credential may read.
    pub access: HostAccess,
    /// The cloud controller.
    pub cloud: CloudState,
    /// Who makes the Node; a cloud controller can have seen it only when the world does.
    pub registration: Registration,
    /// Value of Harvester's setting `server-version`.
    pub server_version: String,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            vm: VmSpec::named(VM_NAME),
            distribution: Distribution::Rke2,
            form: KubeconfigForm::HarvesterApi,
            access: HostAccess::Annotations,
            cloud: CloudState::Initialised,
            registration: Registration::World,
            server_version: "v1.6.1".to_owned(),
        }
    }
}

/// Which API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Harvester's.
    Harvester,
    /// The guest cluster's.
    Guest,
}

/// A world.
#[derive(Debug)]
pub struct World {
    /// Every version of the guest's Node since the beginning.
    pub recorder: Recorder,
    /// The Harvester.
    pub harvester: Harvester,
    /// The cloud controller; it does nothing before [`CloudController::run`].
    pub cloud: CloudController,
    /// The guest's files.
    pub guest: GuestTree,
    /// The VM that the guest is.
    pub vm: Vm,
    /// The Harvester side.
    pub harvester_api: Api,
    /// The guest side.
    pub guest_api: Api,
    /// An administrator of the guest side.
    pub guest_admin: Admin,
    /// The kubelet's credential.
    pub kubelet: Identity,
    /// The service account's token.
    pub token: String,
    distribution: Distribution,
    form: KubeconfigForm,
    _dir: tempfile::TempDir,
}

impl World {
    /// The standard story on two API servers in this process.
    pub async fn lab(options: WorldOptions) -> Self {
        let namespace = &options.vm.namespace;
        let token = service_account_token(namespace, ACCOUNT);
        let harvester = Server::start(true).await;
        harvester.add_token(&token, User::service_account(namespace, ACCOUNT));
        let guest = Server::start(false).await;
        let (harvester, guest) = (Box::new(harvester), Box::new(guest));
        Self::build(Api::Lab(harvester), Api::Lab(guest), token, options).await
    }

    /// The standard story on two real API servers of a version.
    ///
    /// # Panics
    /// When they cannot be started; see [`RealApi::available`].
    pub async fn real(version: Kubernetes, options: WorldOptions) -> Self {
        Self::on_real(RealOptions::of(version), options).await
    }

    /// The same, with options of its own for both servers.
    ///
    /// # Panics
    /// As [`World::real`].
    pub async fn on_real(servers: RealOptions, options: WorldOptions) -> Self {
        let namespace = &options.vm.namespace;
        let token = service_account_token(namespace, ACCOUNT);
        let mut harvester = servers.clone();
        let account = StaticToken::service_account(&token, namespace, ACCOUNT);
        harvester.tokens.push(account);
        let (harvester, guest) = tokio::join!(
            RealApi::borrow("harvester", harvester),
            RealApi::borrow("guest", servers)
        );
        harvester
            .install_kubevirt_crds()
            .await
            .expect("a new server takes definitions");
        Self::build(Api::Real(harvester), Api::Real(guest), token, options).await
    }

    async fn build(harvester: Api, guest: Api, token: String, options: WorldOptions) -> Self {
        let access = options.access;
        let world = Self::populate(harvester, guest, token, options)
            .await
            .expect("the story can be told on two empty servers");
        // A lone agent need not be spread over a minute.
        let at_once = "[timing]\nwatch_delay = \"1s\"\n";
        world.guest.agent_config("00-lab.toml", at_once);
        let own = paths::vmi(&world.vm.spec.namespace, &world.vm.spec.name);
        world
            .wait_for_access(&own, access != HostAccess::Nothing)
            .await;
        match access {
            HostAccess::Nothing => {}
            HostAccess::Nodes => world.grant_host_nodes().await,
            HostAccess::Annotations => {
                let host = paths::node(HOSTS[0].0);
                world.wait_for_access(&host, false).await;
            }
        }
        world
    }

    async fn populate(
        harvester_api: Api,
        guest_api: Api,
        token: String,
        story: WorldOptions,
    ) -> Result<Self, ApiError> {
        let node_name = story.vm.guest_name().to_owned();
        let (host, region, zone) = HOSTS[0];
        let harvester = Harvester::new(&harvester_api.endpoint());
        harvester.install(&story.server_version).await?;
        harvester.create_namespace(&story.vm.namespace).await?;
        match story.access {
            // The server may have served a world before.
            HostAccess::Nothing => {
                harvester
                    .unbind_cloud_provider(&story.vm.namespace, ACCOUNT)
                    .await?;
            }
            HostAccess::Annotations | HostAccess::Nodes => {
                harvester
                    .bind_cloud_provider(&story.vm.namespace, ACCOUNT)
                    .await?;
            }
        }
        for (name, region, zone) in HOSTS {
            let labels = [(crate::names::REGION, region), (crate::names::ZONE, zone)];
            harvester.add_host(name, &labels).await?;
        }
        let vm = harvester.create_vm(story.vm.clone(), host).await?;

        let machine = Machine::make(&harvester_api, &guest_api, &token, vm, &story).await?;
        let guest_endpoint = guest_api.endpoint();
        let cloud = CloudController::new(&guest_endpoint);
        if story.cloud == CloudState::Initialised {
            let provider_id = machine.vm.provider_id();
            cloud
                .initialise(&node_name, &provider_id, Some(region), Some(zone))
                .await?;
        }
        let recorder = Recorder::start(&guest_endpoint, &node_name).await;
        Ok(Self {
            recorder,
            harvester,
            cloud,
            guest: machine.tree,
            vm: machine.vm,
            guest_admin: Admin::new(&guest_endpoint),
            harvester_api,
            guest_api,
            kubelet: machine.kubelet,
            token,
            distribution: story.distribution,
            form: story.form,
            _dir: machine.dir,
        })
    }

    /// One more VM with a Node and a file tree of its own, whose Node no cloud controller has seen.
    pub async fn add_machine(&self, spec: VmSpec, host: &str) -> Machine {
        let story = WorldOptions {
            distribution: self.distribution,
            form: self.form,
            ..WorldOptions::default()
        };
        let vm = self.harvester.create_vm(spec, host).await;
        let vm = vm.expect("the Harvester side is there");
        let (harvester, guest) = (&self.harvester_api, &self.guest_api);
        Machine::make(harvester, guest, &self.token, vm, &story)
            .await
            .expect("both sides are there")
    }

    /// Starts the agent on the guest's file tree.
    pub fn spawn_agent(&self, binary: impl AsRef<OsStr>, args: &[&str]) -> Agent {
        Agent::spawn(binary, self.guest.root(), args, &[])
    }

    /// Live-migrates the VM in the newer order, Harvester's annotations following at once.
    pub async fn migrate(&self, to: &str) -> Migration {
        self.harvester
            .migrate(&self.vm, to, Order::From1_6, Duration::ZERO)
            .await
            .expect("the Harvester side is there")
    }

    /// Lets the credential read the hosts' Nodes, and waits until that is in force.
    pub async fn grant_host_nodes(&self) {
        self.harvester
            .grant_host_nodes(&self.vm.spec.namespace, ACCOUNT)
            .await
            .expect("the Harvester side is there");
        self.wait_for_access(&paths::node(HOSTS[0].0), true).await;
    }

    /// Takes that away, and waits until it is gone.
    pub async fn revoke_host_nodes(&self) {
        self.harvester
            .revoke_host_nodes(&self.vm.spec.namespace, ACCOUNT)
            .await
            .expect("the Harvester side is there");
        self.wait_for_access(&paths::node(HOSTS[0].0), false).await;
    }

    /// Waits until the credential may, or may not, get `path`: the authoriser of a real server learns of a binding a moment
    /// after it was made.
    pub async fn wait_for_access(&self, path: &str, wanted: bool) {
        let endpoint = self.harvester_api.endpoint();
        let guest = Admin::with_token(&endpoint, "lab-access", &self.token);
        let denied = |answer: &Result<Value, ApiError>| {
            answer
                .as_ref()
                .is_err_and(|error| error.code() == Some(403))
        };
        eventually(SOON, "the credential's rights are as wanted", || async {
            denied(&guest.get(path).await) != wanted
        })
        .await;
    }

    /// Name of the guest's Node.
    #[must_use]
    pub fn node_name(&self) -> &str {
        self.vm.guest_name()
    }

    /// The guest's Node.
    pub async fn node(&self) -> Value {
        self.guest_admin
            .get(&paths::node(self.node_name()))
            .await
            .expect("the Node exists")
    }

    /// A label of the guest's Node.
    pub async fn node_label(&self, key: &str) -> Option<String> {
        text(&self.node().await["metadata"]["labels"][key])
    }

    /// An annotation of the guest's Node.
    pub async fn node_annotation(&self, key: &str) -> Option<String> {
        text(&self.node().await["metadata"]["annotations"][key])
    }

    /// A condition of the guest's Node.
    pub async fn condition(&self, kind: &str) -> Option<Value> {
        let node = self.node().await;
        let condition = condition_of(&node, kind);
        (!condition.is_null()).then(|| condition.clone())
    }

    /// The version of the guest's Node, which stands still as long as no client writes.
    pub async fn node_resource_version(&self) -> String {
        text(&self.node().await["metadata"]["resourceVersion"]).unwrap_or_default()
    }

    /// All Events of the guest cluster.
    pub async fn events(&self) -> Vec<Value> {
        self.guest_admin
            .list("/apis/events.k8s.io/v1/events")
            .await
            .expect("the guest side is there")
    }

    /// Changes labels of the guest's Node as a client with this User-Agent; `None` removes one.
    pub async fn relabel_node(&self, manager: &str, labels: &[(&str, Option<&str>)]) {
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let patch = json!({"metadata": {"labels": labels}});
        Admin::named(&self.guest_api.endpoint(), manager)
            .merge_patch(&paths::node(self.node_name()), &patch)
            .await
            .expect("the Node exists");
    }

    /// Runs a pod with this image on the guest's Node, in `kube-system`.
    pub async fn run_pod(&self, name: &str, image: &str) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": SYSTEM},
            "spec": {
                "nodeName": self.node_name(),
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": image}],
            },
        });
        let admin = &self.guest_admin;
        let made = async {
            admin
                .create_if_absent("/api/v1/namespaces", &namespace)
                .await?;
            admin.create(&paths::core(SYSTEM, "pods"), &pod).await
        };
        made.await.expect("the guest side is there");
    }

    /// Deletes the guest's Node and registers it again, bare, as a kubelet does.
    pub async fn recreate_node(&self) {
        let path = paths::node(self.node_name());
        self.guest_admin
            .delete(&path)
            .await
            .expect("the Node exists");
        let endpoint = self.guest_api.endpoint();
        let as_kubelet = Admin::with_identity(&endpoint, "kubelet", &self.kubelet);
        register_node(&as_kubelet, self.node_name(), &self.vm.spec.address())
            .await
            .expect("a kubelet may register its Node");
    }

    /// What the agent asked of one side, oldest first.
    pub async fn agent_requests(&self, side: Side) -> Vec<RequestRecord> {
        let api = match side {
            Side::Harvester => &self.harvester_api,
            Side::Guest => &self.guest_api,
        };
        api.requests_of(AGENT).await
    }

    /// What the agent wrote, or tried to write, on both sides.
    pub async fn agent_writes(&self) -> Vec<RequestRecord> {
        let mut requests = self.agent_requests(Side::Harvester).await;
        requests.extend(self.agent_requests(Side::Guest).await);
        requests.retain(RequestRecord::is_write);
        requests.sort_by_key(|request| request.at);
        requests
    }
}

/// A condition of a Node; null when it has none of this type.
#[must_use]
pub fn condition_of<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let conditions = node["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|one| one["type"] == kind));
    found.unwrap_or(&Value::Null)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
