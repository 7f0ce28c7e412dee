// SPDX-License-Identifier: Apache-2.0
//! Hooks for scheduled events, with a stand-in for systemd: what is started with what, what is refused, and what becomes a finding.
//! `tests/machine` runs hooks on a real systemd.

use std::os::unix::fs::{PermissionsExt, symlink};

use harvester_lab::bus::{Bus, Systemd, TransientUnit, Unit};
use harvester_lab::guest::Writing;
use harvester_lab::harvester::{Migration, Order};
use harvester_lab::process::{Agent, Signal};
use harvester_lab::world::{World, WorldOptions, eventually};
use serde_json::Value;

use crate::{HOST, On, SOON, TOPOLOGY, condition_becomes, findings_become, label_becomes, serve};

const DIRECTORY: &str = "/etc/harvester-node-agent/hooks.d";

/// An agent that has written its labels, and hears systemd.
struct Stage {
    // Ends first: it must not write below the tree of the world while that is removed.
    agent: Agent,
    systemd: Systemd,
    bus: Bus,
    world: World,
}

impl Stage {
    async fn new(hooks: &[&str]) -> Self {
        let world = On::Lab.world(WorldOptions::default()).await;
        for hook in hooks {
            place(&world, hook, 0o755);
        }
        let bus = Bus::start(&world.guest).await;
        let systemd = start_systemd(&bus).await;
        let agent = serve(&world).await;
        condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
        eventually(SOON, "it listens", || async { systemd.is_subscribed() }).await;
        Self {
            agent,
            systemd,
            bus,
            world,
        }
    }

    /// Waits until the hook has a unit.
    async fn starts(&self, hook: &str) -> (String, TransientUnit) {
        let end = format!("-{hook}.service");
        let found = || {
            let units = self.systemd.transient_units().into_iter();
            units.into_iter().find(|(name, _)| name.ends_with(&end))
        };
        eventually(SOON, &format!("{hook} is started"), || async {
            found().is_some()
        })
        .await;
        found().unwrap()
    }

    async fn ends(&self, hook: &str, result: &str) {
        let (unit, _) = self.starts(hook).await;
        self.systemd.end_transient_unit(&unit, result).await;
    }

    async fn plan(&self) -> Migration {
        let vm = &self.world.vm;
        self.world
            .harvester
            .prepare_migration(vm, "hv-b")
            .await
            .unwrap()
    }

    async fn copy(&self, migration: &Migration) {
        self.world.harvester.copy_memory(migration).await.unwrap();
    }

    /// Moves the VM, and waits for the label.
    async fn switch(&self, migration: &Migration) {
        let harvester = &self.world.harvester;
        harvester
            .switch_host(migration, Order::UpTo1_5)
            .await
            .unwrap();
        harvester.annotate(&self.world.vm).await.unwrap();
        label_becomes(&self.world, HOST, "hv-b").await;
    }

    /// The texts of the findings about hooks, one for each state.
    fn observed(&self) -> String {
        let status = self.world.guest.status().unwrap();
        let found = status["findings"].as_array().unwrap().iter();
        let found = found.filter(|finding| finding["code"] == "hook-failed");
        let texts: Vec<_> = found
            .map(|finding| finding["observed"].as_str().unwrap())
            .collect();
        texts.join("\n")
    }

    /// Holds that no hook has failed so far: when those for the next event end, the ends of before have been heard, and the first of
    /// them, which fails, is all that is found.
    async fn none_failed(&self, to: &str, next: &[&str]) {
        let harvester = &self.world.harvester;
        let begun = harvester.prepare_migration(&self.world.vm, to).await;
        begun.unwrap();
        for (hook, result) in next.iter().zip(["failed", "done"]) {
            self.ends(hook, result).await;
        }
        findings_become(&self.world, &["hook-failed"]).await;
        let observed = self.observed();
        let start = format!("{DIRECTORY}/planned/{}: failed after ", next[0]);
        assert!(observed.starts_with(&start), "{observed}");
        assert_eq!(observed.matches(DIRECTORY).count(), 1, "{observed}");
    }
}

async fn start_systemd(bus: &Bus) -> Systemd {
    let port = r"dev-virtio\x2dports-org.qemu.guest_agent.0.device";
    let units = [
        ("qemu-guest-agent.service", Unit::running()),
        (port, Unit::plugged()),
    ];
    Systemd::start(bus, &units).await
}

fn place(world: &World, hook: &str, mode: u32) {
    let path = format!("{DIRECTORY}/{hook}");
    world
        .guest
        .write_as(&path, "#!/bin/sh\n", mode, Writing::InPlace);
}

fn started(systemd: &Systemd) -> usize {
    let calls = systemd.calls();
    let of_hooks = calls
        .iter()
        .filter(|call| call.starts_with("StartTransientUnit "));
    of_hooks.count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_state_starts_its_hooks_once_with_everything_in_the_environment() {
    let hooks = [
        "planned/10-one",
        "planned/20-two",
        "in-progress/10-three",
        "done/10-four",
    ];
    let mut stage = Stage::new(&hooks).await;
    let migration = stage.plan().await;
    let (first, unit) = stage.starts("10-one").await;
    stage.starts("20-two").await;
    assert_eq!(unit.properties["Type"], "\"oneshot\"");
    assert_eq!(unit.properties["KillMode"], "\"control-group\"");
    assert_eq!(unit.properties["CollectMode"], "\"inactive-or-failed\"");
    assert_eq!(unit.properties["TimeoutStartUSec"], "uint64 60000000");
    let path = format!("{DIRECTORY}/planned/10-one");
    assert_eq!(
        unit.properties["ExecStart"],
        format!("[(\"{path}\", [\"{path}\"], false)]")
    );
    let environment = &unit.properties["Environment"];
    let id = first.trim_start_matches("harvester-node-agent-hook-planned-");
    let id = id.trim_end_matches("-10-one.service");
    let node = stage.world.vm.guest_name();
    for variable in [
        format!("HNA_EVENT_ID={id}"),
        "HNA_EVENT_STATE=planned".to_owned(),
        "HNA_EVENT_TYPE=live-migration".to_owned(),
        "HNA_EVENT_REASON=MigrationRequested".to_owned(),
        "HNA_EVENT_SOURCE=status.migrationState".to_owned(),
        "HNA_HOST=hv-a".to_owned(),
        "HNA_TARGET_HOST=hv-b".to_owned(),
        format!("HNA_VM=default/{node}"),
        format!("HNA_NODE={node}"),
    ] {
        assert!(
            environment.contains(&format!("\"{variable}\"")),
            "{variable}: {environment}"
        );
    }
    assert!(environment.contains("\"HNA_EVENT_TIME=20"), "{environment}");
    assert!(!environment.contains("HNA_DEADLINE"), "{environment}");

    // A restart, while both run, neither runs one again nor reports it.
    stage.agent.signal(Signal::SIGTERM);
    stage.agent.wait_exit(SOON).await;
    let _agent = serve(&stage.world).await;
    condition_becomes(&stage.world, TOPOLOGY, "True", "Synced").await;
    stage.copy(&migration).await;
    stage.starts("10-three").await;
    stage.switch(&migration).await;
    stage.starts("10-four").await;
    assert_eq!(
        started(&stage.systemd),
        hooks.len(),
        "{:?}",
        stage.systemd.calls()
    );
    for hook in ["10-one", "20-two", "10-three", "10-four"] {
        stage.ends(hook, "done").await;
    }
    stage.none_failed("hv-a", &["10-one", "20-two"]).await;
}

/// The VM is reset while a hook runs: systemd and its units end with it, and `/run` is empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_a_reboot_ends_does_not_run_again() {
    let mut stage = Stage::new(&["planned/10-cut", "in-progress/10-next"]).await;
    let migration = stage.plan().await;
    let (unit, _) = stage.starts("10-cut").await;
    let id = unit.trim_start_matches("harvester-node-agent-hook-planned-");
    let id = id.trim_end_matches("-10-cut.service");
    let state = "/var/lib/harvester-node-agent/state.json";
    let guest = stage.world.guest.clone();
    let is_saved = || async { guest.read(state).is_some_and(|text| text.contains(id)) };
    eventually(SOON, "the state is saved", is_saved).await;

    stage.agent.signal(Signal::SIGKILL);
    stage.agent.wait_exit(SOON).await;
    let begun = stage.systemd;
    begun.leave().await;
    std::fs::remove_dir_all(guest.path("/run/harvester-node-agent")).unwrap();
    guest.boot_id(uuid::Uuid::new_v4());
    stage.systemd = start_systemd(&stage.bus).await;
    stage.agent = serve(&stage.world).await;
    let systemd = &stage.systemd;
    eventually(SOON, "it listens", || async { systemd.is_subscribed() }).await;

    // The event goes on under its ID.
    stage.copy(&migration).await;
    let (next, _) = stage.starts("10-next").await;
    assert!(next.contains(id), "{next}: {id}");
    stage.ends("10-next", "done").await;
    let harvester = &stage.world.harvester;
    let failed = harvester.end_as_failed(&migration, "no memory").await;
    failed.unwrap();
    // Of another event.
    stage.none_failed("hv-b", &["10-cut"]).await;
    assert_eq!(started(&stage.systemd), 2, "{:?}", stage.systemd.calls());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_fails_is_one_finding_until_those_of_its_state_succeed() {
    let stage = Stage::new(&["planned/10-good", "planned/20-bad", "failed/10-undo"]).await;
    let migration = stage.plan().await;
    stage.starts("20-bad").await;
    stage.ends("10-good", "done").await;
    stage.ends("20-bad", "failed").await;
    findings_become(&stage.world, &["hook-failed"]).await;
    let observed = stage.observed();
    let start = format!("{DIRECTORY}/planned/20-bad: failed after ");
    assert!(observed.starts_with(&start), "{observed}");
    let unit = " s, unit harvester-node-agent-hook-planned-";
    assert!(observed.contains(unit), "{observed}");
    assert!(!observed.contains("10-good"), "{observed}");
    let harvester = &stage.world.harvester;
    stage.copy(&migration).await;
    harvester
        .end_as_failed(&migration, "no memory")
        .await
        .unwrap();
    stage.ends("10-undo", "done").await;
    let next = stage.plan().await;
    stage.ends("10-good", "done").await;
    stage.copy(&next).await;
    // As long as one of them runs, although the other has ended.
    let is_later = |status: &Value| status["scheduledEvent"]["state"] == "in-progress";
    let world = &stage.world;
    world
        .status_becomes("in progress", is_later, &["hook-failed"])
        .await;
    stage.ends("20-bad", "done").await;
    findings_become(&stage.world, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_others_can_change_and_a_link_are_refused_in_one_finding() {
    let stage = Stage::new(&["planned/10-good", "planned/20-open"]).await;
    let path = |hook: &str| {
        stage
            .world
            .guest
            .path(&format!("{DIRECTORY}/planned/{hook}"))
    };
    std::fs::set_permissions(path("20-open"), PermissionsExt::from_mode(0o777)).unwrap();
    symlink(path("10-good"), path("30-link")).unwrap();
    stage.plan().await;
    stage.ends("10-good", "done").await;
    findings_become(&stage.world, &["hook-failed"]).await;
    let expected = format!(
        "{DIRECTORY}/planned/20-open has mode 0777; {DIRECTORY}/planned/30-link is a symbolic link"
    );
    assert_eq!(stage.observed(), expected);
    assert_eq!(started(&stage.systemd), 1, "{:?}", stage.systemd.calls());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_a_hook_that_hangs_nor_a_systemd_that_does_not_respond_delays_the_labels() {
    // The end of a hook is awaited forever, and the response of systemd for 2 s: in a loop that waited for all hooks, the labels would
    // come 96 s after the first one, and `switch` fails before that.
    let states = ["planned", "in-progress", "done"];
    let hooks = states.map(|state| (0..16).map(move |hook| format!("{state}/{hook}")));
    let hooks: Vec<String> = hooks.into_iter().flatten().collect();
    let hooks: Vec<&str> = hooks.iter().map(String::as_str).collect();
    for is_stuck in [false, true] {
        let stage = Stage::new(&hooks).await;
        if is_stuck {
            stage.systemd.stick();
        }
        let is_requested = async |state: &str| {
            let call = format!("StartTransientUnit harvester-node-agent-hook-{state}-");
            let has_call = || async {
                let calls = stage.systemd.calls();
                calls.iter().any(|name| name.starts_with(&call))
            };
            eventually(SOON, &format!("a hook for {state}"), has_call).await;
        };
        let migration = stage.plan().await;
        is_requested("planned").await;
        stage.copy(&migration).await;
        is_requested("in-progress").await;
        stage.switch(&migration).await;
        is_requested("done").await;
    }
}
