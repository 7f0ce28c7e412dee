// SPDX-License-Identifier: Apache-2.0
//! Determines the region and zone of the host of this VM, from the first source that is allowed and up to date.

use serde::{Deserialize, Serialize};

use super::identity::{Identity, OwnVm};
use crate::config::{Settings, ZoneFallback};
use crate::facts::names::HostName;
use crate::facts::observation::Observation;
use crate::facts::placement::{HostLabels, PlacementReads, Source, reports_topology};
use crate::facts::pod_info::PodInfo;
use crate::facts::topology::{IllegalValue, LabelValue, REGION, Topology, ZONE};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::sys::named::named;

/// The host of this VM and its topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The host of this VM.
    pub host: HostName,
    /// The source of the host name, as human-readable text.
    pub host_source: &'static str,
    /// Its topology, where a source reported it.
    pub known: Option<Known>,
    /// All labels of the host, from a source that has all of them, and the meaning of a missing one; used for extra labels.
    pub host_labels: Option<(HostLabels, Absence)>,
    /// The error of a source that could not be read and may answer soon.
    pub trouble: Option<Unavailable>,
    /// The result of each source, in order.
    pub tried: Vec<Tried>,
}

/// A topology and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The region and zone of the host.
    pub topology: Topology,
    /// The source of the topology.
    pub source: Source,
    /// The meaning of a missing region or zone.
    pub absence: Absence,
}

/// The meaning of a missing region or zone in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// The host has none.
    Proven,
    /// Unknown.
    Silent,
}

/// The result of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The source.
    #[serde(rename = "name")]
    pub source: Source,
    /// The outcome.
    pub outcome: PlacementOutcome,
    /// The outcome as human-readable text.
    pub detail: String,
}

named! {
    /// The outcome of a source.
    PlacementOutcome {
        /// The source is used.
        Used = "used",
        /// An earlier source is used, or the source was not read.
        NotNeeded = "not-needed",
        /// The source is disabled in our configuration.
        Disabled = "disabled",
        /// The source belongs to another host than the host of this VM.
        Stale = "stale",
        /// The source was read and has neither region nor zone.
        Empty = "empty",
        /// The source could not be read.
        Failed = "failed",
        /// The value of the source is not a valid label value.
        Invalid = "invalid",
    }
}

/// The host of this VM, and the source of its name.
#[derive(Debug, Clone)]
pub struct Located<'a> {
    /// The host.
    pub host: HostName,
    /// The source of the host name.
    pub host_source: HostSource<'a>,
    /// The virt-launcher pod of the VM, from its files.
    pub pod: Option<&'a PodInfo>,
}

/// The source of the host name.
#[derive(Debug, Clone, Copy)]
pub enum HostSource<'a> {
    /// Harvester's API: `status.nodeName` of our instance.
    Harvester(&'a Vmi),
    /// The host itself: `HostName` of KubeVirt's downward metrics.
    DownwardMetrics,
    /// A label of our virt-launcher pod.
    PodInfo,
}

impl HostSource<'_> {
    /// Returns the source as human-readable text.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Harvester(_) => "status.nodeName of the VM",
            Self::DownwardMetrics => "downward metrics on virtio-serial",
            Self::PodInfo => "virt-launcher pod through virtiofs",
        }
    }

    /// Reports whether the source is the label of our pod.
    pub fn is_pod(self) -> bool {
        matches!(self, Self::PodInfo)
    }

    fn vmi(&self) -> Option<&Vmi> {
        match self {
            Self::Harvester(vmi) => Some(vmi),
            Self::DownwardMetrics | Self::PodInfo => None,
        }
    }
}

/// Returns the host of this VM, if known. Harvester takes precedence. The host's own metrics, and then the label of the pod, which
/// is late after a migration, are used only while Harvester is not available, and never if it is ambiguous which VM this is.
pub fn locate<'a>(identity: &'a Identity, observation: &'a Observation) -> Option<Located<'a>> {
    let pod = observation.pod_info.known();
    let (host, host_source) = match (&identity.vm, observation.host_metrics.known()) {
        (OwnVm::Identified(vmi), _) => (vmi.host.clone()?, HostSource::Harvester(vmi)),
        (OwnVm::Ambiguous(_) | OwnVm::NotFound(_), _) => return None,
        (OwnVm::ProvenOffline(_) | OwnVm::Remembered(..) | OwnVm::Unknown(_), Some(metrics)) => {
            (metrics.host.clone(), HostSource::DownwardMetrics)
        }
        (OwnVm::ProvenOffline(_) | OwnVm::Remembered(..) | OwnVm::Unknown(_), None) => {
            (pod?.host.clone()?, HostSource::PodInfo)
        }
    };
    Some(Located {
        host,
        host_source,
        pod,
    })
}

/// Selects the source of the topology for the host of this VM.
pub fn place(settings: &Settings, located: &Located<'_>, reads: &PlacementReads) -> Placement {
    let allowed = settings.topology.sources.as_slice();
    let host = located.host.clone();
    let vmi = located.host_source.vmi();
    let stated = stated(settings, &host);
    // Reads for another host are out of date.
    let stale = reads.host != host;
    let mut known: Option<Known> = None;
    let mut empty: Option<Known> = None;
    let mut tried = Vec::new();
    for &source in Source::ALL {
        let absence = match source {
            // A source before it that cannot be read may have what this one lacks.
            Source::HostNode | Source::ConfigMap if !tried.iter().any(is_unread) => Absence::Proven,
            _ => Absence::Silent,
        };
        let (outcome, detail) = if !allowed.contains(&source) {
            (
                PlacementOutcome::Disabled,
                "disabled by `topology.sources`".to_owned(),
            )
        } else if known.is_some() {
            (
                PlacementOutcome::NotNeeded,
                "an earlier source has a result".to_owned(),
            )
        } else {
            let labels = match source {
                Source::HostsTable => stated.as_ref().ok_or_else(|| {
                    (
                        PlacementOutcome::Empty,
                        format!("the configuration has no [hosts.{host}]"),
                    )
                }),
                Source::PodInfo => of_pod(located),
                Source::VmiAnnotations => vmi
                    .ok_or_else(unasked)
                    .and_then(|vmi| annotations(vmi, &host)),
                Source::HostNode if !stale => weigh(&reads.host_node),
                Source::LauncherPod if !stale => weigh(&reads.launcher_pod),
                Source::ConfigMap if !stale => weigh(&reads.configmap),
                Source::HostNode | Source::LauncherPod | Source::ConfigMap => Err((
                    PlacementOutcome::Stale,
                    format!("read for host {}", reads.host),
                )),
            };
            match labels.and_then(|labels| parse(labels, &host)) {
                Ok(topology) if topology.is_empty() => {
                    if absence == Absence::Proven && empty.is_none() {
                        empty = Some(Known {
                            topology,
                            source,
                            absence,
                        });
                    }
                    (
                        PlacementOutcome::Empty,
                        format!("has neither region nor zone of {host}"),
                    )
                }
                Ok(topology) => {
                    let copy = match source.is_copy() {
                        true => "; a copy, which does not follow an edit of the host",
                        false => "",
                    };
                    let detail = format!("region/zone {topology} of {host}{copy}");
                    known = Some(Known {
                        topology,
                        source,
                        absence,
                    });
                    (PlacementOutcome::Used, detail)
                }
                Err(outcome) => outcome,
            }
        };
        tried.push(Tried {
            source,
            outcome,
            detail,
        });
    }
    // A host has provably no topology only if all sources that might have one could be read.
    let silent = |tried: &Tried| {
        matches!(
            tried.outcome,
            PlacementOutcome::Empty | PlacementOutcome::Disabled | PlacementOutcome::NotNeeded
        )
    };
    let empty = empty.filter(|_| tried.iter().all(silent));
    let all_labels = [
        (Source::HostNode, &reads.host_node),
        (Source::ConfigMap, &reads.configmap),
    ];
    let asked = all_labels
        .into_iter()
        .filter(|(source, _)| !stale && allowed.contains(source))
        .map(|(_, seen)| seen);
    let passing = |seen: &&Fact<HostLabels>| seen.why().is_some_and(|why| why.kind.is_passing());
    let host_labels = if asked.clone().any(|seen| passing(&seen)) {
        // A source that cannot be read at present may have labels that the other lacks.
        None
    } else {
        let mut absence = Absence::Proven;
        asked.clone().find_map(|seen| {
            let unread = seen
                .why()
                .filter(|why| why.kind != UnavailableKind::NotAsked);
            if unread.is_some() {
                absence = Absence::Silent;
            }
            Some((seen.known()?.clone(), absence))
        })
    };
    let reads = [&reads.host_node, &reads.launcher_pod, &reads.configmap];
    let trouble = reads
        .into_iter()
        .filter(|_| !stale)
        .filter(passing)
        .find_map(Fact::why)
        .cloned();
    Placement {
        host,
        host_source: located.host_source.describe(),
        known: known
            .or(empty)
            .map(|known| with_zone(settings, known, located, trouble.is_some())),
        host_labels,
        trouble,
        tried,
    }
}

/// Completes the topology of a host without a zone, if the configuration allows it.
fn with_zone(
    settings: &Settings,
    mut known: Known,
    located: &Located<'_>,
    is_troubled: bool,
) -> Known {
    // A source that is silent about the zone must not replace the zone that another one has shown. A source that is refused for
    // good is none.
    let is_complete = matches!(known.source, Source::HostNode | Source::ConfigMap) && !is_troubled;
    if is_complete && settings.topology.zone_fallback == ZoneFallback::Host {
        let host = || LabelValue::parse(located.host.as_str()).ok();
        known.topology.zone = known.topology.zone.or_else(host);
    }
    known
}

/// Reports whether a source may have a topology that was not seen.
fn is_unread(tried: &Tried) -> bool {
    matches!(
        tried.outcome,
        PlacementOutcome::Failed | PlacementOutcome::Invalid
    )
}

/// Returns the topology of a host from our configuration, as labels.
fn stated(settings: &Settings, host: &HostName) -> Option<HostLabels> {
    let place = settings.hosts.get(host)?;
    let parts = [(REGION, &place.region), (ZONE, &place.zone)];
    let mut labels = HostLabels::new();
    for (key, value) in parts {
        labels.extend(
            value
                .as_ref()
                .map(|value| (key.to_owned(), value.to_string())),
        );
    }
    Some(labels)
}

fn unasked() -> Failed {
    (
        PlacementOutcome::NotNeeded,
        "the VM was not read from the Harvester API".to_owned(),
    )
}

type Failed = (PlacementOutcome, String);

fn weigh(seen: &Fact<HostLabels>) -> Result<&HostLabels, Failed> {
    match seen {
        Fact::Known(labels) => Ok(labels),
        Fact::Absent => Err((PlacementOutcome::Empty, "does not exist".to_owned())),
        Fact::Failed(Unavailable {
            kind: UnavailableKind::NotAsked,
            text,
            ..
        }) => Err((PlacementOutcome::NotNeeded, text.clone())),
        Fact::Failed(why) => Err((PlacementOutcome::Failed, why.text.clone())),
    }
}

/// Returns the annotations only if Harvester wrote them for the current host of this VM.
fn annotations<'a>(vmi: &'a Vmi, host: &HostName) -> Result<&'a HostLabels, Failed> {
    match vmi.annotated_host() {
        Some(annotated) if annotated == host.as_str() => Ok(&vmi.annotations),
        Some(annotated) => Err((PlacementOutcome::Stale, format!("they are for host {annotated}, the VM runs on {host}"))),
        None if vmi.annotated_by_harvester => Err((PlacementOutcome::Empty, "Harvester has not written them yet".to_owned())),
        None if reports_topology(&vmi.annotations) => {
            Err((PlacementOutcome::Stale, "without `kubernetes.io/hostname` it is unknown which host they belong to".to_owned()))
        }
        None => Err((
            PlacementOutcome::Empty,
            "Harvester writes them only on VMs with label harvesterhci.io/creator=docker-machine-driver-harvester"
                .to_owned(),
        )),
    }
}

/// Returns the labels of the pod from its files. Its region and zone are always those of the host, the label with the host is
/// late, so another source of the host must agree with it.
fn of_pod<'a>(located: &Located<'a>) -> Result<&'a HostLabels, Failed> {
    let Some(pod) = located.pod else {
        return Err((
            PlacementOutcome::Empty,
            "the VM has no files about its pod".to_owned(),
        ));
    };
    match (located.host_source, &pod.host) {
        (HostSource::PodInfo, _) => Ok(&pod.topology),
        (_, Some(host)) if *host == located.host => Ok(&pod.topology),
        _ => Err((
            PlacementOutcome::Empty,
            format!("pod {} does not show this host", pod.pod),
        )),
    }
}

fn parse(labels: &HostLabels, host: &HostName) -> Result<Topology, Failed> {
    Topology::parse(labels).map_err(|IllegalValue { key, value, source }| {
        (
            PlacementOutcome::Invalid,
            format!("{key} of {host} is `{}`: {source}", value.escape_debug()),
        )
    })
}

#[cfg(test)]
mod tests;
