// SPDX-License-Identifier: Apache-2.0
//! Entries of the journal: which are written, and that no caller waits for them.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use harvester_lab::process::{Line, Signal};
use harvester_lab::world::{WorldOptions, eventually};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::{BINARY, On, SOON, TOPOLOGY, ZONE, condition_becomes, label_becomes, on_both, serve};

on_both!(
    entries_below_the_configured_level_are_not_written_and_a_reload_changes_the_level,
    an_output_that_stands_still_delays_no_migration_and_the_loss_is_reported_after_it,
);

/// More entries than the queue holds.
const RELOADS: usize = 70;

/// The end of the entry that counts lost ones.
const DROPPED: &str = " journal entries were dropped: journald was too slow";

async fn entries_below_the_configured_level_are_not_written_and_a_reload_changes_the_level(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let level = |level| {
        let text = format!("[log]\nlevel = \"{level}\"\n");
        world.guest.agent_config("10-log.toml", &text);
    };
    level("error");
    let mut agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;

    // Entries are written in order: one below the level would come before this.
    let reloaded = "info: configuration reloaded";
    level("info");
    agent.signal(Signal::SIGHUP);
    let first = agent.wait_line(|_| true, SOON).await;
    assert_eq!(first.text, reloaded, "an entry below the level");
    world.migrate("hv-a").await;
    agent
        .wait_line(|line| line.text.starts_with("notice: "), SOON)
        .await;

    level("error");
    agent.reload(SOON).await;
    world.migrate("hv-c").await;
    label_becomes(&world, ZONE, "rack-c").await;
    level("info");
    agent.reload(SOON).await;
    world.migrate("hv-b").await;
    let last = |line: &Line| line.text.contains("from hv-c to hv-b");
    agent.wait_line(last, SOON).await;
    let entries = agent.transcript();
    assert_eq!(entries.matches(reloaded).count(), 2, "{entries}");
    assert!(!entries.contains("from hv-a to hv-c"), "{entries}");
}

async fn an_output_that_stands_still_delays_no_migration_and_the_loss_is_reported_after_it(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let mut output = full_pipe(&dir.path().join("stderr"));
    let binary = writing_to(&dir.path().join("stderr"), dir.path());
    let mut agent = world.spawn_agent(binary, &["run"]);
    agent.wait_ready(SOON).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    // Each is an entry.
    for count in 1..=RELOADS {
        agent.signal(Signal::SIGHUP);
        let reloaded = || async { agent.notified("RELOADING") == count };
        eventually(SOON, "a reload", reloaded).await;
    }
    // No process reads yet: an agent that waited for the journal would label nothing.
    for (host, rack) in [("hv-b", "rack-b"), ("hv-c", "rack-c")] {
        world.migrate(host).await;
        label_becomes(&world, ZONE, rack).await;
    }
    // The status is written after the last entries.
    let is_told = || async {
        let last = &world.guest.status().unwrap()["lastMigration"];
        last["to"] == "hv-c" && last["durationSeconds"].is_f64()
    };
    eventually(SOON, "the migration in the status", is_told).await;

    let mut text = String::new();
    read_until(&mut output, &mut text, DROPPED).await;
    // The pipe was filled with empty lines. What was first is there, whatever came later.
    let lines = text.trim_start();
    assert!(
        lines.lines().next().unwrap().contains(" started"),
        "{lines}"
    );
    assert!(!lines.contains("Harvester host changed from"), "{lines}");
    world.migrate("hv-a").await;
    let migrated = "Harvester host changed from hv-c to hv-a";
    read_until(&mut output, &mut text, migrated).await;
    assert_eq!(text.matches(DROPPED).count(), 1, "{}", text.trim_start());
}

/// Makes a pipe that is full, and returns the end that reads.
fn full_pipe(path: &Path) -> File {
    mkfifo(path, Mode::S_IRWXU).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(OFlag::O_NONBLOCK.bits());
    let mut pipe = options.open(path).unwrap();
    loop {
        match pipe.write(&[b'\n'; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return pipe,
            result => assert!(result.is_ok(), "{result:?}"),
        }
    }
}

/// Makes a program that is the agent, but for where it writes its errors to.
fn writing_to(pipe: &Path, dir: &Path) -> PathBuf {
    let program = dir.join("agent");
    let text = format!("#!/bin/sh\nexec {BINARY} \"$@\" 2>{}\n", pipe.display());
    std::fs::write(&program, text).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    program
}

/// Reads until a line contains `wanted`.
async fn read_until(pipe: &mut File, text: &mut String, wanted: &str) {
    let reading = async {
        while !text.lines().any(|line| line.contains(wanted)) {
            let mut piece = [0; 4096];
            match pipe.read(&mut piece) {
                Ok(length) => text.push_str(&String::from_utf8_lossy(&piece[..length])),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let is_read = tokio::time::timeout(SOON, reading).await.is_ok();
    assert!(is_read, "no `{wanted}` in\n{}", text.trim_start());
}
