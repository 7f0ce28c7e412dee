// SPDX-License-Identifier: Apache-2.0
//! `cargo demo`: the main scenarios, step by step, with the real binary on a directory tree against the lab. Each step is checked;
//! the first one that fails stops the demo.

#![expect(
    clippy::indexing_slicing,
    reason = "a key that a JSON value lacks is null"
)]

use std::cell::Cell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use harvester_lab::cloud_controller::Running;
use harvester_lab::guest::Distribution;
use harvester_lab::harvester::Order;
use harvester_lab::names::{HOST, REGION, ZONE, ZONE_BETA};
use harvester_lab::process::{Agent, Line, Signal, run_once};
use harvester_lab::virtio_port::VirtioPort;
use harvester_lab::world::{NodeVersion, SOON, VM_NAME, World, WorldOptions, eventually};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_harvester-node-agent");

type Step = Result<String, String>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let began = Instant::now();
    println!(
        "The VM {VM_NAME} runs on Harvester host hv-a (region eu-1, zone rack-a) and is a node of an RKE2 cluster."
    );
    println!("The lab provides both API servers over TLS; the agent is the real binary.\n");
    match story().await {
        Ok(()) => {
            println!(
                "all steps passed in {:.1} s",
                (Instant::now() - began).as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(reason) => {
            println!("\nFAILED: {reason}");
            ExitCode::FAILURE
        }
    }
}

async fn story() -> Result<(), String> {
    let mut demo = Demo::new().await;
    let mut number = 0;
    macro_rules! step {
        ($title:literal, $step:ident) => {
            number += 1;
            println!("{number}. {}", $title);
            let outcome = demo.$step().await;
            for line in demo.new_lines() {
                println!("   | {line}");
            }
            println!(
                "   ok: {}\n",
                outcome.map_err(|reason| format!("{}: {reason}", $title))?
            );
        };
    }
    step!("the agent starts and labels its Node", labels_appear);
    step!(
        "live migration to hv-c; the annotations of Harvester lag by 300 ms",
        migration_with_lag
    );
    step!(
        "an administrator labels host hv-c with another zone",
        host_relabelled
    );
    step!("the hostname is changed", hostname_changed);
    step!(
        "live migration to hv-b, detected in the guest before the Harvester API shows it",
        noticed_by_the_guest
    );
    step!("a user overwrites the host label", label_overwritten);
    step!(
        "the Harvester API is unavailable during a live migration",
        api_away_and_back
    );
    step!(
        "the kubelet certificate is rotated before a live migration",
        credential_rotated
    );
    step!("the agent is stopped (SIGTERM)", stop);
    Ok(())
}

struct Demo {
    agent: Agent,
    world: World,
    /// Our own virtio-serial port. Its host side is another program after each migration.
    port: VirtioPort,
    /// The cloud controller of the guest cluster, which would revert a half-written label pair.
    cloud: Running,
    printed: usize,
}

impl Demo {
    async fn new() -> Self {
        let world = World::lab(WorldOptions::default()).await;
        world
            .relabel_node(
                "kubelet",
                &[(ZONE, Some("stale")), (ZONE_BETA, Some("stale"))],
            )
            .await;
        let cloud = world.cloud.run();
        let port = VirtioPort::offer(&world.guest, "io.harvesterhci.node_agent.0");
        let agent = world.spawn_agent(BINARY, &["run"]);
        Self {
            world,
            agent,
            port,
            cloud,
            printed: 0,
        }
    }

    /// What the agent wrote to its journal since the last step, without the long form of messages that were shortened.
    fn new_lines(&mut self) -> Vec<String> {
        let lines = self.agent.lines();
        let new = lines
            .iter()
            .skip(self.printed)
            .map(|line| line.text.clone())
            .filter(|line| !line.trim_start().starts_with("detail: "))
            .collect();
        self.printed = lines.len();
        new
    }

    async fn labels_appear(&mut self) -> Step {
        let ready = self.agent.wait_ready(SOON).await;
        let ready = ready.at.duration_since(self.agent.started());
        let at = self.visible(HOST, "hv-a").await;
        for (key, value) in [(REGION, "eu-1"), (ZONE, "rack-a"), (ZONE_BETA, "rack-a")] {
            self.expect(key, value).await?;
        }
        self.condition("HarvesterTopologySynced", "True").await;
        self.condition("HarvesterIdentityVerified", "True").await;
        let labelled = at.duration_since(self.agent.started());
        Ok(format!(
            "ready after {} ms, labeled after {} ms, both conditions True",
            ms(ready),
            ms(labelled)
        ))
    }

    async fn migration_with_lag(&mut self) -> Step {
        self.world.recorder.clear().await;
        let (world, lag) = (&self.world, Duration::from_millis(300));
        world
            .harvester
            .migrate(&world.vm, "hv-c", Order::From1_6, lag)
            .await
            .map_err(text)?;
        let annotated = Instant::now();
        let at = self.visible(ZONE, "rack-c").await;
        self.expect(ZONE_BETA, "rack-c").await?;
        self.no_mixture(&[("eu-1", "rack-a", "hv-a"), ("eu-2", "rack-c", "hv-c")])?;
        let versions = self.world.recorder.versions();
        let count = versions
            .iter()
            .filter(|version| version.label(HOST).as_deref() == Some("hv-c"))
            .count();
        check(count > 0, "the host label moved")?;
        check(
            self.cloud.reverts() == 0,
            "the cloud controller reverted nothing",
        )?;
        let ahead = annotated.saturating_duration_since(at);
        let wait = at.saturating_duration_since(annotated);
        Ok(format!(
            "labels are never a mixture of two hosts; updated {}",
            if wait.is_zero() {
                format!("{} ms before the migration completed", ms(ahead))
            } else {
                format!("{} ms after the migration completed", ms(wait))
            }
        ))
    }

    async fn host_relabelled(&mut self) -> Step {
        self.world.recorder.clear().await;
        let zone = [(ZONE, Some("rack-z"))];
        self.world
            .harvester
            .relabel_host("hv-c", &zone)
            .await
            .map_err(text)?;
        self.world
            .harvester
            .touch(&self.world.vm)
            .await
            .map_err(text)?;
        let began = Instant::now();
        let at = self.visible(ZONE, "rack-z").await;
        Ok(format!(
            "Node labeled {} ms after the annotation of Harvester",
            ms(at.saturating_duration_since(began))
        ))
    }

    async fn hostname_changed(&mut self) -> Step {
        self.world.guest.kernel_hostname("localhost");
        self.world.guest.static_hostname("localhost");
        self.condition("HarvesterIdentityVerified", "False").await;
        let told = self
            .agent
            .wait_line(|line| line.text.contains("[hostname-differs]"), SOON)
            .await;
        check(
            told.text.contains("localhost"),
            "the record names the hostname",
        )?;
        let is_told = async || self.told("IdentityMismatch").await > 0;
        eventually(SOON, "an Event", is_told).await;
        check(self.told("IdentityMismatch").await == 1, "one Event")?;
        self.world.guest.kernel_hostname(VM_NAME);
        self.world.guest.static_hostname(VM_NAME);
        self.condition("HarvesterIdentityVerified", "True").await;
        Ok("condition False, one Event, one journal entry; True again after the hostname is restored".to_owned())
    }

    async fn noticed_by_the_guest(&mut self) -> Step {
        let began = Instant::now();
        self.port.hang_up();
        let sign = |line: &Line| line.text.contains("possible live migration (port:");
        let sign = self.agent.wait_line(sign, SOON).await;
        let noticed = sign.at.saturating_duration_since(began);
        self.expect(HOST, "hv-c")
            .await
            .map_err(|_| "labels wait for the API to tell where".to_owned())?;
        self.port.come_back();
        self.world.migrate("hv-b").await;
        let at = self.visible(HOST, "hv-b").await;
        self.expect(ZONE, "rack-b").await?;
        let confirmed = |status: &Value| {
            let is = |pointer, value: &str| status.pointer(pointer).is_some_and(|v| v == value);
            is("/lastMigrationHint/outcome", "confirmed")
                && is("/lastMigration/from", "hv-c")
                && is("/lastMigration/to", "hv-b")
                && is("/lastMigration/trigger", "port")
        };
        let is_confirmed = async || {
            let status = self.world.guest.status();
            status.is_some_and(|status| confirmed(&status))
        };
        eventually(
            SOON,
            "the status names the sign and the hosts",
            is_confirmed,
        )
        .await;
        let shown = self.status().await;
        check(
            shown
                .lines()
                .any(|line| line.contains("link ") && line.contains("active: ")),
            "`status` shows which event sources are active",
        )?;
        Ok(format!(
            "hint after {} ms, while the API still showed hv-c; labels after {} ms",
            ms(noticed),
            ms(at.saturating_duration_since(began))
        ))
    }

    async fn label_overwritten(&mut self) -> Step {
        self.world.recorder.clear().await;
        self.world
            .relabel_node("kubectl-label", &[(HOST, Some("by-hand"))])
            .await;
        let overwritten = self.visible(HOST, "by-hand").await;
        let right = |version: &NodeVersion| {
            version.at >= overwritten && version.label(HOST).as_deref() == Some("hv-b")
        };
        let at = self.version(HOST, right).await;
        Ok(format!(
            "restored after {} ms",
            ms(at.duration_since(overwritten))
        ))
    }

    async fn api_away_and_back(&mut self) -> Step {
        let server = self.world.harvester_api.lab();
        let matcher = harvester_lab::faults::Matcher::any().user_agent("harvester-node-agent");
        server
            .faults()
            .inject(matcher, harvester_lab::faults::Fault::html(503));
        server.drop_watches();
        self.agent
            .wait_line(|line| line.text.contains("[harvester-unreachable]"), SOON)
            .await;
        self.world.migrate("hv-c").await;
        self.expect(HOST, "hv-b")
            .await
            .map_err(|_| "labels stay while the API is away".to_owned())?;
        server.faults().clear();
        let back = Instant::now();
        let at = self.visible(HOST, "hv-c").await;
        self.expect(ZONE, "rack-z").await?;
        Ok(format!(
            "labels unchanged during the outage, updated {} ms after it",
            ms(at.saturating_duration_since(back))
        ))
    }

    async fn credential_rotated(&mut self) -> Step {
        let user = format!("system:node:{}", self.world.node_name());
        let identity = self
            .world
            .guest_api
            .client_identity(&user, &["system:nodes"]);
        self.world
            .guest
            .rotate_kubelet_certificate(Distribution::Rke2, &identity);
        self.world.migrate("hv-a").await;
        let began = Instant::now();
        let at = self.visible(HOST, "hv-a").await;
        let status = self.world.guest.status().unwrap_or(Value::Null);
        let kept = status["findings"]
            .to_string()
            .contains("credential-reload-failed");
        check(!kept, "the new certificate is in use")?;
        // The labels are there first, the report of them a moment later.
        let is_shown = async || self.status().await.contains("synced on hv-a");
        eventually(SOON, "`status` shows the host", is_shown).await;
        Ok(format!(
            "labels written with the new certificate, {} ms after the migration",
            ms(at.saturating_duration_since(began))
        ))
    }

    async fn stop(&mut self) -> Step {
        let began = Instant::now();
        self.agent.signal(Signal::SIGTERM);
        let status = self.agent.wait_exit(SOON).await;
        check(status.success(), "exit code 0")?;
        self.expect(HOST, "hv-a").await?;
        Ok(format!(
            "stopped after {} ms; labels unchanged",
            ms(Instant::now() - began)
        ))
    }

    /// What `status` prints.
    async fn status(&self) -> String {
        run_once(BINARY, self.world.guest.root(), &["status", "-v"], SOON)
            .await
            .stdout
    }

    /// How many Events have this reason.
    async fn told(&self, reason: &str) -> usize {
        let events = self.world.events().await;
        events
            .iter()
            .filter(|event| event["reason"] == reason)
            .count()
    }

    /// When a label was first seen with a value by a client that watches the Node.
    async fn visible(&self, key: &str, value: &str) -> Instant {
        self.version(key, |version| version.label(key).as_deref() == Some(value))
            .await
    }

    /// When a version was first seen.
    async fn version(&self, key: &str, wanted: impl Fn(&NodeVersion) -> bool) -> Instant {
        let seen = Cell::new(None);
        let is_seen = async || {
            let versions = self.world.recorder.versions();
            let version = versions.iter().find(|version| wanted(version));
            seen.set(version.map(|version| version.at));
            seen.get().is_some()
        };
        eventually(SOON, &format!("another value of label {key}"), is_seen).await;
        seen.get().unwrap_or_else(Instant::now)
    }

    async fn expect(&self, key: &str, value: &str) -> Result<(), String> {
        let present = self.world.node_label(key).await;
        check(
            present.as_deref() == Some(value),
            &format!("label {key} is {value} (it is {present:?})"),
        )
    }

    async fn condition(&self, kind: &str, status: &str) {
        let is_so = async || {
            let condition = self.world.condition(kind).await;
            condition.is_some_and(|condition| condition["status"] == status)
        };
        eventually(SOON, &format!("condition {kind} is {status}"), is_so).await;
    }

    /// No version of the Node ever showed labels of two hosts.
    fn no_mixture(&self, hosts: &[(&str, &str, &str)]) -> Result<(), String> {
        for labels in self
            .world
            .recorder
            .combinations(&[REGION, ZONE, ZONE_BETA, HOST])
        {
            let of = |(region, zone, host): &(&str, &str, &str)| {
                labels == [*region, *zone, *zone, *host].map(|text| Some(text.to_owned()))
            };
            check(
                hosts.iter().any(of),
                &format!("labels of one host only, but there were {labels:?}"),
            )?;
        }
        Ok(())
    }
}

fn check(holds: bool, what: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("not so: {what}"))
    }
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

fn ms(duration: Duration) -> u128 {
    duration.as_millis()
}
