// SPDX-License-Identifier: Apache-2.0
//! Reads the labels of the host that runs the VM from each source, but only if the sources before it are not sufficient.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::config::Settings;
use crate::facts::names::HostName;
use crate::facts::placement::{HostLabels, PlacementReads, Source, reports_topology};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::sys::document::json::{DATA_BYTES, StringMap, data, labels, pod_node_name, pod_uid};
use crate::sys::escape::chain;
use crate::wire::kubeapi::{Client, Error, Kind, Selectors};

use super::unavailable::why;

/// How long a refusal by RBAC is cached. A newly granted role takes effect after that, or immediately with `systemctl reload`.
const DENIED_FOR: Duration = Duration::from_secs(60 * 60);

/// The maximum number of hosts whose labels are cached.
const HOSTS_MAX: usize = 8;

/// Cached refusals. A request that is known to be refused is not sent.
#[derive(Debug, Default)]
pub struct Denied {
    generation: u64,
    until: BTreeMap<(Source, HostName), (Duration, Unavailable)>,
}

impl Denied {
    /// Clears the cache.
    pub fn clear(&mut self) {
        self.until.clear();
    }

    fn get(
        &mut self,
        source: Source,
        host: &HostName,
        generation: u64,
        uptime: Duration,
    ) -> Option<Unavailable> {
        if self.generation != generation {
            self.generation = generation;
            self.clear();
        }
        self.until
            .get(&(source, host.clone()))
            .filter(|(until, _)| uptime < *until)
            .map(|(_, why)| why.clone())
    }

    fn keep(&mut self, source: Source, host: &HostName, uptime: Duration, why: &Unavailable) {
        self.until.retain(|_, (until, _)| uptime < *until);
        if why.kind == UnavailableKind::Forbidden {
            self.until
                .insert((source, host.clone()), (uptime + DENIED_FOR, why.clone()));
        }
    }
}

/// The cached labels of hosts that were read recently: a VM that returns to a host needs no request.
#[derive(Debug, Default)]
pub struct Hosts(BTreeMap<HostName, (Duration, HostLabels)>);

impl Hosts {
    /// Clears the cache.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes one host.
    pub fn forget(&mut self, host: &HostName) {
        self.0.remove(host);
    }

    fn get(&self, host: &HostName, age: Duration, uptime: Duration) -> Option<HostLabels> {
        let (read, labels) = self.0.get(host)?;
        (uptime.saturating_sub(*read) < age).then(|| labels.clone())
    }

    /// Caches the labels of a host. An existing entry keeps its age.
    fn keep(&mut self, host: &HostName, labels: &HostLabels, uptime: Duration) {
        if self.0.contains_key(host) {
            return;
        }
        if self.0.len() >= HOSTS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, (read, _))| *read);
            if let Some(oldest) = oldest.map(|(host, _)| host.clone()) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(host.clone(), (uptime, labels.clone()));
    }
}

/// Reads the sources in order. Harvester's annotations are part of the instance and cost nothing.
pub async fn read(
    client: &Client,
    generation: u64,
    settings: &Settings,
    vmi: &Vmi,
    host: &HostName,
    memory: (&mut Denied, &mut Hosts),
    uptime: Duration,
) -> PlacementReads {
    let (denied, hosts) = memory;
    let mut reads = PlacementReads::none(host.clone());
    let allowed = |source| settings.topology.sources.contains(&source);
    if allowed(Source::HostNode) {
        reads.host_node = match hosts.get(host, settings.timing.poll, uptime) {
            Some(labels) => Fact::Known(labels),
            None => {
                hosts.forget(host);
                let answer = host_node(client, host);
                ask(Source::HostNode, answer, host, denied, generation, uptime).await
            }
        };
        if let Fact::Known(labels) = &reads.host_node {
            hosts.keep(host, labels, uptime);
        }
    }
    let tells = |seen: &Fact<HostLabels>| seen.known().is_some_and(reports_topology);
    let annotated = allowed(Source::VmiAnnotations)
        && vmi.annotations_are_fresh()
        && reports_topology(&vmi.annotations);
    if allowed(Source::LauncherPod) && !tells(&reads.host_node) && !annotated {
        let answer = launcher_pod(client, vmi, host);
        reads.launcher_pod = ask(
            Source::LauncherPod,
            answer,
            host,
            denied,
            generation,
            uptime,
        )
        .await;
    }
    let extra = !settings.labels.extra.is_empty() && reads.host_node.known().is_none();
    let reported = tells(&reads.host_node) || annotated || tells(&reads.launcher_pod);
    if allowed(Source::ConfigMap) && (!reported || extra) {
        let answer = configmap(client, settings, host);
        reads.configmap = ask(Source::ConfigMap, answer, host, denied, generation, uptime).await;
    }
    reads
}

async fn ask(
    source: Source,
    answer: impl Future<Output = Fact<HostLabels>>,
    host: &HostName,
    denied: &mut Denied,
    generation: u64,
    uptime: Duration,
) -> Fact<HostLabels> {
    if let Some(why) = denied.get(source, host, generation, uptime) {
        return Fact::Failed(why);
    }
    let seen = answer.await;
    if let Fact::Failed(why) = &seen {
        denied.keep(source, host, uptime, why);
    }
    seen
}

async fn host_node(client: &Client, host: &HostName) -> Fact<HostLabels> {
    match client.get_metadata(&format!("/api/v1/nodes/{host}")).await {
        Ok(node) if node.metadata.name.as_deref() == Some(host.as_str()) => {
            Fact::Known(node.metadata.labels.0)
        }
        Ok(_) => Fact::failed(
            UnavailableKind::Refused,
            format!("requested Node `{host}` of Harvester, got another one"),
        ),
        Err(error) => absent_or_failed(&error),
    }
}

#[derive(Deserialize)]
struct LauncherPod {
    metadata: PodMetadata,
    #[serde(default)]
    spec: PodSpec,
}

#[derive(Deserialize)]
struct PodMetadata {
    #[serde(default, deserialize_with = "pod_uid")]
    uid: String,
    #[serde(default, deserialize_with = "labels")]
    labels: StringMap,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default, deserialize_with = "pod_node_name")]
    node_name: String,
}

/// Reads the labels of the instance's active pod on the host: during a migration there are two pods.
async fn launcher_pod(client: &Client, vmi: &Vmi, host: &HostName) -> Fact<HostLabels> {
    let path = format!("/api/v1/namespaces/{}/pods", vmi.namespace);
    let selectors = Selectors {
        label: Some(format!("kubevirt.io/created-by={}", vmi.uid)),
        field: None,
    };
    // Any user can set the label: pods that do not belong to the instance are neither kept nor counted.
    let is_here = |pod: &LauncherPod| {
        pod.spec.node_name == host.as_str() && vmi.active_pods.contains_key(&pod.metadata.uid)
    };
    match client.list::<LauncherPod>(&path, &selectors, is_here).await {
        Ok(pods) => {
            let mut here = pods.into_iter();
            match (here.next(), here.next()) {
                (Some(pod), None) => Fact::Known(pod.metadata.labels.0),
                _ => Fact::Absent,
            }
        }
        Err(error) => absent_or_failed(&error),
    }
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default, deserialize_with = "data")]
    data: StringMap<DATA_BYTES>,
}

/// Reads the entry of the host in the ConfigMap.
async fn configmap(client: &Client, settings: &Settings, host: &HostName) -> Fact<HostLabels> {
    let name = &settings.topology.configmap;
    let path = format!(
        "/api/v1/namespaces/{}/configmaps/{}",
        name.namespace, name.name
    );
    match client.get::<ConfigMap>(&path).await {
        Ok(configmap) => match configmap.data.get(host.as_str()) {
            None => Fact::Absent,
            Some(text) => match super::configmap::labels(text) {
                Ok(labels) => Fact::Known(labels),
                Err(error) => {
                    let text = format!(
                        "entry `{host}` of ConfigMap {}/{}: {}",
                        name.namespace,
                        name.name,
                        chain(&error)
                    );
                    Fact::failed(UnavailableKind::Malformed, text)
                }
            },
        },
        Err(error) => absent_or_failed(&error),
    }
}

fn absent_or_failed(error: &Error) -> Fact<HostLabels> {
    if error.kind == Kind::Absent {
        Fact::Absent
    } else {
        Fact::Failed(why(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_not_asked_again_for_an_hour_or_until_the_credential_changes() {
        let host = HostName::parse("hv-a").unwrap();
        let (source, hour) = (Source::HostNode, Duration::from_secs(3600));
        let refused = Unavailable::new(UnavailableKind::Forbidden, "nodes is forbidden");
        let mut denied = Denied::default();
        denied.keep(source, &host, hour, &refused);
        let mut asked = |generation, uptime| denied.get(source, &host, generation, uptime);
        let last = Duration::from_secs(1);
        assert_eq!(asked(0, 2 * hour - last), Some(refused.clone()));
        assert_eq!(asked(0, 2 * hour), None);
        // Whatever else went wrong may be over at once.
        let away = Unavailable::new(UnavailableKind::Unreachable, "no route");
        denied.keep(source, &host, hour, &away);
        assert_eq!(denied.get(source, &host, 0, hour), Some(refused));
        assert_eq!(denied.get(source, &host, 1, hour), None);
    }
}
