// SPDX-License-Identifier: Apache-2.0
//! How soon a move is noticed, told and followed.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::migration::{SIGN, label_patch_times, label_patches};
use crate::figures::Figures;
use crate::hardware::Port;
use crate::inside::Record;
use crate::machine::BOOT_LIMIT;
use crate::stage::{Migration, Stage, Telling, wall_clock};
use crate::table::Figure;

const MOVES: usize = 20;

/// Moves by the guest's clock that nobody else watches, and those after them that the observer watches too.
const TIMED: usize = 5;
const OBSERVED: usize = 3;

/// Another program in the guest that listens to the same announcement.
const OBSERVER: &str = "observer";

const TO_ANNOUNCEMENT: &str = "resume to the kernel's announcement";
const TO_RECORD: &str = "resume to first record";
const TO_JOURNAL: &str = "resume to first record in the journal";
const TO_OBSERVER: &str = "resume to the line of ip monitor";
const TO_RECORD_ON_HOST: &str = "resume to first record, by the host's clock";
const TO_LABEL: &str = "resume to label written, by the host's clock";
const API_TO_LABEL: &str = "API shows the new host's zone to label written";
const DOWNTIME: &str = "downtime of a migration";
const INTERRUPTION: &str = "interruption of a migration, by the guest";
const DIFFERENCE: &str = "interruption by the guest and by QEMU, difference";

/// A move that led to new labels.
struct Followed {
    migration: Migration,
    /// What was told of it; none where only the API told of it.
    sign: Option<Record>,
    /// All that the agent wrote to the journal, in lines.
    lines: usize,
    /// When the PATCH was at the API server.
    labelled: Instant,
}

/// Of twenty moves none may be missed, and each must be noticed by the guest's own signal.
pub async fn of_twenty_migrations_none_is_missed(stage: &mut Stage, figures: &mut Figures) {
    stage.settled().await;
    stage.synced().await;
    let mut noticed = 0;
    let mut most_lines = 0;
    println!("move | downtime by QEMU | interruption by the guest");
    for turn in 0..MOVES {
        let followed = follow(stage, turn).await;
        let migration = &followed.migration;
        most_lines = most_lines.max(followed.lines);
        let labelled = wall_clock(followed.labelled);
        let since_resume = labelled.duration_since(migration.moved.resumed);
        figures.sample(TO_LABEL, milliseconds(since_resume.unwrap()));
        let since_told = followed.labelled - migration.annotated;
        figures.sample(API_TO_LABEL, milliseconds(since_told));
        let downtime = milliseconds(migration.moved.downtime);
        figures.sample(DOWNTIME, downtime);
        let interruption = interruption(stage).await;
        println!("{turn} | {downtime:.0} ms | {interruption:.0} ms");
        figures.sample(INTERRUPTION, interruption);
        figures.sample(DIFFERENCE, (interruption - downtime).abs());
        if let Some(sign) = followed.sign {
            noticed += 1;
            figures.sample(TO_RECORD_ON_HOST, reported_after(migration, &sign));
        }
    }
    println!("{noticed} of {MOVES} moves were noticed by the guest's own signal");
    let note =
        "where QEMU emulates the processor, it translates the guest's code anew after each move";
    figures.summarise(TO_RECORD_ON_HOST, None, note);
    let note = "the API shows the move half a second after the resume";
    figures.summarise(TO_LABEL, None, note);
    let note = "the PATCH at the API server, after the update of the VM's annotations was answered";
    figures.summarise(API_TO_LABEL, Some(100.0), note);
    let note = "QEMU's STOP on one host to RESUME on the other";
    figures.summarise(DOWNTIME, Some(500.0), note);
    let note = "status.json; from the step of the wall clock when the host sets it after the move";
    figures.summarise(INTERRUPTION, None, note);
    let note = "with it comes what the guest's clock lost between two moves, and the way of the command that sets it";
    figures.summarise(DIFFERENCE, Some(20.0), note);
    figures.add(Figure::new(
        "journal lines of a migration, most",
        most_lines as f64,
        "lines",
    ));
    assert_eq!(noticed, MOVES);
}

/// What the agent needs from the resume to its record, on a machine that was without power before. In the last moves the kernel
/// notes its announcement and `ip monitor` listens too: what these take is the guest's and not ours. Who is measured is not made
/// to wait for them.
pub async fn a_move_is_reported_within_fifty_milliseconds(
    stage: &mut Stage,
    figures: &mut Figures,
) {
    stage.settled().await;
    stage.synced().await;
    stage.power_off().await;
    stage.machine.power_on_timed().await;
    stage
        .machine
        .port_opens(Port::GuestAgent, true, BOOT_LIMIT)
        .await;
    stage.reattach().await;
    stage.started().await;
    stage.says_that_it_is_synced().await;
    let observer = format!(
        "systemd-run --quiet --unit={OBSERVER} --property=SyslogIdentifier={OBSERVER} ip monitor link"
    );
    let mut error = Duration::ZERO;
    for turn in 0..TIMED + OBSERVED {
        if turn == TIMED {
            stage.inside.sh(&observer).await;
            stage.inside.trace_announcements().await;
        }
        let Followed {
            migration, sign, ..
        } = follow(stage, turn).await;
        error = error.max(migration.clocks.error);
        let sign = sign.expect("the guest's own signal");
        if turn < TIMED {
            figures.sample(TO_RECORD, reported_after(&migration, &sign));
            figures.sample(TO_JOURNAL, after(&migration, sign.at()));
            continue;
        }
        // Two clocks of the guest that journald did not read in one moment: it may seem to come before the resume.
        let announced = stage.inside.announced().await.unwrap() + sign.wall_ahead();
        figures.sample(TO_ANNOUNCEMENT, after(&migration, announced));
        let resumed = migration.resumed_in_guest();
        if let Some(seen) = stage.inside.first_record_of(OBSERVER, resumed).await {
            figures.sample(TO_OBSERVER, after(&migration, seen));
        }
    }
    stage.inside.sh(&format!("systemctl stop {OBSERVER}")).await;
    let note = format!(
        "QEMU's RESUME to the time of the record (journalctl), by {}, read to within {error:?}",
        stage.machine.clock()
    );
    let is_soon = figures.summarise(TO_RECORD, Some(50.0), &note);
    let note = "the same, to when journald had read it";
    figures.summarise(TO_JOURNAL, Some(50.0), note);
    let note =
        "the same, to `netdev_notify_peers` of the guest's kernel: before it nobody can know";
    figures.summarise(TO_ANNOUNCEMENT, None, note);
    let note = "the same for `ip monitor link` in the same guest, which journald has to read too";
    figures.summarise(TO_OBSERVER, None, note);
    assert!(is_soon, "{}", figures.print());
}

/// Moves the machine to the other host, and waits for the labels.
async fn follow(stage: &mut Stage, turn: usize) -> Followed {
    stage.begin().await;
    let to = ["hv-b", "hv-a"][turn % 2];
    let before = label_patches(stage).await;
    let migration = stage.migrate(to, Telling::default()).await;
    stage.labelled(to).await;
    let records = stage.recorded("labeled in").await;
    let written = label_patch_times(stage).await;
    assert_eq!(written.len() - before, 1, "move {turn}");
    let is_sign = |record: &&Record| record.message().starts_with(SIGN);
    let sign = records.iter().find(is_sign).cloned();
    if sign.is_none() {
        println!("move {turn}: no record of the signal, but {records:?}");
    }
    Followed {
        labelled: written[before],
        lines: records.len(),
        sign,
        migration,
    }
}

/// How long the last move interrupted the guest by its own estimate, in milliseconds.
async fn interruption(stage: &mut Stage) -> f64 {
    let host = stage.host.clone();
    let seconds = |status: &Value| status["lastMigration"]["interruptionSeconds"].as_f64();
    let is_there =
        |status: &Value| status["lastMigration"]["to"] == host && seconds(status).is_some();
    let what = "the interruption";
    let status = stage.inside.status_becomes(what, is_there).await;
    seconds(&status).unwrap() * 1000.0
}

/// From the resume to a time of the guest's wall clock in microseconds since the epoch; in milliseconds.
fn after(migration: &Migration, guest: i128) -> f64 {
    (guest - migration.resumed_in_guest()) as f64 / 1000.0
}

/// From the resume to the record, in milliseconds.
///
/// # Panics
/// When the effect comes before its cause: the clocks are related wrongly.
fn reported_after(migration: &Migration, sign: &Record) -> f64 {
    let after = after(migration, sign.sent_at());
    assert!(after >= -milliseconds(migration.clocks.error), "{after} ms");
    after
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
