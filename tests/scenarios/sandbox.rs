// SPDX-License-Identifier: Apache-2.0
//! The restrictions of the service: the list of system calls in both units, against a trace.

use std::collections::BTreeSet;
use std::process::Command;

use harvester_lab::bus::{Bus, Systemd, Unit};
use harvester_lab::process::Signal;
use harvester_lab::world::{World, WorldOptions};

use crate::kill::can_trace;
use crate::metrics::{free_address, listen};
use crate::{BINARY, HOST, SOON, ZONE, label_becomes};

const UNITS: [&str; 2] = ["harvester-node-agent", "harvester-node-agent-gate"];

const EVERYTHING: &str =
    "[registration]\nnode_labels = true\n[qemu_guest_agent]\nauto_start = true\n";

/// The system calls that a unit allows, with those of the groups. systemd-analyze(1) prints a group with a description.
fn allowed(unit: &str) -> BTreeSet<String> {
    let path = format!("{}/systemd/{unit}.service", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let mut calls = BTreeSet::new();
    for word in lines.flat_map(str::split_whitespace) {
        if !word.starts_with('@') {
            calls.insert(word.to_owned());
            continue;
        }
        let output = Command::new("systemd-analyze")
            .args(["syscall-filter", word])
            .output()
            .unwrap();
        assert!(output.status.success(), "{word}: {output:?}");
        let members = String::from_utf8(output.stdout).unwrap();
        let members = members.lines().filter(|line| line.starts_with("    "));
        let members = members.map(str::trim).filter(|name| !name.starts_with('#'));
        calls.extend(members.map(str::to_owned));
    }
    calls
}

/// The names in a trace that `strace -f` has written.
fn traced(trace: &str) -> BTreeSet<String> {
    let calls = trace.lines().filter_map(|line| {
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let (name, _) = line.split_once('(')?;
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then(|| name.to_owned())
    });
    calls.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_units_allow_each_system_call_of_a_trace_and_none_that_harms_others() {
    let name = "the_units_allow_each_system_call_of_a_trace_and_none_that_harms_others";
    if let Err(why) = can_trace().await {
        harvester_lab::skip(name, why);
        return;
    }
    let world = World::lab(WorldOptions::default()).await;
    let bus = Bus::start(&world.guest).await;
    let _systemd = Systemd::start(&bus, &[("rke2-agent.service", Unit::running())]).await;
    world.guest.agent_config("10-all.toml", EVERYTHING);
    listen(&world, free_address());
    let log = world.guest.path("/trace");
    let trace = |args: &[&str]| {
        let log = log.display().to_string();
        let strace = ["-D", "-f", "-qq", "-A", "-o", &log, BINARY];
        world.spawn_agent("strace", &[&strace, args].concat())
    };
    let mut daemon = trace(&["run"]);
    daemon.wait_ready(SOON).await;
    label_becomes(&world, HOST, "hv-a").await;
    let mut gate = trace(&["gate", "--timeout", "50s"]);
    assert_eq!(gate.wait_exit(SOON).await.code(), Some(0));
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    daemon.signal(Signal::SIGHUP);
    daemon.wait_notify(|one| one.has("RELOADING"), SOON).await;
    world.migrate("hv-c").await;
    label_becomes(&world, ZONE, "rack-c").await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait_exit(SOON).await.code(), Some(0));

    let called = traced(&std::fs::read_to_string(&log).unwrap());
    println!("{} system calls: {called:?}", called.len());
    assert!(called.contains("landlock_restrict_self"), "{called:?}");
    assert!(called.len() > 50, "{called:?}");
    for unit in UNITS {
        let allowed = allowed(unit);
        println!("{unit}: {} allowed", allowed.len());
        let missing: Vec<_> = called.difference(&allowed).collect();
        assert!(missing.is_empty(), "{unit}: {missing:?}");
        for call in [
            "ptrace",
            "mount",
            "bpf",
            "setuid",
            "kill",
            "mknod",
            "mknodat",
            "symlink",
            "chown",
            "keyctl",
            "unshare",
            "setns",
            "io_uring_setup",
            "process_vm_readv",
            "reboot",
        ] {
            assert!(!allowed.contains(call), "{unit}: {call}");
        }
    }
}
