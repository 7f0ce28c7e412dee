// SPDX-License-Identifier: Apache-2.0
//! The cloud controller of the guest cluster, as far as Node labels go, and a rival for any one label.
//!
//! The point of it: for zone and region the *beta* key is the controller's primary one. Whoever changes the other key
//! alone sees it changed back at once, since his own change wakes the controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

use crate::Endpoint;
use crate::admin::{Admin, ApiError, paths};

/// User-Agent, and with that field manager, of Harvester's cloud provider.
pub const USER_AGENT: &str = "harvester-cloud-provider";

/// The taint of a Node that the controller has not seen, or is to see again.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The controller's primary key and the key that follows it.
pub const TWINS: [(&str, &str); 3] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    ),
];

/// Pause before a watch that failed is opened again.
const RETRY: Duration = Duration::from_millis(200);

/// The controller, not yet running.
#[derive(Debug, Clone)]
pub struct CloudController {
    endpoint: Endpoint,
    admin: Admin,
}

impl CloudController {
    /// A controller of the guest cluster behind `endpoint`.
    #[must_use]
    pub fn new(endpoint: &Endpoint) -> Self {
        Self {
            endpoint: endpoint.clone(),
            admin: Admin::named(endpoint, USER_AGENT),
        }
    }

    /// Initialises a Node: both keys of region and zone where there is a value, the provider id unless there is one, and
    /// no taint any more. It never removes a label.
    pub async fn initialise(
        &self,
        node: &str,
        provider_id: &str,
        region: Option<&str>,
        zone: Option<&str>,
    ) -> Result<(), ApiError> {
        self.admin
            .update(&paths::node(node), |node| {
                for (value, (beta, stable)) in [(zone, TWINS[0]), (region, TWINS[1])] {
                    if let Some(value) = value {
                        let labels = &mut node["metadata"]["labels"];
                        labels[beta] = json!(value);
                        labels[stable] = json!(value);
                    }
                }
                let spec = &mut node["spec"];
                if spec["providerID"].as_str().is_none_or(str::is_empty) {
                    spec["providerID"] = json!(provider_id);
                }
                if let Some(taints) = spec["taints"].as_array_mut() {
                    taints.retain(|taint| taint["key"] != UNINITIALIZED);
                }
            })
            .await
            .map(drop)
    }

    /// What Harvester's cloud provider does after an update of the VMI: when annotations and labels differ, the Node is
    /// tainted and initialised again. Answers whether it was.
    ///
    /// A label whose annotation is gone stays and differs, so that each update of the VMI leads here again, as in the
    /// real one.
    pub async fn resync_topology(&self, node: &str, vmi: &Value) -> Result<bool, ApiError> {
        let state = &vmi["status"]["migrationState"];
        if state.is_object() && state["completed"] != true {
            return Ok(false);
        }
        let path = paths::node(node);
        let current = self.admin.get(&path).await?;
        let annotation = |key: &str| vmi["metadata"]["annotations"][key].as_str();
        let label = |key: &str| current["metadata"]["labels"][key].as_str();
        let [(_, zone), (_, region), _] = TWINS;
        if annotation(zone) == label(zone) && annotation(region) == label(region) {
            return Ok(false);
        }
        self.admin
            .update(&path, |node| {
                let taint =
                    json!({"key": UNINITIALIZED, "value": "true", "effect": "PreferNoSchedule"});
                match node["spec"]["taints"].as_array_mut() {
                    Some(taints) => taints.push(taint),
                    None => node["spec"]["taints"] = json!([taint]),
                }
            })
            .await?;
        self.initialise(node, "", annotation(region), annotation(zone))
            .await?;
        Ok(true)
    }

    /// Watches the VMI behind `path` of Harvester's API from now on, and follows its annotations, until the value that this
    /// answers is dropped. It counts how often it wrote.
    #[must_use]
    pub fn follow(&self, harvester: &Endpoint, path: &str, node: &str) -> Running {
        let (cloud, node) = (self.clone(), node.to_owned());
        Running::start(harvester.clone(), USER_AGENT, path.to_owned(), move |vmi| {
            let (cloud, node) = (cloud.clone(), node.clone());
            async move { Ok(u64::from(cloud.resync_topology(&node, &vmi).await?)) }
        })
    }

    /// Watches all Nodes from now on, until the value that this answers is dropped.
    #[must_use]
    pub fn run(&self) -> Running {
        let admin = self.admin.clone();
        let path = paths::NODES.to_owned();
        Running::start(self.endpoint.clone(), USER_AGENT, path, move |node| {
            let admin = admin.clone();
            async move { reconcile_labels(&admin, &node).await }
        })
    }
}

/// Whenever `node` carries another value than `value` under `key`, writes it again, as `manager`, until the value that
/// this answers is dropped.
#[must_use]
pub fn fight(endpoint: &Endpoint, manager: &str, node: &str, key: &str, value: &str) -> Running {
    let admin = Admin::named(endpoint, manager);
    let (key, value) = (key.to_owned(), value.to_owned());
    let path = one_node(node);
    Running::start(endpoint.clone(), manager, path, move |node| {
        let (admin, key, value) = (admin.clone(), key.clone(), value.clone());
        async move {
            if node["metadata"]["labels"][&key] == value {
                return Ok(0);
            }
            let patch = json!({"metadata": {"labels": {&key: value}}});
            admin.merge_patch(&node_path(&node), &patch).await?;
            Ok(1)
        }
    })
}

fn one_node(name: &str) -> String {
    format!("{}?fieldSelector=metadata.name%3D{name}", paths::NODES)
}

/// A player that reacts to objects. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<()>,
    reverts: Arc<AtomicU64>,
}

impl Running {
    fn start<F, R>(endpoint: Endpoint, user_agent: &str, path: String, react: F) -> Self
    where
        F: Fn(Value) -> R + Send + 'static,
        R: Future<Output = Result<u64, ApiError>> + Send,
    {
        let reverts = Arc::new(AtomicU64::new(0));
        let counter = reverts.clone();
        let watcher = Admin::named(&endpoint, user_agent);
        let task = tokio::spawn(async move {
            loop {
                if let Ok(mut watch) = watcher.watch(&path, "").await {
                    while let Some(Ok(event)) = watch.next().await {
                        if !matches!(event.kind.as_str(), "ADDED" | "MODIFIED") {
                            continue;
                        }
                        // A conflict or a Node that is gone: the next event tells more.
                        if let Ok(count) = react(event.object).await {
                            counter.fetch_add(count, Ordering::SeqCst);
                        }
                    }
                }
                tokio::time::sleep(RETRY).await;
            }
        });
        Self { task, reverts }
    }

    /// How often it has written so far.
    #[must_use]
    pub fn reverts(&self) -> u64 {
        self.reverts.load(Ordering::SeqCst)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The beta key is primary: where it exists, the other one is made equal to it.
async fn reconcile_labels(admin: &Admin, node: &Value) -> Result<u64, ApiError> {
    let labels = &node["metadata"]["labels"];
    let changed: Map<String, Value> = TWINS
        .iter()
        .filter(|(beta, stable)| labels[beta].is_string() && labels[beta] != labels[stable])
        .map(|(beta, stable)| ((*stable).to_owned(), labels[beta].clone()))
        .collect();
    let count = changed.len() as u64;
    if count > 0 {
        let patch = json!({"metadata": {"labels": changed}});
        admin.strategic_patch(&node_path(node), &patch).await?;
    }
    Ok(count)
}

fn node_path(node: &Value) -> String {
    paths::node(node["metadata"]["name"].as_str().unwrap_or_default())
}
