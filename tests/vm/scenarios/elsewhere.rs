// SPDX-License-Identifier: Apache-2.0
//! Machines that are not as the agent would like them: no credential for Harvester, a wrong name from the beginning, the disk of
//! another machine, no Harvester at all.

use harvester_lab::admin::paths;
use harvester_lab::harvester::VmSpec;
use harvester_lab::world::{Side, eventually};
use serde_json::Value;

use crate::hardware::{Firmware, Port};
use crate::inside::UNIT;
use crate::machine::BOOT_LIMIT;
use crate::seed::Seed;
use crate::stage::{Stage, Telling, WRONG_NAME};
use crate::{HOST, IDENTITY, LIMIT, ZONE};

/// The host's name comes from KubeVirt's downward metrics, region and zone from a table. A move is followed all the same.
pub async fn downward_metrics_alone_lead_to_labels(stage: &mut Stage) {
    stage.settled().await;
    stage.labelled("hv-a").await;
    for to in ["hv-b", "hv-a"] {
        stage.begin().await;
        stage.migrate(to, Telling::default()).await;
        stage.labelled(to).await;
        for record in stage.recorded("labeled in").await {
            println!("{}", record.message());
        }
    }
    let asked = stage.world.agent_requests(Side::Harvester).await;
    assert!(asked.is_empty(), "{asked:#?}");
}

/// User-data gave the machine another name than the platform. It is told, with the proof, and the labels are written.
pub async fn a_name_from_user_data_is_reported_and_labels_are_written(stage: &mut Stage) {
    stage.settled().await;
    stage.labelled("hv-a").await;
    assert_eq!(stage.inside.sh("hostname").await, WRONG_NAME);
    stage
        .condition_becomes(IDENTITY, "False", "HostnameDiffers")
        .await;
    println!(
        "{}",
        stage
            .inside
            .run("harvester-node-agent whoami | head -5")
            .await
            .text
    );
    let right = stage.world.node_name().to_owned();
    stage
        .inside
        .until(&format!("hostnamectl hostname {right}"))
        .await;
    stage
        .condition_becomes(IDENTITY, "True", "NamesMatch")
        .await;
}

/// The disk of a machine that was a node for long, under another one: other firmware, other NIC, other seed. Nothing of what
/// the first one knew may be believed, and the first one's Node may not be written.
pub async fn a_clone_of_the_disk_is_a_machine_of_its_own(stage: &mut Stage) {
    stage.synced().await;
    stage.spent = true;
    let clone = stage
        .world
        .add_machine(VmSpec::named("gc8-pool1-q99l7-zz9zz"), "hv-b")
        .await;
    let name = clone.vm.guest_name().to_owned();
    let first = stage.world.node_resource_version().await;
    let seed = Seed::new(&name, &clone.vm.firmware_uuid).with_credentials(&clone.tree);
    let firmware = Firmware::KubeVirt {
        uuid: clone.vm.firmware_uuid.clone(),
        serial: clone.vm.spec.serial.clone(),
    };
    stage.power_off().await;
    stage.machine = stage
        .machine
        .boot_clone(firmware, &clone.vm.spec.macs[0], &seed)
        .await;
    stage
        .machine
        .port_opens(Port::GuestAgent, true, BOOT_LIMIT)
        .await;
    "hv-b".clone_into(&mut stage.host);
    stage.reattach().await;
    let status = stage
        .inside
        .until("test -s /run/harvester-node-agent/status.json")
        .await;
    assert_eq!(status, "");
    let is_itself = |status: &Value| {
        status["identity"]["vm"]["name"] == name && status["identity"]["state"] == "names-match"
    };
    let status = stage
        .inside
        .status_becomes("the clone is itself", is_itself)
        .await;
    println!("{:#}", status["identity"]["names"]);
    let path = paths::node(&name);
    eventually(LIMIT, "labels of the clone's Node", || async {
        let node = stage.world.guest_admin.get(&path).await.unwrap();
        node["metadata"]["labels"][HOST] == "hv-b" && node["metadata"]["labels"][ZONE] == "rack-b"
    })
    .await;
    let records = stage
        .inside
        .sh(&format!("journalctl --boot --output=cat --unit={UNIT}"))
        .await;
    println!("{records}");
    assert_eq!(stage.world.node_resource_version().await, first);
}

/// On a machine of another kind the service ends at once, sends no request, writes nothing, and the boot is none the worse.
pub async fn outside_of_kubevirt_it_is_inactive_and_harmless(stage: &mut Stage) {
    stage.cloud_init_ended().await;
    // It is started once more by user-data.
    let show = format!("systemctl show --property=ActiveState,ExecMainStatus {UNIT}");
    let ended = format!(
        r#"[ "$({show} | sort | tr '\n' ' ')" = "ActiveState=inactive ExecMainStatus=4 " ]"#
    );
    stage.inside.until(&ended).await;
    let shown = stage
        .inside
        .run(&format!("systemctl status --no-pager --lines=5 {UNIT}"))
        .await;
    println!("{}", shown.text);
    assert_eq!(
        stage.inside.run("pgrep -x harvester-node-agent").await.code,
        1
    );
    for side in [Side::Harvester, Side::Guest] {
        let asked = stage.world.agent_requests(side).await;
        assert!(asked.is_empty(), "{asked:#?}");
    }
    assert_eq!(stage.world.node_label(HOST).await, None);
}
