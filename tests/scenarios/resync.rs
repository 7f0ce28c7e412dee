// SPDX-License-Identifier: Apache-2.0
//! The reads after a sign of a migration: they find what the watch does not tell, and prove the watch. What they cost is in
//! `tests/fleet/single.rs`.

use std::time::{Duration, Instant};

use harvester_lab::process::{Agent, Line};
use harvester_lab::virtio_port::VirtioPort;
use harvester_lab::world::{World, WorldOptions, eventually};

use crate::{SOON, TOPOLOGY, ZONE, condition_becomes, lab, label_becomes, serve};

const PORT: &str = "io.harvesterhci.node_agent.0";
const VMIS: &str = "virtualmachineinstances";

/// A world whose host holds a port of the agent's and says nothing; the agent, when it has nothing left to do.
async fn quiet_world(configuration: &str) -> (World, VirtioPort, Agent) {
    let world = World::lab(WorldOptions::default()).await;
    world.guest.agent_config("10-mode.toml", configuration);
    let port = VirtioPort::offer(&world.guest, PORT);
    let agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    (world, port, agent)
}

/// Replaces the host side of the port until the agent takes it for a sign. It may be about to open the port that came back.
async fn sign(port: &mut VirtioPort, agent: &mut Agent) {
    let is_sign = |line: &Line| line.text.contains("possible live migration (port:");
    let signs = |agent: &Agent| agent.lines().into_iter().filter(is_sign).count();
    let before = signs(agent);
    let deadline = Instant::now() + SOON;
    loop {
        port.hang_up();
        port.come_back();
        for _ in 0..100 {
            if signs(agent) > before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(Instant::now() < deadline, "{}", agent.transcript());
    }
}

/// How often the agent asked Harvester for instances in this way.
fn asked(world: &World, verb: &str) -> usize {
    let requests = lab(&world.harvester_api).requests_of(harvester_lab::world::AGENT);
    requests
        .iter()
        .filter(|request| request.verb == verb && request.path.contains(VMIS))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_the_watch_does_not_report_is_found_after_the_hint() {
    let (world, mut port, mut agent) = quiet_world("").await;
    let server = lab(&world.harvester_api);
    eventually(SOON, "a watch", async || server.watch_count() > 0).await;
    let watches = asked(&world, "watch");
    server.hush_watches();
    sign(&mut port, &mut agent).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    let status = || world.guest.status().unwrap();
    eventually(SOON, "the window's end", || async {
        status()["lastMigrationHint"]["outcome"].is_string()
    })
    .await;
    let status = status();
    let (resync, migration) = (&status["lastMigrationHint"], &status["lastMigration"]);
    assert_eq!(resync["outcome"], "confirmed");
    assert_eq!(resync["trigger"], "port");
    assert_eq!(migration["trigger"], "port", "{migration}");
    assert_eq!(migration["to"], "hv-b", "{migration}");
    // From the sign, not from the read that found it.
    let latency = migration["durationSeconds"].as_f64().unwrap();
    assert!(latency >= 0.7, "{latency} s");
    // What the watch had sent before may have arrived after the first hint, but not after a second one: the silent watch is not
    // trusted any more, and the new one works.
    sign(&mut port, &mut agent).await;
    world.migrate("hv-a").await;
    label_becomes(&world, ZONE, "rack-a").await;
    eventually(SOON, "the watch is begun anew", || async {
        asked(&world, "watch") > watches
    })
    .await;
    world.migrate("hv-c").await;
    label_becomes(&world, ZONE, "rack-c").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_standing_watches_a_hint_makes_the_agent_read() {
    let (world, mut port, mut agent) = quiet_world("watch = false\n").await;
    world.migrate("hv-b").await;
    sign(&mut port, &mut agent).await;
    label_becomes(&world, ZONE, "rack-b").await;
    for api in [&world.harvester_api, &world.guest_api] {
        let requests = lab(api).requests_of(harvester_lab::world::AGENT);
        let watches = requests.iter().filter(|request| request.verb == "watch");
        assert_eq!(watches.count(), 0);
    }
    // The status follows the label.
    let told = || async { world.guest.status().unwrap()["lastMigration"]["trigger"] == "port" };
    eventually(SOON, "a move because of the port", told).await;
}
