// SPDX-License-Identifier: Apache-2.0
//! The machine moves, or only seems to.

use std::time::{Duration, Instant};

use harvester_lab::harvester::Order;
use harvester_lab::world::always;
use serde_json::json;

use crate::figures::Figures;
use crate::inside::micros;
use crate::stage::{Migration, Stage, Telling, wall_clock};
use crate::table::Figure;
use crate::{HOST, REGION, ZONE};

const MOVES: usize = 20;

/// How many of these the observer watches.
const OBSERVED: usize = 5;

/// Another program in the guest that listens to the same announcement.
const OBSERVER: &str = "observer";

const TO_ANNOUNCEMENT: &str = "resume to the kernel's announcement";
const TO_RECORD: &str = "resume to first record";
const TO_JOURNAL: &str = "resume to first record in the journal";
const TO_OBSERVER: &str = "resume to the line of ip monitor";
const TO_LABEL: &str = "API shows the new host's zone to label written";
const DOWNTIME: &str = "downtime of a migration";

/// How the first record of a move begins.
const SIGN: &str = "sign of a live migration (link";

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
        let records = stage.recorded("labelled in").await;
        print_journal(stage, &moved).await;
        let told = |text: &str| {
            let text = text.to_owned();
            records.iter().position(|one| one.message().contains(&text))
        };
        let (sign, moved) = (told(SIGN), told(&format!("to {to}")));
        assert!(sign.is_some() && sign < moved, "{records:?}");
        let seen = stage.world.recorder.combinations(&[REGION, ZONE, HOST]);
        assert!(seen.len() <= 2, "{order:?}: {seen:?}");
        assert_eq!(label_patches(stage).await - patches, 1, "{order:?}");
    }
}

/// The journal of one migration, and the times of what the guest cannot see.
async fn print_journal(stage: &mut Stage, migration: &Migration) {
    let clocks = migration.clocks;
    let resumed = micros(migration.moved.resumed);
    let shown = micros(wall_clock(migration.shown));
    println!(
        "QEMU resumed the machine at {:.6} of the guest's clock, after {} ms in which none ran; Harvester's API showed the move {} ms later",
        (clocks.in_guest(resumed) % 60_000_000) as f64 / 1e6,
        migration.moved.downtime.as_millis(),
        (shown - resumed) / 1000
    );
    println!("{}", stage.inside.journal(&stage.began).await);
}

/// The agent's PATCHes of the Node's metadata so far.
async fn label_patches(stage: &Stage) -> usize {
    label_patch_times(stage).await.len()
}

/// Of twenty moves none may be missed, and each must be noticed by the guest's own signal. In the last ones the kernel notes its
/// announcement and `ip monitor` listens too: what these take is the guest's and not ours. Who is measured is not made to wait
/// for them.
pub async fn of_twenty_migrations_none_is_missed(stage: &mut Stage, figures: &mut Figures) {
    stage.settled().await;
    stage.synced().await;
    let observer = format!(
        "systemd-run --quiet --unit={OBSERVER} --property=SyslogIdentifier={OBSERVER} ip monitor link"
    );
    let mut noticed = 0;
    let mut most_lines = 0;
    let mut error = Duration::ZERO;
    for turn in 0..MOVES {
        let is_observed = turn >= MOVES - OBSERVED;
        if turn == MOVES - OBSERVED {
            stage.inside.sh(&observer).await;
            stage.inside.trace_announcements().await;
        }
        stage.begin().await;
        let to = ["hv-b", "hv-a"][turn % 2];
        let before = label_patches(stage).await;
        let migration = stage.migrate(to, Telling::default()).await;
        stage.labelled(to).await;
        let records = stage.recorded("labelled in").await;
        assert_eq!(label_patches(stage).await - before, 1, "move {turn}");
        most_lines = most_lines.max(records.len());

        let clocks = migration.clocks;
        error = error.max(clocks.error);
        let Some(sign) = records.iter().find(|one| one.message().starts_with(SIGN)) else {
            println!("move {turn}: no record of the signal, but {records:?}");
            continue;
        };
        noticed += 1;
        let resumed = clocks.in_guest(micros(migration.moved.resumed));
        if is_observed {
            let announced = stage.inside.announced().await.unwrap() + sign.wall_ahead();
            figures.sample(TO_ANNOUNCEMENT, milliseconds(announced - resumed));
            if let Some(seen) = stage.inside.first_record_of(OBSERVER, resumed).await {
                figures.sample(TO_OBSERVER, milliseconds(seen - resumed));
            }
        } else {
            figures.sample(TO_RECORD, milliseconds(sign.sent_at() - resumed));
            figures.sample(TO_JOURNAL, milliseconds(sign.at() - resumed));
        }
        let written = label_patch_times(stage).await.pop().unwrap();
        let took = written.saturating_duration_since(migration.annotated);
        figures.sample(TO_LABEL, took.as_secs_f64() * 1000.0);
        figures.sample(DOWNTIME, migration.moved.downtime.as_secs_f64() * 1000.0);
    }
    stage.inside.sh(&format!("systemctl stop {OBSERVER}")).await;
    println!("{noticed} of {MOVES} moves were noticed by the guest's own signal");
    let note = format!(
        "QEMU's RESUME to the time of the record (journalctl); the clocks are related by guest-get-time to within {error:?}"
    );
    figures.summarise(
        TO_ANNOUNCEMENT,
        50.0,
        "QEMU's RESUME to `netdev_notify_peers` of the guest's kernel: before it nobody can know",
    );
    figures.summarise(TO_RECORD, 50.0, &note);
    figures.summarise(TO_JOURNAL, 50.0, "the same, to when journald had read it");
    figures.summarise(
        TO_OBSERVER,
        50.0,
        "the same for `ip monitor link` in the same guest, which journald has to read too",
    );
    let note = "the PATCH at the API server, after the update of the VM's annotations was answered";
    figures.summarise(TO_LABEL, 100.0, note);
    figures.summarise(
        DOWNTIME,
        500.0,
        "QEMU's STOP on one host to RESUME on the other",
    );
    figures.add(Figure::new(
        "journal lines of a migration, most",
        most_lines as f64,
        "lines",
    ));
    assert_eq!(noticed, MOVES);
}

/// A migration that is given up, and a pause: the guest has no sign of either, and nothing is written.
pub async fn a_cancelled_migration_and_a_pause_write_nothing(stage: &mut Stage, _: &mut Figures) {
    stage.settled().await;
    stage.synced().await;
    stage.begin().await;
    let version = stage.world.node_resource_version().await;
    let (harvester, vm) = (stage.world.harvester.clone(), stage.world.vm.clone());
    let begun = harvester.prepare_migration(&vm, "hv-b").await.unwrap();
    stage.machine.cancel_migration().await;
    harvester.end_as_failed(&begun, "cancelled").await.unwrap();

    stage.machine.monitor().execute("stop", json!({})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.machine.monitor().execute("cont", json!({})).await;
    let unwritten = || async { stage.world.node_resource_version().await == version };
    always(Duration::from_secs(5), "the Node is not written", unwritten).await;
    let records = stage.records().await;
    assert!(records.is_empty(), "{records:#?}");
}

/// Saved to a file and restored on the same host: the signal is the same, but nothing moved.
pub async fn a_restored_machine_is_told_as_unconfirmed(stage: &mut Stage, _: &mut Figures) {
    stage.settled().await;
    stage.synced().await;
    stage.begin().await;
    let patches = label_patches(stage).await;
    // Announcements within two seconds of each other are those of one move, and the guest's time stands still while it is saved.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let moved = stage.machine.save_and_restore().await;
    println!("nobody ran for {} ms", moved.downtime.as_millis());
    stage.reattach().await;
    let records = stage
        .recorded("no live migration after the sign link")
        .await;
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
    stage.recorded("Harvester's API does not answer").await;
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
    stage.recorded("no longer: harvester-unreachable").await;
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
pub async fn without_any_sign_a_move_is_not_seen(stage: &mut Stage, _: &mut Figures) {
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
async fn label_patch_times(stage: &Stage) -> Vec<Instant> {
    let writes = stage.world.agent_writes().await;
    let of_labels = writes
        .iter()
        .filter(|write| write.verb == "patch" && !write.path.ends_with("/status"));
    of_labels.map(|write| write.at).collect()
}

fn milliseconds(micros: i128) -> f64 {
    micros as f64 / 1000.0
}
