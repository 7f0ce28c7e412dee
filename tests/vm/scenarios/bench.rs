// SPDX-License-Identifier: Apache-2.0
//! What is measured: how soon a move is noticed, told and followed, and what a quiet minute costs. No figure fails a scenario.

use std::time::{Duration, Instant};

use harvester_lab::figures::{Figure, milliseconds};
use serde_json::Value;

use super::migration::{is_sign, label_patch_times, label_patches};
use crate::hardware::Port;
use crate::inside::{Record, UNIT};
use crate::machine::BOOT_LIMIT;
use crate::stage::{Migration, Stage, Telling, wall_clock};

const MOVES: usize = 20;

/// Moves by the guest's clock that no other program watches, and those after them that the observer watches too.
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

/// What a quiet minute is, in seconds.
const QUIET: u32 = 60;

/// Counts what a unit costs: resident memory in KiB, processor time in nanoseconds, and how often its threads slept.
const COST: &str = r#"cost() {
  pid=$(systemctl show --value --property=MainPID $1)
  echo $(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status) \
    $(systemctl show --value --property=CPUUsageNSec $1) \
    $(cat /proc/$pid/task/*/status | awk '/^voluntary_ctxt/ { n += $2 } END { print n }')
}"#;

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
pub async fn of_twenty_migrations_none_is_missed(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    stage.machine.runs_while_copied = true;
    let mut noticed = 0;
    let mut most_lines = 0;
    println!("move | downtime by QEMU | interruption by the guest");
    for turn in 0..MOVES {
        let followed = follow(stage, turn).await;
        let migration = &followed.migration;
        most_lines = most_lines.max(followed.lines);
        let labelled = wall_clock(followed.labelled);
        let since_resume = labelled.duration_since(migration.moved.resumed);
        stage
            .figures
            .sample(TO_LABEL, milliseconds(since_resume.unwrap()));
        let since_told = followed.labelled - migration.annotated;
        stage.figures.sample(API_TO_LABEL, milliseconds(since_told));
        let downtime = milliseconds(migration.moved.downtime);
        stage.figures.sample(DOWNTIME, downtime);
        if let Some(interruption) = interruption(stage).await {
            println!("{turn} | {downtime:.0} ms | {interruption:.0} ms");
            stage.figures.sample(INTERRUPTION, interruption);
            stage
                .figures
                .sample(DIFFERENCE, (interruption - downtime).abs());
        } else {
            println!("{turn} | {downtime:.0} ms | not shown: the clock of the guest was not late");
        }
        if let Some(sign) = followed.sign {
            noticed += 1;
            stage
                .figures
                .sample(TO_RECORD_ON_HOST, reported_after(migration, &sign));
        }
    }
    println!("{noticed} of {MOVES} moves were noticed by the guest's own signal");
    let note =
        "where QEMU emulates the processor, it translates the guest's code anew after each move";
    stage.figures.summarise(TO_RECORD_ON_HOST, None, note);
    let note = "the API shows the move half a second after the resume";
    stage.figures.summarise(TO_LABEL, None, note);
    let note = "the PATCH at the API server, after the update of the VM's annotations was answered";
    stage.figures.summarise(API_TO_LABEL, Some(100.0), note);
    let note = "QEMU's STOP on one host to RESUME on the other";
    stage.figures.summarise(DOWNTIME, Some(500.0), note);
    let note = "status.json; from the step of the wall clock when the host sets it after the move";
    stage.figures.summarise(INTERRUPTION, None, note);
    let note = "with it comes what the guest's clock lost between two moves, and the way of the command that sets it";
    stage.figures.summarise(DIFFERENCE, Some(20.0), note);
    stage.figures.add(Figure::new(
        "journal lines of a migration, most",
        most_lines as f64,
        "lines",
    ));
    assert_eq!(noticed, MOVES);
}

/// What the agent needs from the resume to its record, on a machine that was without power before. In the last moves the kernel
/// notes its announcement and `ip monitor` listens too: what these take is the guest's and not ours. Who is measured is not made
/// to wait for them.
pub async fn a_move_is_reported_and_how_soon(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    stage.machine.runs_while_copied = true;
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
        error = error.max(migration.clocks.unwrap().error);
        let sign = sign.expect("the guest's own signal");
        if turn < TIMED {
            stage
                .figures
                .sample(TO_RECORD, reported_after(&migration, &sign));
            stage
                .figures
                .sample(TO_JOURNAL, after(&migration, sign.at()));
            continue;
        }
        // Two clocks of the guest that journald did not read in one moment: it may seem to come before the resume.
        let announced = stage.inside.announced().await.unwrap() + sign.wall_ahead();
        stage
            .figures
            .sample(TO_ANNOUNCEMENT, after(&migration, announced));
        let resumed = resumed_in_guest(&migration);
        if let Some(seen) = stage.inside.first_record_of(OBSERVER, resumed).await {
            stage.figures.sample(TO_OBSERVER, after(&migration, seen));
        }
    }
    stage.inside.sh(&format!("systemctl stop {OBSERVER}")).await;
    let note = format!(
        "QEMU's RESUME to the time of the record (journalctl), by {}, read to within {error:?}",
        stage.machine.clock()
    );
    stage.figures.summarise(TO_RECORD, Some(50.0), &note);
    let note = "the same, to when journald had read it";
    stage.figures.summarise(TO_JOURNAL, Some(50.0), note);
    let note =
        "the same, to `netdev_notify_peers` of the guest's kernel: before it no program can know";
    stage.figures.summarise(TO_ANNOUNCEMENT, None, note);
    let note = "the same for `ip monitor link` in the same guest, which journald has to read too";
    stage.figures.summarise(TO_OBSERVER, None, note);
}

/// In a minute in which nothing happens: memory, processor time and wake-ups, and those of QEMU's guest agent beside them.
pub async fn a_quiet_minute_costs_nothing(stage: &mut Stage) {
    stage.settled().await;
    stage.synced().await;
    stage.begin().await;
    let version = stage.world.node_resource_version().await;
    // No program may ask QEMU's guest agent anything meanwhile.
    let units = format!("{UNIT} qemu-guest-agent.service");
    let both = format!("for unit in {units}; do cost $unit; done");
    let script = format!(
        "{COST}\n({both}; sleep {QUIET}; {both}) >/run/cost.new; mv /run/cost.new /run/cost"
    );
    stage
        .inside
        .sh(&format!(
            "rm -f /run/cost; systemd-run --quiet sh -c '{}'",
            script.replace('\'', r"'\''")
        ))
        .await;
    tokio::time::sleep(Duration::from_secs(u64::from(QUIET) + 5)).await;
    let text = stage.inside.until("cat /run/cost").await;
    let rows: Vec<Vec<f64>> = text
        .lines()
        .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
        .collect();
    let [ours, theirs, ours_after, theirs_after] = rows.as_slice() else {
        panic!("{text}");
    };
    let beside = "qemu-ga";
    let spent = |before: &[f64], after: &[f64], column: usize| after[column] - before[column];
    let wakeups = spent(ours, ours_after, 2);
    stage.figures.add(
        Figure::new("resident memory", ours_after[0] / 1024.0, "MB")
            .target(6.0)
            .beside(Some(theirs_after[0] / 1024.0), beside),
    );
    stage.figures.add(
        Figure::new(
            "processor time in a quiet minute",
            spent(ours, ours_after, 1) / 1e6,
            "ms",
        )
        .beside(Some(spent(theirs, theirs_after, 1) / 1e6), beside),
    );
    stage.figures.add(
        Figure::new("wake-ups in a quiet minute", wakeups, "")
            .target(5.0)
            .beside(Some(spent(theirs, theirs_after, 2)), beside)
            .note(
                "the watchdog is fed twice a minute, and each of two watches has a bookmark once",
            ),
    );
    assert_eq!(stage.world.node_resource_version().await, version);
    let records = stage.records().await;
    assert!(records.is_empty(), "{records:#?}");
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
    let sign = records.iter().find(|record| is_sign(record)).cloned();
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

/// How long the last move interrupted the guest by its own estimate, in milliseconds. None if the host set the guest's clock back, or
/// not at all: where an emulator is slow, so is the command that sets it.
async fn interruption(stage: &mut Stage) -> Option<f64> {
    const SET: &str = "wall clock set by ";
    let records = stage.recorded(SET).await;
    let step = records.iter().find_map(|r| r.message().strip_prefix(SET));
    if !step?.starts_with('+') {
        return None;
    }
    let host = stage.host.clone();
    let seconds = |status: &Value| status["lastMigration"]["interruptionSeconds"].as_f64();
    let is_there =
        |status: &Value| status["lastMigration"]["to"] == host && seconds(status).is_some();
    let what = "the interruption";
    let status = stage.inside.status_becomes(what, is_there).await;
    seconds(&status).map(|seconds| seconds * 1000.0)
}

/// When the target's processors ran, by the guest's wall clock, in microseconds since the epoch.
fn resumed_in_guest(migration: &Migration) -> i128 {
    let relation = migration.clocks.zip(migration.moved.machine_time);
    let (clocks, resumed) = relation.expect("times are measured");
    clocks.in_guest(resumed)
}

/// From the resume to a time of the guest's wall clock in microseconds since the epoch; in milliseconds.
fn after(migration: &Migration, guest: i128) -> f64 {
    (guest - resumed_in_guest(migration)) as f64 / 1000.0
}

/// From the resume to the record, in milliseconds.
///
/// # Panics
/// When the effect comes before its cause: the clocks are related wrongly.
fn reported_after(migration: &Migration, sign: &Record) -> f64 {
    let after = after(migration, sign.sent_at());
    assert!(
        after >= -milliseconds(migration.clocks.unwrap().error),
        "{after} ms"
    );
    after
}
