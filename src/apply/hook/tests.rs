// SPDX-License-Identifier: Apache-2.0
//! Hooks on a real dbus-daemon, with a fake of systemd.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use harvester_lab::bus::{Bus as Daemon, Hostnamed, Systemd};
use harvester_lab::guest::GuestTree;
use harvester_lab::world::{SOON, eventually};
use tokio::time::timeout;

use super::*;
use crate::access::testing::{tree, write};
use crate::decide::fixtures::planned_event;

fn planned() -> HookRun {
    HookRun {
        event: planned_event(),
        vm: None,
        node: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_signals_neither_stops_a_hook_nor_hides_its_result() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&GuestTree::new(dir.path())).await;
    let systemd = Systemd::start(&daemon, &[]).await;
    let bus = Bus::new(&Root::new(dir.path()), None);
    bus.call(MANAGER, "Subscribe", &[]).await.unwrap();
    let ours = bus.connection().await.unwrap();
    let ours = ours.unique_name().unwrap();
    let _flood = Hostnamed::flood(&daemon, ours).await;
    let planned = planned();
    let hooks: Vec<String> = (10..26).map(|number| format!("/{number}-hook")).collect();
    let is_started = |hook: &String| {
        let unit = unit_name(&planned.event, hook);
        systemd.transient_units().contains_key(&unit)
    };
    // Each ends when the next one is started, which then waits for its response.
    let end_all = async {
        for (index, hook) in hooks.iter().enumerate() {
            let last = hooks.get(index + 1).unwrap_or(hook);
            let what = format!("{last} is started");
            eventually(SOON, &what, || async { is_started(last) }).await;
            let result = if index == 0 { "failed" } else { "done" };
            let unit = unit_name(&planned.event, hook);
            systemd.end_transient_unit(&unit, result).await;
        }
    };
    let running = timeout(SOON, run(&bus, &hooks, &planned));
    let (failures, ()) = tokio::join!(running, end_all);
    let failures = failures.expect("a result is lost");
    assert_eq!(failures.len(), 1, "{failures:?}");
    let failed = format!("{}: failed after ", hooks[0]);
    assert!(failures[0].starts_with(&failed), "{failures:?}");
}

#[tokio::test]
async fn hooks_that_were_not_started_are_a_finding_until_others_are() {
    let (_dir, root) = tree();
    let (bus, board) = (Bus::new(&root, None), SourceBoard::default());
    let run = HookRun {
        event: planned_event(),
        vm: None,
        node: None,
    };
    let runs = async |permits: usize| {
        let permits = Arc::new(Semaphore::new(permits));
        let bus = bus.with_own_connection();
        run_beside(root.clone(), bus, board.clone(), permits, run.clone()).await;
        let findings = board.findings().into_iter();
        findings.map(|finding| finding.seen).collect::<Vec<_>>()
    };
    // Without hooks, no permit is needed.
    assert_eq!(runs(0).await, Vec::<String>::new());
    let path = "/etc/harvester-node-agent/hooks.d/planned/10-drain";
    write(&root, path, "#!/bin/sh\n");
    set_permissions(root.join(path), Permissions::from_mode(0o755)).unwrap();
    let refused = runs(0).await;
    assert!(
        matches!(&refused[..], [one] if one.contains("`planned` were not started")),
        "{refused:?}"
    );
    // Without a bus, it fails for another reason.
    let failed = runs(1).await;
    assert!(
        matches!(&failed[..], [one] if one.starts_with("no hook was started")),
        "{failed:?}"
    );
}
