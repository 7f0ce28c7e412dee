// SPDX-License-Identifier: Apache-2.0
//! How the labels of the Node stand to the host, in one word; conditions, findings and reports say the same word.

use super::identity::{Identity, OwnVm};
use super::labels::{LabelPlan, LeftReason};
use super::placement::{Outcome, Placement};
use super::rival::StandDown;
use crate::facts::WhyKind;
use crate::facts::placement::Source;

/// The state of the labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sync {
    /// The labels are those of the host.
    Synced,
    /// A change is under way, or we wait a moment for Harvester.
    Pending,
    /// The host has no topology, and neither has the Node.
    HostWithoutTopology,
    /// They differ, by configuration.
    Held,
    /// The only source speaks of another host.
    Stale,
    /// The host lacks what the Node has.
    Partial,
    /// A value cannot be a label.
    Illegal,
    /// Somebody changes them back.
    Fighting {
        /// The other writer.
        rival: String,
    },
    /// The API refused our change.
    WriteFailed(String),
    /// No source tells them.
    NoSource,
    /// It is not known which VM we are, or where it runs.
    NoVm {
        /// CamelCase.
        reason: &'static str,
        /// For people.
        text: String,
    },
}

impl Sync {
    /// Whether another look at the same world would find the labels no better: they are right, or stay as they are for a
    /// reason that time does not remove.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Pending | Self::Stale | Self::NoSource | Self::NoVm { .. }
        )
    }
}

/// What decides the state.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// Who we are.
    pub identity: &'a Identity,
    /// Where we are.
    pub placement: Option<&'a Placement>,
    /// What is to be changed.
    pub labels: &'a LabelPlan,
    /// Whether we wait for Harvester's annotations.
    pub settling: bool,
    /// Who fights us.
    pub stand_down: Option<&'a StandDown>,
    /// The text of the last refusal of our change, if it was refused.
    pub refusal: Option<&'a str>,
}

/// The state.
pub fn state(inputs: &Inputs<'_>) -> Sync {
    let Some(placement) = inputs.placement else {
        return without_host(inputs.identity);
    };
    if inputs.settling {
        return Sync::Pending;
    }
    if let Some(stand) = inputs.stand_down {
        return Sync::Fighting {
            rival: stand.rival.clone(),
        };
    }
    if !inputs.labels.changes.is_empty() {
        return inputs
            .refusal
            .map_or(Sync::Pending, |text| Sync::WriteFailed(text.to_owned()));
    }
    let left = |wanted: &[LeftReason]| {
        inputs
            .labels
            .left
            .iter()
            .any(|left| wanted.contains(&left.reason))
    };
    let tried = |outcome, source: Option<Source>| {
        placement
            .tried
            .iter()
            .any(|t| t.outcome == outcome && source.is_none_or(|source| t.source == source))
    };
    match &placement.known {
        // The host tells its name, and nobody its place: what is missing is the API's word.
        None if inputs.identity.vmi().is_none() => without_host(inputs.identity),
        None if tried(Outcome::Illegal, None) => Sync::Illegal,
        None if tried(Outcome::Stale, Some(Source::VmiAnnotations)) => Sync::Stale,
        None => Sync::NoSource,
        Some(_) if left(&[LeftReason::Held, LeftReason::ReportOnly]) => Sync::Held,
        Some(_)
            if left(&[
                LeftReason::HostHasNone,
                LeftReason::WouldMix,
                LeftReason::HostNotRead,
            ]) =>
        {
            Sync::Partial
        }
        Some(known) if known.topology.is_empty() => Sync::HostWithoutTopology,
        Some(_) => Sync::Synced,
    }
}

fn without_host(identity: &Identity) -> Sync {
    let no_vm = |reason, text: &str| Sync::NoVm {
        reason,
        text: text.to_owned(),
    };
    match &identity.vm {
        OwnVm::Identified(_) => no_vm("NoHost", "the VM has no host: status.nodeName is empty"),
        OwnVm::Ambiguous(_) => no_vm(
            "IdentityAmbiguous",
            "several VMs fit this machine; no label is written",
        ),
        OwnVm::NotFound(_) => no_vm(
            "IdentityNotFound",
            "no VM in the namespace fits this machine; labels are kept",
        ),
        OwnVm::ProvenOffline(_) => no_vm(
            "HarvesterNotRead",
            "the VM's name is proven, its host cannot be read",
        ),
        OwnVm::Unknown(why) | OwnVm::Remembered(_, why) => {
            let (reason, text) = match why.kind {
                WhyKind::Unreachable => (
                    "HarvesterUnreachable",
                    "Harvester's API does not answer; labels are kept",
                ),
                WhyKind::Credential => (
                    "HarvesterUnauthorized",
                    "Harvester's API does not accept the credential; labels are kept",
                ),
                WhyKind::Forbidden => (
                    "HarvesterForbidden",
                    "the Harvester credential may not read the VM; labels are kept",
                ),
                WhyKind::Tls => (
                    "HarvesterTls",
                    "the certificate of Harvester's API is not accepted; labels are kept",
                ),
                WhyKind::NotAsked | WhyKind::Missing | WhyKind::OwnApi => (
                    "NoHarvesterCredential",
                    "there is no Harvester credential that can be used; labels are kept",
                ),
                WhyKind::Refused | WhyKind::WrongObject | WhyKind::Malformed => (
                    "HarvesterRefused",
                    "Harvester's API gave an answer that cannot be used; labels are kept",
                ),
            };
            no_vm(reason, text)
        }
    }
}
