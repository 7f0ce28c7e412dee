// SPDX-License-Identifier: Apache-2.0
//! Determines the region and zone of the host of this VM, from the first source that is allowed and up to date.

use serde::{Deserialize, Serialize};

use super::identity::{Identity, OwnVm};
use crate::config::{Settings, ZoneFallback};
use crate::facts::names::HostName;
use crate::facts::observation::Observation;
use crate::facts::placement::{HostLabels, PlacementReads, Source, reports_topology};
use crate::facts::pod_info::PodInfo;
use crate::facts::topology::{IllegalValue, LabelValue, Topology};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable};
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

impl Placement {
    /// Returns the region or zone of the host, under its newer key.
    pub fn value(&self, key: &str) -> Option<&str> {
        let known = self.known.as_ref()?;
        known.topology.value(key).map(LabelValue::as_str)
    }
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
    let host = &located.host;
    let (mut known, mut empty) = (None, None);
    let mut tried: Vec<Tried> = Vec::new();
    for &source in Source::ALL {
        let answer = if !settings.topology.sources.contains(&source) {
            let text = "disabled by `topology.sources`".to_owned();
            Err((PlacementOutcome::Disabled, text))
        } else if known.is_some() {
            let text = "an earlier source has a result".to_owned();
            Err((PlacementOutcome::NotNeeded, text))
        } else {
            topology(settings, located, reads, source)
        };
        let has_all = matches!(source, Source::HostNode | Source::ConfigMap);
        // A source before it that cannot be read may have what this one lacks.
        let absence = match has_all && !tried.iter().any(is_unread) {
            true => Absence::Proven,
            false => Absence::Silent,
        };
        let found = |topology| Known {
            topology,
            source,
            absence,
        };
        let (outcome, detail) = match answer {
            Err(outcome) => outcome,
            Ok(topology) if topology.is_empty() => {
                if absence == Absence::Proven {
                    empty.get_or_insert(found(topology));
                }
                let detail = format!("has neither region nor zone of {host}");
                (PlacementOutcome::Empty, detail)
            }
            Ok(topology) => {
                let copy = match source.is_copy() {
                    true => "; a copy, which does not follow an edit of the host",
                    false => "",
                };
                let detail = format!("region/zone {topology} of {host}{copy}");
                known = Some(found(topology));
                (PlacementOutcome::Used, detail)
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
    let current = Some(reads).filter(|reads| reads.host == *host);
    let answers = current.into_iter().flat_map(|reads| reads.answers.values());
    let mut failures = answers.filter_map(Fact::why);
    let trouble = failures.find(|why| why.kind.is_passing()).cloned();
    Placement {
        host: host.clone(),
        host_source: located.host_source.describe(),
        known: known
            .or(empty)
            .map(|known| with_zone(settings, known, located, trouble.is_some())),
        host_labels: current.and_then(|reads| all_labels(settings, reads)),
        trouble,
        tried,
    }
}

/// Returns the region and zone of the host according to one source.
fn topology(
    settings: &Settings,
    located: &Located<'_>,
    reads: &PlacementReads,
    source: Source,
) -> Result<Topology, Failed> {
    let host = &located.host;
    let answer = match source {
        Source::HostsTable => return stated(settings, host),
        Source::PodInfo => return parse(of_pod(located)?, host),
        Source::VmiAnnotations => {
            let vmi = located.host_source.vmi().ok_or_else(unasked)?;
            return parse(annotations(vmi, host)?, host);
        }
        Source::HostNode | Source::LauncherPod | Source::ConfigMap => reads.answers.get(&source),
    };
    if reads.host != *host {
        let text = format!("read for host {}", reads.host);
        return Err((PlacementOutcome::Stale, text));
    }
    parse(weigh(answer)?, host)
}

/// Returns all labels of the host, from the first source that has them.
fn all_labels(settings: &Settings, reads: &PlacementReads) -> Option<(HostLabels, Absence)> {
    let sources = [Source::HostNode, Source::ConfigMap].into_iter();
    let sources = sources.filter(|source| settings.topology.sources.contains(source));
    let (mut all, mut absence) = (None, Absence::Proven);
    for answer in sources.filter_map(|source| reads.answers.get(&source)) {
        match answer {
            // It may have labels that the other lacks.
            Fact::Failed(why) if why.kind.is_passing() => return None,
            Fact::Failed(_) => absence = Absence::Silent,
            Fact::Known(labels) if all.is_none() => all = Some((labels.clone(), absence)),
            Fact::Known(_) | Fact::Absent => {}
        }
    }
    all
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

/// Returns the topology of a host from our configuration.
fn stated(settings: &Settings, host: &HostName) -> Result<Topology, Failed> {
    let place = settings.hosts.get(host).ok_or_else(|| {
        let text = format!("the configuration has no [hosts.{host}]");
        (PlacementOutcome::Empty, text)
    })?;
    Ok(Topology {
        region: place.region.clone(),
        zone: place.zone.clone(),
    })
}

fn unasked() -> Failed {
    (
        PlacementOutcome::NotNeeded,
        "the VM was not read from the Harvester API".to_owned(),
    )
}

type Failed = (PlacementOutcome, String);

fn weigh(answer: Option<&Fact<HostLabels>>) -> Result<&HostLabels, Failed> {
    match answer {
        None => Err((PlacementOutcome::NotNeeded, "not read".to_owned())),
        Some(Fact::Known(labels)) => Ok(labels),
        Some(Fact::Absent) => Err((PlacementOutcome::Empty, "does not exist".to_owned())),
        Some(Fact::Failed(why)) => Err((PlacementOutcome::Failed, why.text.clone())),
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
