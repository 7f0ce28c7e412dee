// SPDX-License-Identifier: Apache-2.0
//! The machine moves, or only seems to.

use std::time::{Duration, Instant};

use harvester_lab::harvester::Order;
use harvester_lab::world::always;
use serde_json::json;

use crate::figures::Figures;
use crate::inside::micros;
use crate::stage::{Migration, Stage, Telling, wall_clock};
use crate::{HOST, REGION, ZONE};

/// How the first record of a move begins.
pub(super) const SIGN: &str = "possible live migration (link";

pub async fn annotations_that_lag_are_waited_for_and_labels_move_in_one_patch(
    stage: &mut Stage,
    _figures: &mut Figures,
) {
    stage.settled().await;
    stage.synced().await;
    for (to, order) in [("hv-c", Order::UpTo1_5), ("hv-a", Order::From1_6)] {
        stage.begin().await;
        stage.world.recorder.clear();
        let patches = label_patches(stage).await;
        let telling = Telling {
            order,
            annotations: Duration::from_secs(2),
            ..Telling::default()
        };
        let moved = stage.migrate(to, telling).await;
        stage.labelled(to).await;
        let records = stage.recorded("labeled in").await;
        print_journal(stage, &moved).await;
        let told = |text: &str| {
            let text = text.to_owned();
            records.iter().position(|one| one.message().contains(&text))
        };
        let (sign, moved) = (told(SIGN), told("migrated from Harvester host"));
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
    _: &mut Figures,
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
    let telling = Telling {
        before: Duration::from_secs(8),
        ..Telling::default()
    };
    let migration = stage.migrate("hv-b", telling).await;
    stage.labelled("hv-b").await;
    let stopped = migration.resumed_in_guest();
    let records = stage.recorded("scheduled event: ").await;
    let states = records
        .iter()
        .filter(|one| !one.field("HNA_EVENT_STATE").is_empty());
    let states: Vec<_> = states
        .map(|one| {
            let before = (stopped - one.sent_at()) as f64 / 1e6;
            println!("{before:.1} s before the machine stops: {}", one.message());
            (one.field("HNA_EVENT_STATE"), before)
        })
        .collect();
    let planned = states.iter().find(|(state, _)| *state == "planned");
    assert!(
        planned.is_some_and(|(_, before)| *before > 0.0),
        "{states:?}"
    );
    let shown = format!("date --reference={RAN} +%s%6N; cat {RAN}");
    let ended = stage.inside.sh(&shown).await;
    let (at, environment) = ended.split_once('\n').unwrap();
    let before = (stopped - at.parse::<i128>().unwrap()) as f64 / 1e6;
    println!("{before:.1} s before the machine stops: the hook has completed");
    assert!(before > 0.0, "{ended}");
    assert!(environment.contains("hv-b"), "{environment}");
    stage
        .inside
        .sh(&format!("rm -r {HOOKS}/planned {RAN}"))
        .await;
    stage.migrate("hv-a", Telling::default()).await;
    stage.labelled("hv-a").await;
}

/// The journal of one migration, and the times of what the guest cannot see.
async fn print_journal(stage: &mut Stage, migration: &Migration) {
    let resumed = micros(migration.moved.resumed);
    let shown = micros(wall_clock(migration.shown));
    println!(
        "QEMU resumed the machine at {:.6} of the guest's clock, after {} ms in which none ran; Harvester's API showed the move {} ms later",
        (migration.resumed_in_guest() % 60_000_000) as f64 / 1e6,
        migration.moved.downtime.as_millis(),
        (shown - resumed) / 1000
    );
    println!("{}", stage.inside.journal(&stage.began).await);
}

/// The agent's PATCHes of the Node's metadata so far.
pub(super) async fn label_patches(stage: &Stage) -> usize {
    label_patch_times(stage).await.len()
}

/// A migration that is given up, and a pause: the guest has no sign of either, and nothing is written.
pub async fn a_cancelled_migration_and_a_pause_write_nothing(stage: &mut Stage, _: &mut Figures) {
    stage.settled().await;
    stage.synced().await;
    stage.begin().await;
    let written = node_writes(stage).await;
    let (harvester, vm) = (stage.world.harvester.clone(), stage.world.vm.clone());
    let begun = harvester.prepare_migration(&vm, "hv-b").await.unwrap();
    stage.machine.cancel_migration().await;
    harvester.end_as_failed(&begun, "cancelled").await.unwrap();

    stage.machine.monitor().execute("stop", json!({})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.machine.monitor().execute("cont", json!({})).await;
    let unwritten = || async { node_writes(stage).await == written };
    always(Duration::from_secs(5), "the Node is not written", unwritten).await;
    // Only what Harvester announces is reported.
    let mut records = stage.records().await;
    records.retain(|record| !record.message().starts_with("scheduled event: "));
    assert!(records.is_empty(), "{records:#?}");
}

/// The writes of the agent so far, without Events.
async fn node_writes(stage: &Stage) -> usize {
    let writes = stage.world.agent_writes().await;
    let of_node = writes
        .iter()
        .filter(|write| !write.path.ends_with("/events"));
    of_node.count()
}

/// Saved to a file and restored on the same host: the signal is the same, but nothing moved.
pub async fn a_restored_machine_is_reported_as_unconfirmed(stage: &mut Stage, _: &mut Figures) {
    stage.settled().await;
    stage.synced().await;
    stage.begin().await;
    let patches = label_patches(stage).await;
    // Announcements within two seconds of each other are those of one move, and the guest's time stands still while it is saved.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let saved_for = stage.machine.save_and_restore().await;
    println!("nobody ran for {} ms", saved_for.as_millis());
    stage.reattach().await;
    let records = stage.recorded("after hint link (").await;
    for record in &records {
        println!("{}", record.message());
    }
    assert!(records[0].message().starts_with(SIGN), "{records:?}");
    assert_eq!(label_patches(stage).await, patches);
    stage.labelled("hv-a").await;
}

/// The move happens while nobody can tell where to. The labels stay until somebody can.
pub async fn a_move_while_harvester_is_away_is_followed_when_it_is_back(
    stage: &mut Stage,
    _: &mut Figures,
) {
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
    stage.migrate("hv-a", Telling::default()).await;
    stage.labelled("hv-a").await;
}

/// The connections do not survive the move, and nobody says so: neither side closes them. New ones work.
pub async fn a_watch_that_is_half_open_after_the_move_is_replaced(
    stage: &mut Stage,
    _: &mut Figures,
) {
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
        let resumed = Instant::now();
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
        println!(
            "labelled {:.1} s after the move began",
            resumed.elapsed().as_secs_f64()
        );
        stage.recorded(SIGN).await;
        // The recorder's own watch was cut as well; the next scenario wants it whole.
        stage.world.guest_api.lab().drop_connections();
        stage.world.harvester_api.lab().drop_connections();
        stage.world.harvester.admin().hang_up();
        stage.world.guest_admin.hang_up();
        stage.synced().await;
    }
}

/// The other scenarios prove something only if an agent without link signal, channel and watch misses a move: labels stay.
pub async fn without_any_hint_a_move_is_not_seen(stage: &mut Stage, _: &mut Figures) {
    stage.settled().await;
    stage.synced().await;
    stage.begin().await;
    stage.migrate("hv-b", Telling::default()).await;
    let unseen = || async { stage.world.node_label(HOST).await.as_deref() == Some("hv-a") };
    always(Duration::from_secs(15), "labels of the old host", unseen).await;
    let records = stage.records().await;
    assert!(records.is_empty(), "{records:#?}");
}

/// When the agent's PATCHes of the Node's metadata arrived.
pub(super) async fn label_patch_times(stage: &Stage) -> Vec<Instant> {
    let writes = stage.world.agent_writes().await;
    let of_labels = writes
        .iter()
        .filter(|write| write.verb == "patch" && !write.path.ends_with("/status"));
    of_labels.map(|write| write.at).collect()
}
