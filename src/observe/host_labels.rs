// SPDX-License-Identifier: Apache-2.0
//! Reads the labels of the host that runs the VM from each source, but only if the sources before it are not sufficient.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::config::Settings;
use crate::facts::names::HostName;
use crate::facts::placement::{HostLabels, PlacementReads, Source, reports_topology};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::document::json::{DATA_BYTES, StringMap, data, labels, pod_node_name, uid};
use crate::sys::escape::chain;
use crate::wire::kubeapi::{Client, Error, Kind, NODES, ObjectPath, PODS, Selectors};

use super::unavailable::why;

/// How long a refusal by RBAC is cached. A newly granted role takes effect after that, or immediately with `systemctl reload`.
const DENIED_FOR: Duration = Duration::from_secs(60 * 60);

/// The maximum number of answers that are cached.
const KEPT_MAX: usize = 16;

/// The answers about hosts that were asked for recently. A VM that returns to a host needs no request, and a request that is known to
/// be refused is not sent.
#[derive(Debug, Default)]
pub struct KeptLabels(BTreeMap<(Source, HostName), Kept>);

#[derive(Debug)]
struct Kept {
    answer: Fact<HostLabels>,
    /// The generation of the credential.
    generation: u64,
    until: Duration,
}

impl KeptLabels {
    /// Forgets the labels of all hosts.
    pub fn forget_labels(&mut self) {
        self.0.retain(|_, kept| kept.answer.known().is_none());
    }

    /// Forgets the refusals.
    pub fn forget_refusals(&mut self) {
        self.0.retain(|_, kept| kept.answer.why().is_none());
    }

    /// Forgets the labels of one host.
    pub fn forget_host(&mut self, host: &HostName) {
        self.0.remove(&(Source::HostNode, host.clone()));
    }

    fn get(
        &self,
        about: &(Source, HostName),
        generation: u64,
        uptime: Duration,
    ) -> Option<&Fact<HostLabels>> {
        let kept = self.0.get(about)?;
        // Another credential may be for another Harvester, which has hosts of the same names.
        let is_valid = uptime < kept.until && kept.generation == generation;
        is_valid.then_some(&kept.answer)
    }

    /// Keeps the labels of a Node for `age`, and a refusal for an hour.
    fn keep(
        &mut self,
        about: (Source, HostName),
        answer: &Fact<HostLabels>,
        generation: u64,
        uptime: Duration,
        age: Duration,
    ) {
        let lasts = match answer {
            Fact::Known(_) if about.0 == Source::HostNode => age,
            Fact::Failed(why) if why.kind == UnavailableKind::Forbidden => DENIED_FOR,
            _ => return,
        };
        self.0.retain(|_, kept| uptime < kept.until);
        if self.0.len() >= KEPT_MAX {
            let first = self.0.iter().min_by_key(|(_, kept)| kept.until);
            if let Some(first) = first.map(|(about, _)| about.clone()) {
                self.0.remove(&first);
            }
        }
        let kept = Kept {
            answer: answer.clone(),
            generation,
            until: uptime + lasts,
        };
        self.0.insert(about, kept);
    }
}

/// Reads the sources in order. Harvester's annotations are part of the instance and cost nothing.
pub async fn read(
    client: &Client,
    generation: u64,
    settings: &Settings,
    vmi: &Vmi,
    host: &HostName,
    kept: &mut KeptLabels,
    uptime: Duration,
) -> PlacementReads {
    let mut reads = PlacementReads::none(host.clone());
    let allowed = Source::ALL.iter().copied();
    let allowed = allowed.filter(|source| settings.topology.sources.contains(source));
    // Whether a source has region or zone, so that those after it are not needed.
    let mut is_reported = false;
    for source in allowed {
        let is_needed = match source {
            Source::HostNode => true,
            Source::VmiAnnotations => {
                is_reported |= vmi.annotations_are_fresh() && reports_topology(&vmi.annotations);
                false
            }
            Source::LauncherPod => !is_reported,
            // It may have all labels of the host.
            Source::ConfigMap => {
                let has_extra = !settings.labels.extra.is_empty();
                let of_node = reads.answers.get(&Source::HostNode);
                !is_reported || has_extra && of_node.and_then(Fact::known).is_none()
            }
            Source::HostsTable | Source::PodInfo => false,
        };
        if !is_needed {
            continue;
        }
        let about = (source, host.clone());
        let answer = match kept.get(&about, generation, uptime) {
            Some(answer) => answer.clone(),
            None => {
                let answer = match source {
                    Source::HostNode => host_node(client, host).await,
                    Source::LauncherPod => launcher_pod(client, vmi, host).await,
                    _ => configmap(client, settings, host).await,
                };
                kept.keep(about, &answer, generation, uptime, settings.timing.poll);
                answer
            }
        };
        is_reported |= answer.known().is_some_and(reports_topology);
        reads.answers.insert(source, answer);
    }
    reads
}

async fn host_node(client: &Client, host: &HostName) -> Fact<HostLabels> {
    match client.get_metadata(&NODES.named(host)).await {
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
    #[serde(default, deserialize_with = "uid")]
    uid: Option<String>,
    #[serde(default, deserialize_with = "labels")]
    labels: StringMap,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default, deserialize_with = "pod_node_name")]
    node_name: Option<String>,
}

/// Reads the labels of the instance's active pod on the host: during a migration there are two pods.
async fn launcher_pod(client: &Client, vmi: &Vmi, host: &HostName) -> Fact<HostLabels> {
    let path = PODS.within(&vmi.namespace);
    let selectors = Selectors {
        label: Some(format!("kubevirt.io/created-by={}", vmi.uid)),
        field: None,
    };
    // Any user can set the label: pods that do not belong to the instance are neither kept nor counted.
    let is_here = |pod: &LauncherPod| {
        let is_active = |uid: &String| vmi.active_pods.contains_key(uid);
        pod.spec.node_name.as_deref() == Some(host.as_str())
            && pod.metadata.uid.as_ref().is_some_and(is_active)
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
    let path = ObjectPath::configmap(name);
    match client.get::<ConfigMap>(&path).await {
        Ok(configmap) => match configmap.data.get(host.as_str()) {
            None => Fact::Absent,
            Some(text) => match super::configmap::labels(text) {
                Ok(labels) => Fact::Known(labels),
                Err(error) => {
                    let text = format!("entry `{host}` of ConfigMap {name}: {}", chain(&error));
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
        let about = (Source::ConfigMap, HostName::parse("hv-a").unwrap());
        let (hour, second) = (Duration::from_secs(3600), Duration::from_secs(1));
        let refused = Fact::failed(UnavailableKind::Forbidden, "configmaps is forbidden");
        let mut kept = KeptLabels::default();
        kept.keep(about.clone(), &refused, 0, hour, second);
        assert_eq!(kept.get(&about, 0, 2 * hour - second), Some(&refused));
        assert_eq!(kept.get(&about, 0, 2 * hour), None);
        assert_eq!(kept.get(&about, 1, hour), None);
        // Whatever else went wrong may be over at once, and other sources are read with the VM.
        for answer in [
            Fact::failed(UnavailableKind::Unreachable, "no route"),
            Fact::Known(HostLabels::new()),
        ] {
            let mut kept = KeptLabels::default();
            kept.keep(about.clone(), &answer, 0, hour, hour);
            assert_eq!(kept.get(&about, 0, hour), None);
        }
        kept.forget_labels();
        assert_eq!(kept.get(&about, 0, hour), Some(&refused));
        kept.forget_refusals();
        assert_eq!(kept.get(&about, 0, hour), None);
    }

    #[test]
    fn the_labels_of_the_last_hosts_are_known_until_the_next_poll_or_another_credential() {
        let about = |number: usize| {
            let host = HostName::parse(&format!("hv-{number}")).unwrap();
            (Source::HostNode, host)
        };
        let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
        let labels = Fact::Known(HostLabels::new());
        let mut kept = KeptLabels::default();
        for (number, uptime) in (0..=KEPT_MAX).zip(1..) {
            kept.keep(about(number), &labels, 0, second * uptime, minute);
        }
        assert_eq!(kept.get(&about(0), 0, second), None);
        assert_eq!(kept.get(&about(1), 0, minute), Some(&labels));
        assert_eq!(kept.get(&about(1), 1, minute), None);
        assert_eq!(kept.get(&about(1), 0, minute + 2 * second), None);
        let (_, host) = about(2);
        kept.forget_host(&host);
        assert_eq!(kept.get(&about(2), 0, minute), None);
        kept.forget_refusals();
        assert_eq!(kept.get(&about(3), 0, minute), Some(&labels));
        kept.forget_labels();
        assert_eq!(kept.get(&about(3), 0, minute), None);
    }
}
