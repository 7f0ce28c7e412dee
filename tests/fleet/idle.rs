// SPDX-License-Identifier: Apache-2.0
//! A day on which nothing happens but the heartbeats of the kubelets.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use super::agents::{self, Trees};
use super::network::Network;
use super::record::{Kind, Second};
use super::scenarios::{simulate, tick};

const AGENTS: usize = 20;

const HOUR: usize = 3600;

/// A kubelet whose status does not change reports it this often.
const HEARTBEAT: Duration = Duration::from_secs(300);

/// WATCH requests of one watch on one day, at most.
const WATCHES_MAX: f64 = 33.0;

/// Passes the day. Answers what to print.
pub(super) fn day() -> String {
    let trees = Trees::write(AGENTS);
    let seconds = simulate(async {
        let network = Arc::new(Network::new(AGENTS));
        agents::attach(&network, 11);
        let _handles: Vec<_> = (0..AGENTS)
            .map(|agent| agents::start(&trees, &network, agent))
            .collect();
        for agent in 0..AGENTS {
            let network = Arc::clone(&network);
            tokio::task::spawn_local(async move {
                sleep(HEARTBEAT.mul_f64(agents::random().value())).await;
                loop {
                    network.heartbeat(agent);
                    sleep(HEARTBEAT).await;
                }
            });
        }
        tick(&network);
        sleep_until(network.start() + Duration::from_secs(25 * 3600)).await;
        // Without the hour of the start.
        network.record().range(HOUR, 25 * HOUR)
    });
    report(&seconds)
}

fn report(seconds: &[Second]) -> String {
    let total = |kind| -> f64 {
        seconds
            .iter()
            .map(|second| f64::from(second.of(kind)))
            .sum()
    };
    let agents = AGENTS as f64;
    let watches = total(Kind::Watch) / agents / 2.0;
    let writes = total(Kind::Patch) + total(Kind::Create);
    let (gets, lists, dials) = (
        total(Kind::Get) / agents,
        total(Kind::List) / agents,
        total(Kind::Dial) / agents,
    );
    let is_quiet = watches <= WATCHES_MAX && writes == 0.0;
    let word = if is_quiet { "ok" } else { "FAILED" };
    format!(
        "an idle day of one agent: {watches:.1} WATCH per watch, {gets:.1} GET, {lists:.1} LIST, {dials:.1} dials, {writes} writes\n\
         test fleet::idle_day ... {word}\n"
    )
}
