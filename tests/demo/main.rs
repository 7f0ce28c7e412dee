// SPDX-License-Identifier: Apache-2.0
//! `cargo demo`: the main scenarios, step by step, with the real binary on a directory tree against the lab. Each step is checked;
//! the first one that fails stops the demo.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "the demo ends at the first surprise, as a test does"
)]

use std::time::{Duration, Instant};

use harvester_lab::cloud_controller::Running;
use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::guest::Distribution;
use harvester_lab::harvester::Order;
use harvester_lab::names::{HOST, IDENTITY, REGION, TOPOLOGY, ZONE, ZONE_BETA};
use harvester_lab::process::{Agent, Signal, run_once};
use harvester_lab::virtio_port::VirtioPort;
use harvester_lab::world::{AGENT, SOON, VM_NAME, World, WorldOptions, eventually};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_harvester-node-agent");

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let began = Instant::now();
    println!(
        "The VM {VM_NAME} runs on Harvester host hv-a (region eu-1, zone rack-a) and is a node of an RKE2 cluster."
    );
    println!("The lab provides both API servers over TLS; the agent is the real binary.\n");
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
            println!("   ok: {outcome}\n");
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
    println!(
        "all steps passed in {:.1} s",
        (Instant::now() - began).as_secs_f64()
    );
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
        let stale = [(ZONE, Some("stale")), (ZONE_BETA, Some("stale"))];
        world.relabel_node("kubelet", &stale).await;
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
        let new = lines.iter().skip(self.printed);
        let new = new.map(|line| line.text.clone());
        self.printed = lines.len();
        new.filter(|line| !line.trim_start().starts_with("detail: "))
            .collect()
    }

    async fn labels_appear(&mut self) -> String {
        let started = self.agent.started();
        let ready = self.agent.wait_ready(SOON).await.at;
        let at = self.seen(HOST, "hv-a", started).await;
        for (key, value) in [(REGION, "eu-1"), (ZONE, "rack-a"), (ZONE_BETA, "rack-a")] {
            self.expect(key, value).await;
        }
        for (kind, reason) in [(TOPOLOGY, "Synced"), (IDENTITY, "NamesMatch")] {
            self.world.condition_becomes(kind, "True", reason).await;
        }
        format!(
            "ready after {}, labeled after {}, both conditions True",
            ms(ready - started),
            ms(at - started)
        )
    }

    async fn migration_with_lag(&mut self) -> String {
        let (world, lag) = (&self.world, Duration::from_millis(300));
        world.recorder.clear().await;
        let began = Instant::now();
        let migration = world
            .harvester
            .migrate(&world.vm, "hv-c", Order::From1_6, lag)
            .await;
        migration.expect("the Harvester side is there");
        let completed = Instant::now();
        let at = self.seen(ZONE, "rack-c", began).await;
        self.expect(ZONE_BETA, "rack-c").await;
        let hosts = [
            ["eu-1", "rack-a", "rack-a", "hv-a"],
            ["eu-2", "rack-c", "rack-c", "hv-c"],
        ];
        let hosts = hosts.map(|labels| labels.map(|value| Some(value.to_owned())).to_vec());
        let seen = world
            .recorder
            .combinations(&[REGION, ZONE, ZONE_BETA, HOST]);
        assert!(seen.iter().all(|labels| hosts.contains(labels)), "{seen:?}");
        assert_eq!(self.cloud.reverts(), 0, "of the cloud controller");
        let ahead = completed.saturating_duration_since(at);
        let wait = at.saturating_duration_since(completed);
        let when = match wait.is_zero() {
            true => format!("{} before", ms(ahead)),
            false => format!("{} after", ms(wait)),
        };
        format!("labels are never a mixture of two hosts; updated {when} the migration completed")
    }

    async fn host_relabelled(&mut self) -> String {
        let (harvester, zone) = (&self.world.harvester, [(ZONE, Some("rack-z"))]);
        let relabelled = harvester.relabel_host("hv-c", &zone).await;
        relabelled.expect("the Harvester side is there");
        let began = Instant::now();
        let touched = harvester.touch(&self.world.vm).await;
        touched.expect("the Harvester side is there");
        let at = self.seen(ZONE, "rack-z", began).await;
        format!(
            "Node labeled {} after the annotation of Harvester",
            ms(at - began)
        )
    }

    async fn hostname_changed(&mut self) -> String {
        let (world, agent) = (&self.world, &mut self.agent);
        world.guest.kernel_hostname("localhost");
        world.guest.static_hostname("localhost");
        world
            .condition_becomes(IDENTITY, "False", "HostnameDiffers")
            .await;
        let told = agent.wait_line(|line| line.text.contains("[hostname-differs]"), SOON);
        assert!(told.await.text.contains("localhost"));
        let told = async || {
            let events = world.events().await;
            let of_it = events.iter();
            of_it
                .filter(|event| event["reason"] == "HostnameDiffers")
                .count()
        };
        eventually(SOON, "an Event", async || told().await > 0).await;
        assert_eq!(told().await, 1, "one Event");
        world.guest.kernel_hostname(VM_NAME);
        world.guest.static_hostname(VM_NAME);
        world
            .condition_becomes(IDENTITY, "True", "NamesMatch")
            .await;
        "condition False, one Event, one journal entry; True again after the hostname is restored"
            .to_owned()
    }

    async fn noticed_by_the_guest(&mut self) -> String {
        let began = Instant::now();
        self.port.hang_up();
        let hint = "possible live migration (port:";
        let hint = self.agent.wait_line(|line| line.text.contains(hint), SOON);
        let hint = hint.await.at;
        // Labels wait for the API to tell where.
        self.expect(HOST, "hv-c").await;
        self.port.come_back();
        self.world.migrate("hv-b").await;
        let at = self.seen(HOST, "hv-b", began).await;
        self.expect(ZONE, "rack-b").await;
        let is_confirmed = async || {
            let status = self.world.guest.status().unwrap_or_default();
            let last = &status["lastMigration"];
            status["lastMigrationHint"]["outcome"] == "confirmed"
                && last["from"] == "hv-c"
                && last["to"] == "hv-b"
                && last["trigger"] == "port"
        };
        eventually(SOON, "the status names hint and hosts", is_confirmed).await;
        let shown = self.status().await;
        let mut lines = shown.lines();
        assert!(
            lines.any(|line| line.contains("link ") && line.contains("active: ")),
            "`status` shows which event sources are active: {shown}"
        );
        format!(
            "hint after {}, while the API still showed hv-c; labels after {}",
            ms(hint - began),
            ms(at - began)
        )
    }

    async fn label_overwritten(&mut self) -> String {
        let began = Instant::now();
        let by_hand = [(HOST, Some("by-hand"))];
        self.world.relabel_node("kubectl-label", &by_hand).await;
        let overwritten = self.seen(HOST, "by-hand", began).await;
        let at = self.seen(HOST, "hv-b", overwritten).await;
        format!("restored after {}", ms(at - overwritten))
    }

    async fn api_away_and_back(&mut self) -> String {
        let server = self.world.harvester_api.lab();
        let matcher = Matcher::any().user_agent(AGENT);
        server.faults().inject(matcher, Fault::html(503));
        server.drop_watches();
        let unreachable = "[harvester-unreachable]";
        self.agent
            .wait_line(|line| line.text.contains(unreachable), SOON)
            .await;
        self.world.migrate("hv-c").await;
        // Labels stay while the API is away.
        self.expect(HOST, "hv-b").await;
        server.faults().clear();
        let back = Instant::now();
        let at = self.seen(HOST, "hv-c", back).await;
        self.expect(ZONE, "rack-z").await;
        format!(
            "labels unchanged during the outage, updated {} after it",
            ms(at - back)
        )
    }

    async fn credential_rotated(&mut self) -> String {
        let world = &self.world;
        let user = format!("system:node:{}", world.node_name());
        let identity = world.guest_api.client_identity(&user, &["system:nodes"]);
        world
            .guest
            .rotate_kubelet_certificate(Distribution::Rke2, &identity);
        let began = Instant::now();
        world.migrate("hv-a").await;
        let at = self.seen(HOST, "hv-a", began).await;
        let status = world.guest.status().unwrap_or(Value::Null);
        let findings = status["findings"].to_string();
        assert!(
            !findings.contains("credential-reload-failed"),
            "the new certificate is in use: {findings}"
        );
        // The labels are there first, the report of them a moment later.
        let is_shown = async || self.status().await.contains("synced on hv-a");
        eventually(SOON, "`status` shows the host", is_shown).await;
        format!(
            "labels written with the new certificate, {} after the migration",
            ms(at - began)
        )
    }

    async fn stop(&mut self) -> String {
        let began = Instant::now();
        self.agent.signal(Signal::SIGTERM);
        let status = self.agent.wait_exit(SOON).await;
        assert!(status.success(), "{status}");
        self.expect(HOST, "hv-a").await;
        format!(
            "stopped after {}; labels unchanged",
            ms(Instant::now() - began)
        )
    }

    /// What `status` prints.
    async fn status(&self) -> String {
        run_once(BINARY, self.world.guest.root(), &["status", "-v"], SOON)
            .await
            .stdout
    }

    /// When a client that watches the Node first saw this label after `since`.
    async fn seen(&self, key: &str, value: &str, since: Instant) -> Instant {
        let at = || {
            let mut versions = self.world.recorder.versions().into_iter();
            let seen =
                versions.find(|one| one.at >= since && one.label(key).as_deref() == Some(value));
            seen.map(|version| version.at)
        };
        let what = format!("label {key}={value}");
        eventually(SOON, &what, async || at().is_some()).await;
        at().unwrap_or(since)
    }

    async fn expect(&self, key: &str, value: &str) {
        let label = self.world.node_label(key).await;
        assert_eq!(label.as_deref(), Some(value), "label {key}");
    }
}

fn ms(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
}
