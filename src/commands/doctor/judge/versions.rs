// SPDX-License-Identifier: Apache-2.0
//! Checks whether the versions are compatible. Unknown versions are gaps, not compatible ones.

mod table;
#[cfg(test)]
mod tests;

use super::Case;
use crate::catalog::{Code, Finding};
use crate::commands::doctor::facts::pods::{Component, PodOrigin};
use crate::facts::distribution::DistributionKind;
use crate::facts::release::Release;
use table::{LINES, Only, Part, VersionRow};

/// The maximum number of minor versions by which a kubelet may be older than its API server, since Kubernetes 1.28 and before.
/// Source: <https://kubernetes.io/releases/version-skew-policy/>.
const SKEW: (u32, u32) = (3, 2);

/// The first release that allows a kubelet to be three minor versions older.
const WIDE_SKEW: (u32, u32) = (1, 28);

/// Returns a finding for each row of the table that matches.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    let lines = LINES.iter().filter_map(|line| judge(case, line));
    lines.chain(skew(case)).collect()
}

fn judge(case: &Case<'_>, line: &VersionRow) -> Option<Finding> {
    let (release, origin) = version(case, line.part)?;
    let rank = release.rank();
    let is_over = line.below.is_some_and(|below| below <= rank);
    let is_hit = line.from <= rank && !is_over && applies(case, line.only);
    is_hit.then(|| {
        let until = line
            .below
            .map_or_else(String::new, |below| format!(" fixed in {below},"));
        let text = format!(
            "{} {release}{}: {};{until} see {}",
            line.part.title(),
            origin.map(host_source).unwrap_or_default(),
            line.fault,
            line.source,
        );
        Finding::new(line.code, text)
    })
}

/// Returns the version of a component, and its source if it is worth a mention.
fn version<'a>(case: &Case<'a>, part: Part) -> Option<(&'a Release, Option<&'a PodOrigin>)> {
    let examination = case.examination;
    let of = |component: &'a Component| (&component.release, Some(&component.origin));
    match part {
        Part::Harvester => Some((examination.versions.harvester.known()?, None)),
        Part::CloudProvider => examination.pods.cloud_provider.known().map(of),
        Part::CsiDriver => examination.pods.csi_driver.known().map(of),
        Part::Rke2 => {
            let release = examination.node.kubelet.known()?;
            release.is_rke2().then_some((release, None))
        }
        Part::Rke1 => {
            let mut distributions = case.observation.distributions.iter();
            let is_here = distributions.any(|one| one.kind == DistributionKind::Rke1);
            Some((examination.node.kubelet.known().filter(|_| is_here)?, None))
        }
    }
}

fn host_source(origin: &PodOrigin) -> String {
    match origin {
        PodOrigin::Pod(pod) => format!(" (pod {pod})"),
        PodOrigin::BundledWith(rke2) => {
            format!(" (bundled with {rke2}, not detected on this node)")
        }
    }
}

fn applies(case: &Case<'_>, only: Only) -> bool {
    match only {
        Only::Always => true,
        Only::WithCloudProviderSince(least) => {
            version(case, Part::CloudProvider).is_some_and(|(release, _)| least <= release.rank())
        }
        Only::WithHarvesterBefore(below) => {
            version(case, Part::Harvester).is_some_and(|(release, _)| release.rank() < below)
        }
        Only::WhereNamesDiffer => case.names_differ(),
        Only::WhereOthersAre => case.may_have_neighbours(),
        Only::WithCalico => case.examination.pods.may_use_calico(),
        Only::WithHarvesterCloudProvider => case.asks_for_cloud_provider(),
    }
}

/// Returns a finding for a kubelet that its API server does not support.
fn skew(case: &Case<'_>) -> Option<Finding> {
    let kubelet = case.examination.node.kubelet.known()?;
    let server = case.examination.versions.guest_kubernetes.known()?;
    let (ours, theirs) = (minor(kubelet), minor(server));
    let (wide, narrow) = SKEW;
    let allowed = if server.rank().minor() < WIDE_SKEW {
        narrow
    } else {
        wide
    };
    let fault = if ours > theirs {
        "newer than the API server, which is not supported".to_owned()
    } else if theirs.saturating_sub(ours) > allowed {
        format!("more than {allowed} minor versions older than the API server")
    } else {
        return None;
    };
    let text = format!("kubelet {kubelet}, API server {server}: {fault}");
    Some(Finding::new(Code::KubeletVersionSkew, text))
}

/// Returns the minor version; all major versions of Kubernetes are 1.
fn minor(release: &Release) -> u32 {
    let (_, minor) = release.rank().minor();
    minor
}
