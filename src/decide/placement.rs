// SPDX-License-Identifier: Apache-2.0
//! Determines the region and zone of the host of this VM, from the first source that is allowed and up to date.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::identity::{Identity, OwnVm};
use crate::config::{LabelKey, Settings, ZoneFallback};
use crate::facts::names::HostName;
use crate::facts::observation::Observation;
use crate::facts::placement::{HostLabels, Source};
use crate::facts::pod_info::PodInfo;
use crate::facts::topology::{IllegalValue, LabelValue, Topology};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable};
use crate::sys::named::named;
use PlacementOutcome::{Disabled, Empty, Failed, Invalid, NotNeeded, Stale, Used};

/// The host of this VM and its topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The host of this VM.
    pub host: HostName,
    /// The source of the name of the host, as human-readable text.
    pub host_source: &'static str,
    /// Its topology, where a source reported it.
    pub known: Option<Known>,
    /// The host's values of the extra labels, from a source that has all of its labels.
    pub extra: Option<ExtraLabels>,
    /// Why extra labels that are not in `extra` stay unknown: `Failed` if a source with all labels of the host refuses them, `Empty` if
    /// none knows the host.
    pub extra_unknown: Option<PlacementOutcome>,
    /// The error of a source that could not be read and may answer soon.
    pub trouble: Option<Unavailable>,
    /// The result of each source, in order.
    pub tried: Vec<Tried>,
}

impl Placement {
    /// Returns the region or zone of the host, under its newer key.
    pub fn value(&self, key: &str) -> Option<&LabelValue> {
        self.known.as_ref()?.topology.value(key)
    }
}

/// The host's values of the extra labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraLabels {
    /// The values, by their keys on our Node.
    pub values: BTreeMap<LabelKey, Result<LabelValue, IllegalValue>>,
    /// Whether the host provably has no others.
    pub is_complete: bool,
}

/// A topology and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The region and zone of the host.
    pub topology: Topology,
    /// The source of the topology.
    pub source: Source,
    /// Whether the host provably has no region or zone if it is missing.
    pub is_complete: bool,
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
    /// The source of the name of the host.
    pub host_source: HostSource<'a>,
    /// The virt-launcher pod of the VM, from its files.
    pub pod: Option<&'a PodInfo>,
}

/// The source of the name of the host.
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
}

/// Returns the host of this VM, if known. Harvester takes precedence. The host's own metrics, and then the label of the pod, which
/// is late after a migration, are used only while Harvester is not available, and never if it is ambiguous which VM this is.
pub fn locate<'a>(identity: &'a Identity, observation: &'a Observation) -> Option<Located<'a>> {
    let pod = observation.pod_info.known();
    let (host, host_source) = match (&identity.vm, observation.host_metrics.known()) {
        (OwnVm::Identified(vmi), _) => (vmi.host.clone()?, HostSource::Harvester(vmi)),
        (OwnVm::Ambiguous(_) | OwnVm::NotFound(_), _) => return None,
        (_, Some(metrics)) => (metrics.host.clone(), HostSource::DownwardMetrics),
        (_, None) => (pod?.host.clone()?, HostSource::PodInfo),
    };
    Some(Located {
        host,
        host_source,
        pod,
    })
}

/// The choice of the source of the topology. It names each source to ask, and goes on with the answer.
#[derive(Debug)]
pub struct Choice<'a> {
    settings: &'a Settings,
    located: &'a Located<'a>,
    /// From the first source that has region or zone, or else the first that proves that the host has neither.
    known: Option<Known>,
    extra: Option<ExtraLabels>,
    /// See [`Placement::extra_unknown`], also if another source has region and zone.
    extra_unknown: Option<PlacementOutcome>,
    /// Whether a source with all labels of the host could not be read and may answer soon.
    is_extra_unread: bool,
    trouble: Option<Unavailable>,
    tried: Vec<Tried>,
}

impl<'a> Choice<'a> {
    /// Creates the choice for the host of this VM.
    pub fn new(settings: &'a Settings, located: &'a Located<'a>) -> Self {
        Self {
            settings,
            located,
            known: None,
            extra: None,
            extra_unknown: None,
            is_extra_unread: false,
            trouble: None,
            tried: Vec::new(),
        }
    }

    /// Returns the next source to ask in the Harvester API, until it is answered or skipped. All others are decided without a request.
    pub fn wants(&mut self) -> Option<Source> {
        while let Some(source) = Source::ALL.get(self.tried.len()).copied() {
            match self.unasked(source) {
                Some(found) => self.weigh(source, found),
                None => return Some(source),
            }
        }
        None
    }

    /// Returns the result of a source that is not asked.
    fn unasked(&self, source: Source) -> Option<Found> {
        let (settings, host) = (self.settings, &self.located.host);
        if !settings.topology.sources.contains(&source) {
            let text = "disabled by `topology.sources`".to_owned();
            return Some(Err((Disabled, text)));
        }
        // A value that is not valid is a result, too.
        let is_reported = self.has(&[Used, Invalid]);
        // It may have all labels of the host.
        let is_for_extra = source == Source::ConfigMap
            && !settings.labels.extra.is_empty()
            && self.extra.is_none();
        Some(match (source, self.located.host_source) {
            _ if self.has(&[Used]) && !is_for_extra => not_needed(EARLIER),
            (Source::VmiAnnotations, HostSource::Harvester(vmi)) => {
                parse(annotations(vmi, host), host)
            }
            (Source::VmiAnnotations, _) => not_needed("the VM was not read from the Harvester API"),
            (Source::HostsTable, _) => stated(settings, host),
            (Source::PodInfo, _) => parse(of_pod(self.located), host),
            (_, HostSource::Harvester(_)) if !is_reported || is_for_extra => return None,
            _ => not_needed(NOT_READ),
        })
    }

    /// Goes on without the answer of a source.
    pub fn skip(&mut self, source: Source) {
        self.weigh(source, not_needed(NOT_READ));
    }

    /// Goes on with the answer of a source about the host.
    pub fn answer(&mut self, source: Source, answer: &Fact<HostLabels>) {
        let passing = answer.why().filter(|why| why.kind.is_passing());
        if let (Some(why), None) = (passing, &self.trouble) {
            self.trouble = Some(why.clone());
        }
        // Another source may have labels that this one lacks.
        self.is_extra_unread |= source.has_all() && passing.is_some();
        match answer {
            _ if !source.has_all() || self.extra.is_some() => {}
            Fact::Absent => self.extra_unknown = self.extra_unknown.or(Some(Empty)),
            Fact::Failed(_) => self.extra_unknown = Some(Failed),
            Fact::Known(labels) => {
                let extra = self.settings.labels.extra.iter();
                let values = extra.filter_map(|(key, host_key)| {
                    let value = labels.get(host_key.as_str())?;
                    Some((key.clone(), value.clone()))
                });
                self.extra = Some(ExtraLabels {
                    values: values.collect(),
                    is_complete: self.extra_unknown != Some(Failed),
                });
            }
        }
        let labels = match answer {
            _ if self.has(&[Used]) => not_needed(EARLIER),
            Fact::Known(labels) => Ok(labels),
            Fact::Absent => Err((Empty, "does not exist".to_owned())),
            Fact::Failed(why) => Err((Failed, why.text.clone())),
        };
        self.weigh(source, parse(labels, &self.located.host));
    }

    /// Reports whether a source so far has one of these outcomes.
    fn has(&self, outcomes: &[PlacementOutcome]) -> bool {
        let mut tried = self.tried.iter();
        tried.any(|tried| outcomes.contains(&tried.outcome))
    }

    /// Adds the result of a source.
    fn weigh(&mut self, source: Source, found: Found) {
        let host = &self.located.host;
        // A source before it that cannot be read may have what this one lacks.
        let is_complete = source.has_all() && !self.has(&[Failed, Invalid]);
        let known = |topology| Known {
            topology,
            source,
            is_complete,
        };
        let (outcome, detail) = match found {
            Err(outcome) => outcome,
            Ok(topology) if topology.is_empty() => {
                if is_complete {
                    self.known.get_or_insert(known(topology));
                }
                (Empty, format!("has neither region nor zone of {host}"))
            }
            Ok(topology) => {
                let copy = match source.is_copy() {
                    true => "; a copy, which does not follow an edit of the host",
                    false => "",
                };
                let detail = format!("region/zone {topology} of {host}{copy}");
                self.known = Some(known(topology));
                (Used, detail)
            }
        };
        self.tried.push(Tried {
            source,
            outcome,
            detail,
        });
    }

    /// Returns the result; sources that were not answered were not read.
    pub fn end(mut self) -> Placement {
        while let Some(source) = self.wants() {
            self.skip(source);
        }
        let Located {
            host, host_source, ..
        } = self.located;
        // A host has provably no topology only if all sources that might have one could be read.
        let is_unsure = self.has(&[Stale, Failed, Invalid]);
        let mut known = self.known;
        known.take_if(|known| known.topology.is_empty() && is_unsure);
        // A source that is silent about the zone must not replace the zone that another one has shown. A source that is refused for
        // good is none.
        if self.settings.topology.zone_fallback == ZoneFallback::Host
            && self.trouble.is_none()
            && let Some(Known {
                topology, source, ..
            }) = &mut known
            && source.has_all()
            && topology.zone.is_none()
        {
            topology.zone = LabelValue::parse(host.as_str()).ok();
        }
        Placement {
            host: host.clone(),
            host_source: host_source.describe(),
            known,
            extra: self.extra.filter(|_| !self.is_extra_unread),
            extra_unknown: self.extra_unknown.filter(|_| !self.is_extra_unread),
            trouble: self.trouble,
            tried: self.tried,
        }
    }
}

/// Returns the topology of a host from our configuration.
fn stated(settings: &Settings, host: &HostName) -> Found {
    settings.hosts.get(host).cloned().ok_or_else(|| {
        let text = format!("the configuration has no [hosts.{host}]");
        (Empty, text)
    })
}

/// The region and zone according to a source, or why it has none, with the text.
type Found<T = Topology> = Result<T, (PlacementOutcome, String)>;

const EARLIER: &str = "an earlier source has a result";
const NOT_READ: &str = "not read";

fn not_needed<T>(text: &str) -> Found<T> {
    Err((NotNeeded, text.to_owned()))
}

/// Returns the annotations only if Harvester wrote them for the current host of this VM.
fn annotations<'a>(vmi: &'a Vmi, host: &HostName) -> Found<&'a HostLabels> {
    if let Some(labels) = vmi.annotations_of_host() {
        return Ok(labels);
    }
    Err(match &vmi.annotated_host {
        Some(annotated) => (Stale, format!("they are for host {annotated}, the VM runs on {host}")),
        None if vmi.annotated_by_harvester => (Empty, "Harvester has not written them yet".to_owned()),
        None if vmi.annotations.topology() == Ok(Topology::default()) => (
            Empty,
            "Harvester writes them only on VMs with label harvesterhci.io/creator=docker-machine-driver-harvester"
                .to_owned(),
        ),
        None => (Stale, "without `kubernetes.io/hostname` it is unknown which host they belong to".to_owned()),
    })
}

/// Returns the labels of the pod from its files. Its region and zone are always those of the host, the label with the host is
/// late, so another source of the host must agree with it.
fn of_pod<'a>(located: &Located<'a>) -> Found<&'a HostLabels> {
    let Some(pod) = located.pod else {
        return Err((Empty, "the VM has no files about its pod".to_owned()));
    };
    match (located.host_source, &pod.host) {
        (HostSource::PodInfo, _) => Ok(&pod.topology),
        (_, Some(host)) if *host == located.host => Ok(&pod.topology),
        _ => Err((Empty, format!("pod {} does not show this host", pod.pod))),
    }
}

fn parse(labels: Found<&HostLabels>, host: &HostName) -> Found {
    labels?
        .topology()
        .map_err(|IllegalValue { key, value, source }| {
            (
                Invalid,
                format!("{key} of {host} is `{}`: {source}", value.escape_debug()),
            )
        })
}

#[cfg(test)]
mod tests;
