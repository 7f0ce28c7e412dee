// SPDX-License-Identifier: Apache-2.0
//! The causes behind the reports, each made in a world of its own.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use harvester_lab::admin::paths;
use harvester_lab::bus::{Bus, Systemd};
use harvester_lab::faults::{Fault, Matcher, ServerCertificate};
use harvester_lab::harvester::{Firmware, VmSpec};
use harvester_lab::process::Agent;
use harvester_lab::server::User;
use harvester_lab::world::{
    ACCOUNT, AGENT, CloudState, NAMESPACE, VM_NAME, World, WorldOptions, eventually,
};
use harvester_node_agent::facts::names::rancher_truncation;
use serde_json::json;

use crate::doctor_conflicts::{addresses, conditions, uninitialized};
use crate::doctor_credentials::{HARVESTER, edit};
use crate::{REGION, REGION_BETA, SOON, ZONE, ZONE_BETA, lab, serve};

const CLOUD_PROVIDER: &str = "rancher/harvester-cloud-provider";

/// A token as Rancher makes them.
const RANCHER_TOKEN: &str = "kubeconfig-u-abcde:CANARYCANARY";

/// A world in which something is wrong.
pub(super) struct Scene {
    /// The agent that has met it, where a single look cannot. Ends first: it must not write below the tree of the world while that is
    /// removed.
    agent: Option<Agent>,
    /// The system bus of the guest, and systemd on it.
    _bus: Option<(Bus, Systemd)>,
    pub(super) world: World,
}

impl Scene {
    pub(super) fn is_served(&self) -> bool {
        self.agent.is_some()
    }
}

impl From<World> for Scene {
    fn from(world: World) -> Self {
        Self {
            world,
            _bus: None,
            agent: None,
        }
    }
}

async fn standard() -> World {
    World::lab(WorldOptions::default()).await
}

async fn of_vm(vm: VmSpec) -> World {
    let options = WorldOptions {
        vm,
        ..WorldOptions::default()
    };
    World::lab(options).await
}

/// A standard world with one more pod on the Node.
async fn with_pod(image: &str, tag: &str) -> World {
    let world = standard().await;
    world.run_pod("pod", &format!("{image}:{tag}")).await;
    world
}

/// A guest that has a name which its VM does not know of, as from `hostname:` in the user-data.
async fn renamed(hostname: &str, cloud: CloudState) -> World {
    let mut vm = VmSpec::named(VM_NAME);
    vm.hostname = Some(hostname.to_owned());
    let options = WorldOptions {
        vm,
        cloud,
        ..WorldOptions::default()
    };
    let world = World::lab(options).await;
    let instance = paths::vmi(NAMESPACE, VM_NAME);
    let patch = json!({"spec": {"hostname": null}});
    let admin = world.harvester.admin();
    admin.merge_patch(&instance, &patch).await.unwrap();
    world.guest.cloud_init(VM_NAME, &world.vm.firmware_uuid);
    world
}

/// A standard world, but that no cloud provider has seen the Node.
async fn without_cloud_provider() -> World {
    let options = WorldOptions {
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    };
    World::lab(options).await
}

/// What KubeVirt knows of the VM's NICs without its guest agent.
async fn without_addresses(world: &World) {
    conditions(world, json!([])).await;
    let path = paths::vmi(NAMESPACE, VM_NAME);
    let mac = &world.vm.spec.macs[0];
    let interfaces = json!([{"name": "nic-0", "mac": mac, "infoSource": "domain"}]);
    let patch = json!({"status": {"interfaces": interfaces}});
    let admin = world.harvester.admin();
    admin.merge_patch(&path, &patch).await.unwrap();
}

// ---- versions ----

pub(super) async fn cloud_provider_before_topology() -> Scene {
    let world = with_pod(CLOUD_PROVIDER, "v0.1.3").await;
    let none = [REGION, ZONE, REGION_BETA, ZONE_BETA].map(|key| (key, None));
    world.relabel_node("lab", &none).await;
    world.into()
}

pub(super) async fn cloud_provider_that_looks_once() -> Scene {
    let world = with_pod(CLOUD_PROVIDER, "v0.1.5").await;
    world.migrate("hv-b").await;
    world.into()
}

pub(super) async fn cloud_provider_that_meets_other_clusters() -> Scene {
    let world = with_pod(CLOUD_PROVIDER, "v0.2.1").await;
    let mut other = VmSpec::named("gc9-pool1-x7k2p");
    other.cluster = Some("gc9".to_owned());
    world.harvester.create_vm(other, "hv-b").await.unwrap();
    world.into()
}

// ---- names ----

pub(super) async fn hostname_from_user_data() -> Scene {
    renamed("renamed", CloudState::Initialised).await.into()
}

pub(super) async fn renamed_node_without_a_cloud_provider() -> Scene {
    let world = renamed("renamed", CloudState::Absent).await;
    world
        .run_pod("ccm", &format!("{CLOUD_PROVIDER}:v0.2.0"))
        .await;
    uninitialized(&world).await;
    world.into()
}

pub(super) async fn name_cut_by_rancher() -> Scene {
    let cut = rancher_truncation(VM_NAME, 15).unwrap();
    renamed(&cut, CloudState::Initialised).await.into()
}

pub(super) async fn two_vms_of_one_template() -> Scene {
    let world = without_cloud_provider().await;
    let mut copy = VmSpec::named("gc8-pool1-copy");
    copy.serial.clone_from(&world.vm.spec.serial);
    copy.macs.clone_from(&world.vm.spec.macs);
    copy.firmware = Firmware::Fixed(world.vm.firmware_uuid.clone());
    world.harvester.create_vm(copy, "hv-b").await.unwrap();
    world.into()
}

pub(super) async fn two_vms_with_one_mac_address() -> Scene {
    let world = standard().await;
    let mut copy = VmSpec::named("gc8-pool1-copy").firmware(Firmware::Random);
    copy.macs.clone_from(&world.vm.spec.macs);
    world.harvester.create_vm(copy, "hv-b").await.unwrap();
    world.into()
}

pub(super) async fn machine_outside_of_harvester() -> Scene {
    let world = standard().await;
    world.guest.foreign_dmi("QEMU", "Standard PC");
    uninitialized(&world).await;
    world.into()
}

// ---- the VM and its host ----

pub(super) async fn vm_without_cluster() -> Scene {
    let mut vm = VmSpec::named(VM_NAME);
    vm.cluster = None;
    of_vm(vm).await.into()
}

pub(super) async fn vm_of_a_custom_cluster() -> Scene {
    of_vm(VmSpec::named(VM_NAME).created_by(None)).await.into()
}

/// A KubeVirt that no Harvester is around: no controller writes annotations, and there is no setting.
pub(super) async fn kubevirt_without_harvester() -> Scene {
    let mut vm = VmSpec::named(VM_NAME).created_by(None);
    vm.cluster = None;
    let world = of_vm(vm).await;
    let setting = "/apis/harvesterhci.io/v1beta1/settings/server-version";
    world.harvester.admin().delete(setting).await.unwrap();
    world.into()
}

pub(super) async fn vm_that_cannot_move() -> Scene {
    let world = standard().await;
    let refusal = json!({
        "type": "LiveMigratable", "status": "False", "reason": "HostDeviceNotLiveMigratable",
        "message": "VMI uses a PCI host devices",
    });
    let heard = json!({"type": "AgentConnected", "status": "True"});
    conditions(&world, json!([refusal, heard])).await;
    world.into()
}

// ---- the guest agent and addresses ----

pub(super) async fn image_without_guest_agent() -> Scene {
    let world = standard().await;
    world
        .guest
        .write("/etc/os-release", "ID=sles\nID_LIKE=suse\n");
    world.guest.remove("/usr/sbin/qemu-ga");
    without_addresses(&world).await;
    let bus = Bus::start(&world.guest).await;
    let systemd = Systemd::start(&bus, &[]).await;
    Scene {
        _bus: Some((bus, systemd)),
        ..world.into()
    }
}

pub(super) async fn guest_agent_that_is_not_heard() -> Scene {
    let world = standard().await;
    without_addresses(&world).await;
    world.into()
}

pub(super) async fn node_without_address() -> Scene {
    let world = standard().await;
    without_addresses(&world).await;
    let name = json!({"type": "Hostname", "address": VM_NAME});
    addresses(&world, json!([name])).await;
    world.into()
}

pub(super) async fn node_with_an_address_of_before() -> Scene {
    let world = standard().await;
    let stale = json!({"type": "InternalIP", "address": "192.0.2.77"});
    addresses(&world, json!([stale])).await;
    world.into()
}

// ---- the Node ----

pub(super) async fn no_cloud_provider() -> Scene {
    let world = without_cloud_provider().await;
    uninitialized(&world).await;
    // It would set the address too, which is a consequence.
    addresses(&world, json!([])).await;
    world.into()
}

pub(super) async fn cloud_provider_of_kubevirt() -> Scene {
    let world = without_cloud_provider().await;
    let image = "quay.io/kubevirt/kubevirt-cloud-controller-manager:v0.5.1";
    world.run_pod("kccm", image).await;
    let id = json!({"spec": {"providerID": format!("kubevirt://{VM_NAME}")}});
    let node = paths::node(world.node_name());
    world.guest_admin.merge_patch(&node, &id).await.unwrap();
    // It looks once, when the Node is new.
    let zone = [(REGION, Some("eu-1")), (ZONE, Some("rack-a"))];
    let manager = "kubevirt-cloud-controller-manager";
    world.relabel_node(manager, &zone).await;
    world.migrate("hv-b").await;
    world.into()
}

pub(super) async fn labels_of_the_host_before() -> Scene {
    let world = standard().await;
    world.migrate("hv-b").await;
    world.into()
}

// ---- credentials ----

pub(super) async fn token_of_rancher_that_ended() -> Scene {
    let world = standard().await;
    edit(&world, &world.token, RANCHER_TOKEN);
    world.into()
}

pub(super) async fn token_of_rancher_that_works() -> Scene {
    let world = standard().await;
    let user = User::service_account(NAMESPACE, ACCOUNT);
    lab(&world.harvester_api).add_token(RANCHER_TOKEN, user);
    edit(&world, &world.token, RANCHER_TOKEN);
    world.into()
}

pub(super) async fn directory_instead_of_credential() -> Scene {
    let world = standard().await;
    world.guest.remove(HARVESTER);
    std::fs::create_dir(world.guest.path(HARVESTER)).unwrap();
    world.into()
}

pub(super) async fn credential_without_content() -> Scene {
    let world = standard().await;
    world.guest.write_secret(HARVESTER, "");
    world.into()
}

pub(super) async fn credential_at_another_path() -> Scene {
    let world = standard().await;
    let text = world.guest.read(HARVESTER).unwrap();
    world.guest.remove(HARVESTER);
    let elsewhere = "/etc/kubernetes/cloud-config";
    world.guest.write_secret(elsewhere, text);
    world.into()
}

pub(super) async fn credential_that_is_no_file() -> Scene {
    let world = standard().await;
    world.guest.remove(HARVESTER);
    world.into()
}

pub(super) async fn credential_for_everybody() -> Scene {
    let world = standard().await;
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(world.guest.path(HARVESTER), open).unwrap();
    world.into()
}

// ---- Harvester's API ----

pub(super) async fn address_of_rancher() -> Scene {
    let world = standard().await;
    let url = world.harvester_api.endpoint().url;
    edit(&world, &url, &format!("{url}/k8s/clusters/local"));
    lab(&world.harvester_api).present(ServerCertificate::OtherAuthority);
    world.into()
}

pub(super) async fn server_of_another_name() -> Scene {
    let world = standard().await;
    lab(&world.harvester_api).present(ServerCertificate::OtherName);
    world.into()
}

pub(super) async fn vip_that_is_away() -> Scene {
    let world = standard().await;
    lab(&world.harvester_api).refuse_connections().await;
    world.into()
}

/// The host that answers at the VIP has an authority of its own.
pub(super) async fn vip_with_another_certificate() -> Scene {
    let world = standard().await;
    lab(&world.harvester_api).present(ServerCertificate::OtherAuthority);
    world.into()
}

/// What stands between the agent and Harvester lets each watch begin, and cuts it off soon after.
pub(super) async fn watches_that_are_cut() -> Scene {
    let world = standard().await;
    let agent = serve(&world).await;
    world.findings_become(&[]).await;
    let server = lab(&world.harvester_api);
    for _ in 0..4 {
        eventually(SOON, "a watch", async || server.watches_of(AGENT) > 0).await;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        server.drop_watches();
        eventually(SOON, "its end", async || server.watches_of(AGENT) == 0).await;
    }
    world.findings_become(&["watch-interrupted"]).await;
    Scene {
        agent: Some(agent),
        ..world.into()
    }
}

/// What stands between the agent and Harvester refuses each watch; all other requests are answered.
pub(super) async fn watch_that_is_refused() -> Scene {
    let world = standard().await;
    let watches = Matcher::path("virtualmachineinstances")
        .user_agent(AGENT)
        .verb("watch");
    let server = lab(&world.harvester_api);
    server.faults().inject(watches, Fault::html(502));
    let agent = serve(&world).await;
    world.findings_become(&["watch-unavailable"]).await;
    Scene {
        agent: Some(agent),
        ..world.into()
    }
}
