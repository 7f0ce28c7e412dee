// SPDX-License-Identifier: Apache-2.0
//! Entries of the journal: which are written, and that nobody waits for them.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harvester_lab::process::Signal;
use harvester_lab::world::WorldOptions;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::{BINARY, On, SOON, TOPOLOGY, ZONE, condition_becomes, label_becomes, on_both, serve};

on_both!(
    entries_below_the_configured_level_are_not_written_and_a_reload_changes_the_level,
    an_output_that_stands_still_delays_no_migration_and_the_loss_is_reported_after_it,
);

/// Migrations while nobody reads: each has more than two entries, together more than the queue holds.
const MIGRATIONS: usize = 40;

/// From the order to the label, for a machine that is busy.
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Nothing new is written for so long: all is written.
const QUIET: Duration = Duration::from_secs(1);

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
    assert_eq!(agent.transcript(), "", "an entry below the level");

    level("info");
    agent.signal(Signal::SIGHUP);
    agent
        .wait_line(
            |line| line.text.contains("info: configuration reloaded"),
            SOON,
        )
        .await;
    world.migrate("hv-a").await;
    agent
        .wait_line(|line| line.text.starts_with("notice: "), SOON)
        .await;

    level("error");
    agent.signal(Signal::SIGHUP);
    // Its entry would come first.
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    let reloads = agent.transcript();
    assert_eq!(reloads.matches("configuration reloaded").count(), 1);
}

async fn an_output_that_stands_still_delays_no_migration_and_the_loss_is_reported_after_it(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let mut output = full_pipe(&dir.path().join("stderr"));
    let binary = writing_to(&dir.path().join("stderr"), dir.path());
    let mut agent = world.spawn_agent(binary, &["run"]);
    agent.wait_ready(SOON).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let mut delays = Vec::new();
    for turn in 0..MIGRATIONS {
        let (host, rack) = [("hv-b", "rack-b"), ("hv-a", "rack-a")][turn % 2];
        world.migrate(host).await;
        let ordered = Instant::now();
        label_becomes(&world, ZONE, rack).await;
        delays.push(ordered.elapsed());
    }
    delays.sort();
    let (middle, last) = (delays[MIGRATIONS / 2], delays[MIGRATIONS - 1]);
    println!(
        "from a migration to the label, nobody reading the journal: {middle:?}, at most {last:?}"
    );
    assert!(last < DELAY_MAX, "{delays:?}");

    let text = drained(&mut output).await;
    let lines: Vec<&str> = text.lines().collect();
    // What was first is there, whatever came later.
    assert!(lines[0].contains(" started"), "{text}");
    let told = lines
        .iter()
        .filter(|line| line.contains(" journal entries were dropped: "))
        .count();
    assert_eq!(told, 1, "{text}");
    world.migrate("hv-c").await;
    label_becomes(&world, ZONE, "rack-c").await;
    let text = drained(&mut output).await;
    assert!(text.contains("migrated from Harvester host"), "{text}");
    assert!(!text.contains("dropped"), "{text}");
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

/// Reads until nothing more comes. Empty lines are what the pipe was filled with.
async fn drained(pipe: &mut File) -> String {
    let (mut text, mut news) = (Vec::new(), Instant::now());
    while news.elapsed() < QUIET {
        let mut piece = [0; 4096];
        match pipe.read(&mut piece) {
            Ok(length) => {
                text.extend(&piece[..length]);
                news = Instant::now();
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    let text = String::from_utf8(text).unwrap();
    text.trim_start_matches('\n').to_owned()
}
