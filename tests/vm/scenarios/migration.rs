// SPDX-License-Identifier: Apache-2.0
//! The machine moves, or only seems to.

use std::time::{Duration, Instant};

use harvester_lab::harvester::Order;
use harvester_lab::server::RequestRecord;
use harvester_lab::world::eventually;
use serde_json::json;

use crate::inside::Record;
use crate::stage::{Stage, Telling};
use crate::{HOST, LIMIT, REGION, ZONE};

/// How the first record of a move begins.
const SIGN: &str = "possible live migration (link";

/// Whether the guest's own signal of a move is told.
pub(super) fn is_sign(record: &Record) -> bool {
    record.message().starts_with(SIGN)
}

pub async fn annotations_that_lag_are_waited_for_and_labels_move_in_one_patch(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    for (to, order) in [("hv-c", Order::UpTo1_5), ("hv-a", Order::From1_6)] {
        stage.begin().await;
        stage.world.recorder.clear().await;
        let patches = label_patches(stage).await;
        let telling = Telling {
            order,
            annotations: Duration::from_secs(2),
        };
        stage.migrate(to, telling).await;
        stage.labelled(to).await;
        let records = stage.recorded("labeled in").await;
        let told = |text: &str| {
            let text = text.to_owned();
            records.iter().position(|one| one.message().contains(&text))
        };
        let (sign, moved) = (told(SIGN), told("Harvester host changed from"));
        assert!(sign.is_some() && sign < moved, "{records:?}");
        let seen = stage.world.recorder.combinations(&[REGION, ZONE, HOST]);
        assert!(seen.len() <= 2, "{order:?}: {seen:?}");
        assert_eq!(label_patches(stage).await - patches, 1, "{order:?}");
    }
}

/// Harvester announces a migration when it makes the target pod, which takes seconds to start. Until the machine stops, the journal
/// has told of it and the hook for it has run.
pub async fn a_planned_migration_is_announced_and_its_hook_runs_before_the_machine_stops(
    stage: &mut Stage,
) {
    const HOOKS: &str = "/etc/harvester-node-agent/hooks.d";
    const RAN: &str = "/run/hook-ran";
    stage.settled().await;
    stage.synced().await;
    stage.begin().await;
    let hook = format!(
        "mkdir -p {HOOKS}/planned && printf '#!/bin/sh\\nenv >{RAN}.new && mv {RAN}.new {RAN}\\n' >{HOOKS}/planned/10-note \
         && chmod 0755 {HOOKS}/planned/10-note"
    );
    stage.inside.sh(&hook).await;
    let announced = stage.announce("hv-b").await;
    let records = stage.recorded("scheduled event: ").await;
    let state = |one: &Record| one.field("HNA_EVENT_STATE") == "planned";
    assert!(records.iter().any(state), "{records:?}");
    let environment = stage.inside.until(&format!("cat {RAN}")).await;
    assert!(environment.contains("hv-b"), "{environment}");
    let telling = Telling::default();
    stage.migrate_as(&announced, "hv-b", telling).await;
    stage.labelled("hv-b").await;
    let remove = format!("rm -r {HOOKS}/planned {RAN}");
    stage.inside.sh(&remove).await;
}

/// The agent's PATCHes of the Node's metadata so far.
pub(super) async fn label_patches(stage: &Stage) -> usize {
    label_patch_times(stage).await.len()
}

/// A migration that is given up, and a pause: the guest has no sign of either, and nothing is written.
pub async fn a_cancelled_migration_and_a_pause_write_nothing(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    stage.begin().await;
    let written = node_writes(stage).await.len();
    let (harvester, vm) = (stage.world.harvester.clone(), stage.world.vm.clone());
    let begun = harvester.prepare_migration(&vm, "hv-b").await.unwrap();
    stage.machine.cancel_migration().await;
    harvester.end_as_failed(&begun, "cancelled").await.unwrap();

    stage.machine.monitor().execute("stop", json!({})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.machine.monitor().execute("cont", json!({})).await;
    writes_nothing_until_a_change(stage, written).await;
    // Up to that change only what Harvester announces is reported.
    let records = stage.recorded("labeled in").await;
    let mut messages = records.iter().map(Record::message);
    let first = messages.find(|message| !message.starts_with("scheduled event: "));
    let is_label = first.is_some_and(|first| first.contains("labeled in"));
    assert!(is_label, "{records:#?}");
}

/// The host gets another label, and what the agent writes to the Node for that is the first after so many writes.
async fn writes_nothing_until_a_change(stage: &Stage, written: usize) {
    follows_another_rack(stage).await;
    let writes = node_writes(stage).await;
    assert!(is_of_labels(&writes[written]), "{:#?}", &writes[written..]);
}

/// The rack of the host changes and changes back; Harvester copies it into the annotations of the VM at the next update.
async fn follows_another_rack(stage: &Stage) {
    for rack in ["rack-z", "rack-a"] {
        let (harvester, vm) = (stage.world.harvester.clone(), stage.world.vm.clone());
        harvester
            .relabel_host("hv-a", &[(ZONE, Some(rack))])
            .await
            .unwrap();
        harvester.touch(&vm).await.unwrap();
        let what = format!("zone {rack}");
        eventually(LIMIT, &what, || async {
            stage.world.node_label(ZONE).await.as_deref() == Some(rack)
        })
        .await;
    }
}

/// The writes of the agent so far, without Events.
async fn node_writes(stage: &Stage) -> Vec<RequestRecord> {
    let mut writes = stage.world.agent_writes().await;
    writes.retain(|write| !write.path.ends_with("/events"));
    writes
}

fn is_of_labels(write: &RequestRecord) -> bool {
    write.verb == "patch" && !write.path.ends_with("/status")
}

/// Saved to a file and restored on the same host: the signal is the same, but nothing moved.
pub async fn a_restored_machine_is_reported_as_unconfirmed(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    stage.begin().await;
    let patches = label_patches(stage).await;
    // Announcements within two seconds of each other are those of one move, and the guest's time stands still while it is saved.
    tokio::time::sleep(Duration::from_secs(4)).await;
    stage.machine.save_and_restore().await;
    stage.reattach().await;
    let records = stage.recorded("after hint link (").await;
    for record in &records {
        println!("{}", record.message());
    }
    assert!(is_sign(&records[0]), "{records:?}");
    assert_eq!(label_patches(stage).await, patches);
    stage.labelled("hv-a").await;
}

/// The move happens while no API can tell where to. The labels stay until one can.
pub async fn a_move_while_harvester_is_away_is_followed_when_it_is_back(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    let (harvester, vm) = (stage.world.harvester.clone(), stage.world.vm.clone());
    let begun = harvester.prepare_migration(&vm, "hv-c").await.unwrap();
    let api = stage.world.harvester_api.lab();
    api.refuse_connections().await;
    api.drop_connections();
    stage.machine.migrate().await;
    "hv-c".clone_into(&mut stage.host);
    stage.reattach().await;
    stage.recorded(SIGN).await;
    stage.recorded("Harvester API is unreachable").await;
    assert_eq!(stage.world.node_label(HOST).await.as_deref(), Some("hv-a"));
    stage.world.harvester_api.lab().serve_again().await;
    harvester.copy_memory(&begun).await.unwrap();
    harvester.switch_host(&begun, Order::From1_6).await.unwrap();
    harvester
        .complete_migration(&begun, Order::From1_6)
        .await
        .unwrap();
    harvester.annotate(&vm).await.unwrap();
    harvester.clean_up_migration(&begun).await.unwrap();
    stage.labelled("hv-c").await;
    stage.recorded("resolved: harvester-unreachable").await;
}

/// The connections do not survive the move, and nothing says so: neither side closes them. New ones work.
pub async fn a_watch_that_is_half_open_after_the_move_is_replaced(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    for to in ["hv-b", "hv-a"] {
        stage.begin().await;
        let (harvester, vm) = (stage.world.harvester.clone(), stage.world.vm.clone());
        let begun = harvester.prepare_migration(&vm, to).await.unwrap();
        stage.world.harvester_api.lab().half_open();
        stage.world.guest_api.lab().half_open();
        // Those of the lab's own players are not part of the story.
        harvester.admin().hang_up();
        stage.world.guest_admin.hang_up();
        stage.machine.migrate().await;
        to.clone_into(&mut stage.host);
        stage.reattach().await;
        harvester.switch_host(&begun, Order::From1_6).await.unwrap();
        harvester
            .complete_migration(&begun, Order::From1_6)
            .await
            .unwrap();
        harvester.annotate(&vm).await.unwrap();
        harvester.clean_up_migration(&begun).await.unwrap();
        stage.labelled(to).await;
        stage.recorded(SIGN).await;
        // The recorder's own watch was cut as well; the next scenario wants it whole.
        stage.world.guest_api.lab().drop_connections();
        stage.world.harvester_api.lab().drop_connections();
        stage.world.harvester.admin().hang_up();
        stage.world.guest_admin.hang_up();
        stage.synced().await;
    }
}

/// When the agent's PATCHes of the Node's metadata arrived.
pub(super) async fn label_patch_times(stage: &Stage) -> Vec<Instant> {
    let writes = stage.world.agent_writes().await;
    let of_labels = writes.iter().filter(|write| is_of_labels(write));
    of_labels.map(|write| write.at).collect()
}
