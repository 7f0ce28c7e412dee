// SPDX-License-Identifier: Apache-2.0
//! Names and evidence.

use harvester_lab::harvester::{Firmware, VmSpec};
use harvester_lab::process::Signal;
use harvester_lab::qga::Client;
use harvester_lab::virtio_port::VirtioPort;
use harvester_lab::world::{CloudState, Side, VM_NAME, World, WorldOptions, eventually};

use crate::channel::{PORT, resync};
use crate::{
    IDENTITY, On, SOON, TOPOLOGY, ZONE, agent, condition, condition_becomes, findings_become,
    label_becomes, on_both, serve,
};

on_both!(
    a_hostname_that_is_not_the_vms_is_one_condition_one_event_and_one_record,
    a_warning_that_no_condition_shows_is_one_event_also_after_a_restart,
    the_name_of_another_vm_is_an_error,
    the_name_of_another_vm_that_comes_later_is_an_error_too,
    two_vms_of_one_uuid_and_mac_cost_every_label_and_are_named,
    without_any_source_every_attempt_and_the_rbac_that_would_help_are_named,
    labels_follow_even_when_the_hostname_is_wrong,
    the_node_of_another_machine_is_left_alone_until_its_kubelet_runs_here,
    a_node_whose_name_has_a_domain_is_labeled_and_reported,
);

async fn a_hostname_that_is_not_the_vms_is_one_condition_one_event_and_one_record(on: On) {
    let world = on.world(WorldOptions::default()).await;
    world.guest.kernel_hostname("localhost");
    world.guest.static_hostname("localhost");
    let mut agent = serve(&world).await;
    condition_becomes(&world, IDENTITY, "False", "HostnameDiffers").await;
    findings_become(&world, &["hostname-differs"]).await;
    let record = |line: &harvester_lab::process::Line| line.text.contains("[hostname-differs]");
    agent.wait_line(record, SOON).await;
    let reason = "HostnameDiffers";
    let told = || async {
        let events = world.events().await;
        events
            .iter()
            .filter(|event| event["reason"] == reason)
            .count()
            == 1
    };
    eventually(SOON, "one Event", told).await;
    assert_eq!(
        agent.lines().iter().filter(|line| record(line)).count(),
        1,
        "{}",
        agent.transcript()
    );
    // Put right, it is taken back.
    world.guest.kernel_hostname(VM_NAME);
    world.guest.static_hostname(VM_NAME);
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
    agent
        .wait_line(
            |line| line.text.contains("resolved: hostname-differs"),
            SOON,
        )
        .await;
}

async fn a_warning_that_no_condition_shows_is_one_event_also_after_a_restart(on: On) {
    let world = on.world(WorldOptions::default()).await;
    world.guest.static_hostname("localhost");
    let count = async |reason: &str| {
        let events = world.events().await;
        let same = events.iter().filter(|event| event["reason"] == reason);
        same.count()
    };
    for (turn, to) in ["hv-b", "hv-c"].into_iter().enumerate() {
        let mut agent = serve(&world).await;
        condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
        findings_become(&world, &["static-hostname-differs"]).await;
        // Events are sent in order: with that of the migration, all earlier ones are sent.
        world.migrate(to).await;
        let is_announced = async || count("HostChanged").await == turn + 1;
        eventually(SOON, "the Event of the migration", is_announced).await;
        assert_eq!(count("StaticHostnameDiffers").await, 1);
        agent.signal(Signal::SIGTERM);
        agent.wait_exit(SOON).await;
    }
    let requests = world.agent_requests(Side::Guest).await;
    let refused = requests.iter().filter(|one| one.status == 409);
    let again = refused.filter(|one| one.body["reason"] == "StaticHostnameDiffers");
    assert_eq!(again.count(), 1, "the API server keeps the first one");
}

/// With `vm.example.org` as host name and Node name, the labels follow the VM, and the name is reported.
async fn a_node_whose_name_has_a_domain_is_labeled_and_reported(on: On) {
    let mut vm = VmSpec::named(VM_NAME);
    vm.fqdn = Some(format!("{VM_NAME}.example.org"));
    let world = on
        .world(WorldOptions {
            vm,
            ..WorldOptions::default()
        })
        .await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    condition_becomes(&world, IDENTITY, "False", "HostnameDiffers").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    findings_become(&world, &["hostname-differs"]).await;
    let doctor = crate::words(&agent(&world, &["doctor"]).await.stdout);
    assert!(doctor.contains(world.node_name()), "{doctor}");
    // With the same name in the configuration of the distribution, it is meant.
    world.guest.rancher_config(Some(world.node_name()));
    world.guest.kernel_hostname(VM_NAME);
    world.guest.static_hostname(VM_NAME);
    findings_become(&world, &["configured-override"]).await;
}

async fn the_name_of_another_vm_is_an_error(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let other = VmSpec::named("gc8-pool1-q99l7-other").firmware(Firmware::Random);
    world.harvester.create_vm(other, "hv-b").await.unwrap();
    world.guest.kernel_hostname("gc8-pool1-q99l7-other");
    let output = agent(&world, &["once"]).await;
    assert_eq!(output.code, Some(1));
    assert!(
        output.stderr.contains("[name-of-another-vm]"),
        "{}",
        output.stderr
    );
    assert_eq!(
        condition(&world, IDENTITY).await,
        Some(("False".to_owned(), "NameOfAnotherVm".to_owned()))
    );
}

async fn the_name_of_another_vm_that_comes_later_is_an_error_too(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let other = VmSpec::named("gc8-pool1-q99l7-other").firmware(Firmware::Random);
    world.harvester.create_vm(other, "hv-b").await.unwrap();
    let _agent = serve(&world).await;
    condition_becomes(&world, IDENTITY, "True", "NamesMatch").await;
    world.guest.kernel_hostname("gc8-pool1-q99l7-other");
    world.guest.static_hostname("gc8-pool1-q99l7-other");
    condition_becomes(&world, IDENTITY, "False", "NameOfAnotherVm").await;
    findings_become(&world, &["name-of-another-vm"]).await;
}

async fn two_vms_of_one_uuid_and_mac_cost_every_label_and_are_named(on: On) {
    let world = on
        .world(WorldOptions {
            cloud: CloudState::Absent,
            ..WorldOptions::default()
        })
        .await;
    let mut twin = VmSpec::named("gc8-pool1-clone");
    twin.serial.clone_from(&world.vm.spec.serial);
    twin.macs.clone_from(&world.vm.spec.macs);
    twin.firmware = Firmware::Fixed(world.vm.firmware_uuid.clone());
    world.harvester.create_vm(twin, "hv-b").await.unwrap();
    let output = agent(&world, &["once"]).await;
    assert_eq!(output.code, Some(1), "{}", output.stdout);
    assert!(
        output.stderr.contains("[identity-ambiguous]"),
        "{}",
        output.stderr
    );
    let both = ["default/gc8-pool1-clone", "default/gc8-pool1-q99l7-qwfz9"];
    assert!(
        both.iter().all(|name| output.stderr.contains(name)),
        "{}",
        output.stderr
    );
    let labelled = world
        .agent_writes()
        .await
        .into_iter()
        .filter(|write| !write.body["metadata"]["labels"].is_null());
    assert_eq!(labelled.count(), 0);
    assert_eq!(
        condition(&world, IDENTITY).await,
        Some(("False".to_owned(), "IdentityAmbiguous".to_owned()))
    );
    // Named in the configuration, it is no riddle any more.
    world
        .guest
        .agent_config("10-vm.toml", &format!("[harvester]\nvm = \"{VM_NAME}\"\n"));
    assert_eq!(agent(&world, &["once"]).await.code, Some(0));
    label_becomes(&world, crate::ZONE, "rack-a").await;
}

async fn without_any_source_every_attempt_and_the_rbac_that_would_help_are_named(on: On) {
    let vm = VmSpec::named(VM_NAME).created_by(None);
    let world = on
        .world(WorldOptions {
            vm,
            cloud: CloudState::Absent,
            ..WorldOptions::default()
        })
        .await;
    if on.labels_pods() {
        let whoami = crate::words(&agent(&world, &["whoami", "-v"]).await.stdout);
        assert!(whoami.contains("launcher-pod used"), "{whoami}");
        world.harvester.unlabel_pods(&world.vm).await.unwrap();
    }
    agent(&world, &["once"]).await;
    let whoami = agent(&world, &["whoami", "-v"]).await.stdout;
    let doctor = agent(&world, &["doctor"]).await.stdout;
    let said = crate::words(&format!("{whoami} {doctor}"));
    for text in [
        "[no-topology-source]",
        "host-node failed",
        "vmi-annotations empty",
        "launcher-pod empty",
        "configmap empty",
        "harvester-node-agent rbac > /root/rbac.yaml",
        "Permission get nodes in the cluster: denied",
        "Permission watch virtualmachineinstances.kubevirt.io in the namespace of the VM: allowed",
    ] {
        assert!(said.contains(text), "{text} is missing in\n{said}");
    }
}

async fn labels_follow_even_when_the_hostname_is_wrong(on: On) {
    let world = on.world(WorldOptions::default()).await;
    world.guest.kernel_hostname("localhost");
    let _agent = serve(&world).await;
    label_becomes(&world, crate::HOST, "hv-a").await;
    world.migrate("hv-b").await;
    label_becomes(&world, crate::ZONE, "rack-b").await;
}

async fn the_node_of_another_machine_is_left_alone_until_its_kubelet_runs_here(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut host_side = Client::new(VirtioPort::offer(&world.guest, PORT));
    report(&world, "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d").await;
    let _agent = serve(&world).await;
    host_side.ping().await;
    findings_become(&world, &["node-of-another-vm"]).await;
    world.migrate("hv-b").await;
    // The status is written after the Node.
    let is_known = || async { world.guest.status().unwrap()["placement"]["zone"] == "rack-b" };
    eventually(SOON, "the new zone in the status", is_known).await;
    assert!(world.agent_writes().await.is_empty());
    let ours = world.vm.firmware_uuid.to_string().to_uppercase();
    report(&world, &ours).await;
    resync(&mut host_side).await;
    label_becomes(&world, crate::ZONE, "rack-b").await;
    findings_become(&world, &[]).await;
}

/// Writes what a kubelet on the machine with this UUID reports.
async fn report(world: &World, uuid: &str) {
    let status = serde_json::json!({"status": {"nodeInfo": {"systemUUID": uuid}}});
    let path = harvester_lab::admin::paths::node(world.node_name());
    let admin = &world.guest_admin;
    admin.merge_patch_status(&path, &status).await.unwrap();
    // The agent's first read is served from the cache of the API server, which follows its storage.
    let cached = format!("{path}?resourceVersion=0");
    eventually(SOON, "the cache has the new status", async || {
        admin.get(&cached).await.unwrap()["status"]["nodeInfo"]["systemUUID"] == uuid
    })
    .await;
}

mod slow {
    use super::*;

    /// After up to a minute, as nothing tells of the status of a Node.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_node_of_another_machine_is_read_again_without_a_request() {
        let world = World::lab(WorldOptions::default()).await;
        report(&world, "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d").await;
        let _agent = serve(&world).await;
        findings_become(&world, &["node-of-another-vm"]).await;
        report(&world, &world.vm.firmware_uuid.to_string()).await;
        let is_found = || async { world.findings().is_empty() };
        eventually(SOON * 2, "the Node is ours", is_found).await;
    }
}
