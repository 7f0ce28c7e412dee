// SPDX-License-Identifier: Apache-2.0
//! What a live migration costs: how soon the labels follow, and how many calls that takes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use harvester_lab::admin::{Admin, paths};
use harvester_lab::figures::{Samples, milliseconds};
use harvester_lab::harvester::Order;
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::names::HOST;
use harvester_lab::server::RequestRecord;
use harvester_lab::world::{
    AGENT, CloudState, HOSTS, HostAccess, NodeVersion, SOON, Side, World, WorldOptions, found,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::started;

/// What the bare PATCH changes.
const ROUND: &str = "footprint.example.com/round";
const HOST_TOO: &str = "footprint.example.com/host";

/// Labels that the agent changes at a move: region and zone under both keys, and the host.
const AGENT_LABELS: usize = 5;

/// Migrations per latency figure.
pub(crate) const ROUNDS: usize = 20;

/// Migrations for the number of calls, which hardly varies.
const COUNTED_ROUNDS: usize = 10;

/// Between two migrations: the agent allows twenty looks at once and then two a second, and a migration is a handful.
const PAUSE: Duration = Duration::from_secs(3);

/// Harvester's annotations come this much after the move, so that only one event separates the agent from its patch.
const LAG: Duration = Duration::from_millis(300);

/// From the event to the patch, both as the servers of the lab saw them.
pub(crate) async fn event_to_patch(binary: &Path) -> Samples {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = started(&world, binary, &[]).await;
    let mut samples = Samples::default();
    for round in 1..=ROUNDS {
        let migration = move_without_annotations(&world, round).await;
        let mark = Instant::now();
        annotate(&world).await;
        let patch = first_patch(&world, mark).await;
        let events: Vec<Instant> = world
            .harvester_api
            .lab()
            .watch_writes()
            .into_iter()
            .filter(|write| {
                write.user_agent.starts_with(AGENT)
                    && write.event == "MODIFIED"
                    && (mark..=patch.at).contains(&write.at)
            })
            .map(|write| write.at)
            .collect();
        assert_eq!(events.len(), 1, "one event leads to the patch");
        samples.push(milliseconds(patch.at - events[0]));
        finish(&world, &migration).await;
    }
    samples
}

/// From the event that names the host until the label is visible, and a bare PATCH of the same Node by a client that has
/// nothing else to do. All ends are events of watches of the benchmark, so that they have the same delay.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    /// Event of the VMI to event of the Node with the label.
    pub label: Samples,
    /// A PATCH of one annotation by an administrator, to the event of the Node with its change.
    pub one_annotation: Samples,
    /// A PATCH with as many labels and annotations as the agent's, with the kubelet's credential, to the event of the Node
    /// with its change: what the server itself takes for such a write.
    pub same_write: Samples,
}

/// Measures [`Visible`] on two real API servers of a version.
///
/// With `HostAccess::Annotations` the event is the one that brings Harvester's annotations; with `HostAccess::Nodes` the one
/// that names another host, whose labels are kept: the first rounds on each host read them, and are not among the samples.
/// There is no cloud provider then: beside one, the agent waits for the annotations that it follows.
pub(crate) async fn event_to_label(
    binary: &Path,
    version: Kubernetes,
    access: HostAccess,
) -> Visible {
    let options = WorldOptions {
        access,
        cloud: match access {
            HostAccess::Nodes => CloudState::Absent,
            HostAccess::Annotations | HostAccess::Nothing => CloudState::Initialised,
        },
        ..WorldOptions::default()
    };
    let world = World::real(version, options).await;
    let _agent = started(&world, binary, &[]).await;
    let kubelet = Admin::with_identity(&world.guest_api.endpoint(), "kubelet", &world.kubelet);
    let events = Events::watch(&world).await;
    let mut visible = Visible::default();
    let unread = match access {
        HostAccess::Nodes => HOSTS.len(),
        HostAccess::Annotations | HostAccess::Nothing => 0,
    };
    for round in 1..=ROUNDS + unread {
        // The benchmark shares the processors with what it measures.
        world.recorder.clear().await;
        events.clear();
        let mark = Instant::now();
        let migration = move_without_annotations(&world, round).await;
        annotate(&world).await;
        let seen = label_seen(&world, &migration.target).await;
        let event = events.of(access, &migration.target, mark).await;
        if round > unread {
            visible
                .label
                .push(milliseconds(seen.saturating_duration_since(event)));
        }
        finish(&world, &migration).await;
        tokio::time::sleep(LAG).await;
        let patch = json!({"metadata": {"annotations": {ROUND: round.to_string()}}});
        let taken = bare_patch(&world, &world.guest_admin, &patch).await;
        visible.one_annotation.push(taken);
        tokio::time::sleep(LAG).await;
        let mut patch = json!({"metadata": {"annotations": {ROUND: format!("{round} again"), HOST_TOO: round.to_string()}}});
        for part in 0..AGENT_LABELS {
            patch["metadata"]["labels"][format!("{ROUND}-{part}")] = json!(round.to_string());
        }
        let taken = bare_patch(&world, &kubelet, &patch).await;
        visible.same_write.push(taken);
    }
    visible
}

/// The events of the VMI.
struct Events {
    seen: Arc<Mutex<Vec<(Instant, Value)>>>,
    _task: JoinSet<()>,
}

impl Events {
    async fn watch(world: &World) -> Self {
        let admin = Admin::named(&world.harvester_api.endpoint(), "benchmark");
        let path = paths::grouped(
            "kubevirt.io/v1",
            &world.vm.spec.namespace,
            "virtualmachineinstances",
        );
        let mut watch = admin
            .watch(&path, "")
            .await
            .expect("the Harvester side is there");
        let seen: Arc<Mutex<Vec<(Instant, Value)>>> = Arc::default();
        let kept = Arc::clone(&seen);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(Ok(event)) = watch.next().await {
                kept.lock()
                    .expect("no holder panics")
                    .push((Instant::now(), event.object));
            }
        });
        Self { seen, _task: task }
    }

    fn clear(&self) {
        self.seen.lock().expect("no holder panics").clear();
    }

    /// When the first event since `mark` told this source's host.
    async fn of(&self, access: HostAccess, host: &str, mark: Instant) -> Instant {
        let tells = |vmi: &Value| match access {
            HostAccess::Nodes => vmi["status"]["nodeName"] == host,
            _ => {
                let annotations = &vmi["metadata"]["annotations"];
                vmi["status"]["nodeName"] == host && annotations["kubernetes.io/hostname"] == host
            }
        };
        found(SOON, "an event tells the host", async || {
            let seen = self.seen.lock().expect("no holder panics");
            let first = seen.iter().find(|(at, vmi)| *at >= mark && tells(vmi));
            first.map(|(at, _)| *at)
        })
        .await
    }
}

/// Sends the patch, and answers after how many milliseconds its change was visible.
async fn bare_patch(world: &World, client: &Admin, patch: &Value) -> f64 {
    let wanted = &patch["metadata"]["annotations"][ROUND];
    let mark = Instant::now();
    let answer = client
        .merge_patch(&paths::node(world.node_name()), patch)
        .await;
    answer.expect("this client may patch the Node");
    let is_it = |version: &NodeVersion| version.node["metadata"]["annotations"][ROUND] == *wanted;
    let seen = found(SOON, "the PATCH is visible", async || {
        world.recorder.versions().into_iter().find(is_it)
    });
    milliseconds(seen.await.at.saturating_duration_since(mark))
}

/// Calls per migration.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// By verb; writes of the status are told apart.
    pub by_verb: BTreeMap<String, Samples>,
    /// All of them.
    pub total: Samples,
    /// PATCHes of the Node itself.
    pub node_patches: Samples,
}

/// Counts what the agent asks for while whole migrations, annotations at once, go by.
pub(crate) async fn calls(binary: &Path) -> Calls {
    let world = World::lab(WorldOptions::default()).await;
    let _agent = started(&world, binary, &[]).await;
    let mut counted: Vec<BTreeMap<String, usize>> = Vec::new();
    let mut calls = Calls::default();
    for round in 1..=COUNTED_ROUNDS {
        tokio::time::sleep(PAUSE).await;
        let mark = Instant::now();
        world.migrate(target(round)).await;
        first_patch(&world, mark).await;
        tokio::time::sleep(PAUSE).await;
        let requests = requests_since(&world, mark).await;
        calls.total.push(requests.len() as f64);
        let patches = requests.iter().filter(|request| is_node_patch(request));
        calls.node_patches.push(patches.count() as f64);
        let mut by_verb: BTreeMap<String, usize> = BTreeMap::new();
        for request in requests {
            *by_verb.entry(name_of(&request)).or_default() += 1;
        }
        counted.push(by_verb);
    }
    let verbs: Vec<String> = counted.iter().flat_map(|one| one.keys().cloned()).collect();
    for verb in verbs {
        let mut samples = Samples::default();
        // A verb that was not used in a round counts there as zero.
        for one in &counted {
            samples.push(one.get(&verb).copied().unwrap_or_default() as f64);
        }
        calls.by_verb.insert(verb, samples);
    }
    calls
}

/// What the agent asked of both sides since a moment.
pub(crate) async fn requests_since(world: &World, mark: Instant) -> Vec<RequestRecord> {
    let mut requests = world.agent_requests(Side::Harvester).await;
    requests.extend(world.agent_requests(Side::Guest).await);
    requests.retain(|request| request.at >= mark);
    requests.sort_by_key(|request| request.at);
    requests
}

/// How a request is called in the table.
fn name_of(request: &RequestRecord) -> String {
    if request.path.ends_with("/status") {
        format!("{} of status", request.verb)
    } else {
        request.verb.clone()
    }
}

/// Round after round to another host; the VM begins on the first.
fn target(round: usize) -> &'static str {
    HOSTS[round % HOSTS.len()].0
}

/// All of a migration up to the moment when Harvester would write its annotations.
async fn move_without_annotations(
    world: &World,
    round: usize,
) -> harvester_lab::harvester::Migration {
    tokio::time::sleep(PAUSE).await;
    let harvester = &world.harvester;
    let migration = harvester.prepare_migration(&world.vm, target(round)).await;
    let migration = migration.expect("the Harvester side is there");
    harvester
        .copy_memory(&migration)
        .await
        .expect("the Harvester side is there");
    harvester
        .switch_host(&migration, Order::From1_6)
        .await
        .expect("the Harvester side is there");
    // What is measured from this event on must not compete with the next writes of the benchmark.
    tokio::time::sleep(LAG).await;
    harvester
        .complete_migration(&migration, Order::From1_6)
        .await
        .expect("the Harvester side is there");
    tokio::time::sleep(LAG).await;
    migration
}

async fn annotate(world: &World) {
    let annotated = world.harvester.annotate(&world.vm).await;
    annotated.expect("the Harvester side is there");
}

async fn finish(world: &World, migration: &harvester_lab::harvester::Migration) {
    let cleaned = world.harvester.clean_up_migration(migration).await;
    cleaned.expect("the Harvester side is there");
}

fn is_node_patch(request: &RequestRecord) -> bool {
    request.verb == "patch"
        && request.path.starts_with("/api/v1/nodes/")
        && !request.path.ends_with("/status")
}

async fn first_patch(world: &World, mark: Instant) -> RequestRecord {
    found(SOON, "the agent patches", async || {
        let requests = requests_since(world, mark).await;
        requests.into_iter().find(is_node_patch)
    })
    .await
}

/// When the label was first seen of those versions that show it in a row up to now.
async fn label_seen(world: &World, host: &str) -> Instant {
    found(SOON, "the label follows", async || {
        let versions = world.recorder.versions().into_iter().rev();
        let right = versions.take_while(|version| version.label(HOST).as_deref() == Some(host));
        right.last().map(|version| version.at)
    })
    .await
}
