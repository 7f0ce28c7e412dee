// SPDX-License-Identifier: Apache-2.0
//! The shipped binary against a whole world: each scenario once in the lab and once against two real kube-apiservers.
//! Faults on the wire, which only the lab can make, are in `faults`.

#![expect(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod bake_check;
mod channel;
mod credentials;
mod downward_metrics;
mod faults;
mod guest_agent;
mod identity;
mod labels;
mod migration;
mod rbac;
mod registration;
mod resync;
mod service;
mod signals;

use std::time::Duration;

use harvester_lab::process::{Agent, Output, run_once};
use harvester_lab::world::{Api, World, WorldOptions, eventually};
use serde_json::Value;

pub const BINARY: &str = env!("CARGO_BIN_EXE_harvester-node-agent");

pub const REGION: &str = "topology.kubernetes.io/region";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";
pub const ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
pub const HOST: &str = "topology.harvesterhci.io/host";
pub const IDENTITY: &str = "HarvesterIdentityVerified";
pub const TOPOLOGY: &str = "HarvesterTopologySynced";

/// Generous: these are limits for a broken agent, not measurements of a working one.
pub const SOON: Duration = Duration::from_secs(20);

/// Which world a scenario runs in.
#[derive(Debug, Clone, Copy)]
pub enum On {
    Lab,
    Real,
}

impl On {
    pub async fn world(self, options: WorldOptions) -> World {
        match self {
            Self::Lab => World::lab(options).await,
            Self::Real => World::real(options).await,
        }
    }
}

/// Makes two tests of each scenario.
#[macro_export]
macro_rules! on_both {
    ($($scenario:ident),* $(,)?) => {
        mod lab {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    super::$scenario($crate::On::Lab).await;
                }
            )*
        }
        mod real {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    if harvester_lab::real::RealApi::available(stringify!($scenario)) {
                        super::$scenario($crate::On::Real).await;
                    }
                }
            )*
        }
    };
}

pub async fn agent(world: &World, args: &[&str]) -> Output {
    run_once(BINARY, world.guest.root(), args, SOON).await
}

pub async fn serve(world: &World) -> Agent {
    let mut agent = world.spawn_agent(BINARY, &["run"]);
    agent.wait_ready(SOON).await;
    agent
}

/// Waits until a label of the Node has a value.
pub async fn label_becomes(world: &World, key: &str, value: &str) {
    let what = format!("label {key}={value}");
    eventually(SOON, &what, || async {
        world.node_label(key).await.as_deref() == Some(value)
    })
    .await;
}

/// Waits until a condition of the Node has a status and a reason.
pub async fn condition_becomes(world: &World, kind: &str, status: &str, reason: &str) {
    let what = format!("condition {kind}={status} ({reason})");
    eventually(SOON, &what, || async {
        condition(world, kind).await == Some((status.to_owned(), reason.to_owned()))
    })
    .await;
}

pub async fn condition(world: &World, kind: &str) -> Option<(String, String)> {
    let condition = world.condition(kind).await?;
    let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

/// The codes of the findings in the status file. Both servers of a world are on the loopback, which the agent rightly finds
/// odd; that one is left out.
pub fn findings(world: &World) -> Vec<String> {
    let status = world.guest.status().unwrap_or(Value::Null);
    let findings = status["findings"].as_array().cloned().unwrap_or_default();
    findings
        .iter()
        .filter_map(|finding| finding["code"].as_str().map(str::to_owned))
        .filter(|code| code != "harvester-on-loopback")
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// Waits until the status file holds exactly these findings.
pub async fn findings_become(world: &World, expected: &[&str]) {
    let last = std::cell::RefCell::new(Vec::new());
    let check = || async {
        *last.borrow_mut() = findings(world);
        *last.borrow() == expected
    };
    let deadline = std::time::Instant::now() + SOON;
    while !check().await {
        assert!(
            std::time::Instant::now() < deadline,
            "findings are {:?}, expected {expected:?}",
            last.borrow()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The agent's PATCHes of Node metadata (not of its status).
pub async fn node_patches(world: &World) -> usize {
    let writes = world.agent_writes().await;
    writes
        .iter()
        .filter(|write| write.verb == "patch" && !write.path.ends_with("/status"))
        .count()
}

/// The server of one side, in the lab.
pub fn lab(api: &Api) -> &harvester_lab::server::Server {
    api.lab()
}
