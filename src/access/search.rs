// SPDX-License-Identifier: Apache-2.0
//! The paths that are searched for the kubeconfigs.
//!
//! A path from our own configuration is the only one that is searched: using another identity instead would be worse than none.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::REFERENCE;
use crate::facts::distribution::{Distribution, DistributionKind};

/// The path of the kubeconfig from Rancher's node driver and Harvester's CSI driver, below the distribution's data directory.
const CLOUD_PROVIDER_CONFIG: &str = "etc/config-files/cloud-provider-config";

/// The path of the kubeconfig in Harvester's documentation.
pub(crate) const CLOUD_CONFIG: &str = "/etc/kubernetes/cloud-config";

/// The kubelet's kubeconfig of RKE2 and K3s, below the data directory.
const AGENT_KUBECONFIG: &str = "agent/kubelet.kubeconfig";

/// The kubelet's kubeconfig of kubeadm.
pub(crate) const KUBEADM_KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";

/// The kubelet's kubeconfig of RKE1.
pub(crate) const RKE1_KUBECONFIG: &str = "/etc/kubernetes/ssl/kubecfg-kube-node.yaml";

/// A path to search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The file.
    pub path: PathBuf,
    /// The setting that names this path, if it is not a standard path.
    pub named_by: Option<String>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.path.display())?;
        match &self.named_by {
            Some(setting) => write!(formatter, " ({setting})"),
            None => Ok(()),
        }
    }
}

/// Returns the only path that is searched if a setting names one.
fn only(configured: &Path, setting: &str) -> Vec<Candidate> {
    vec![Candidate {
        path: configured.to_owned(),
        named_by: Some(setting.to_owned()),
    }]
}

/// Returns the possible paths of the kubeconfig for Harvester's API.
pub fn harvester_candidates(
    configured: Option<&Path>,
    distributions: &[Distribution],
) -> Vec<Candidate> {
    if let Some(path) = configured {
        return only(path, "`[harvester] kubeconfig`");
    }
    let mut list = Vec::new();
    for distribution in distributions {
        if let Some(config) = &distribution.cloud_provider_config
            && may_be_harvester(distribution)
            && config.value.is_absolute()
        {
            let setting = format!("`cloud-provider-config` in {}", config.origin.display());
            add(&mut list, &config.value, Some(setting));
        }
    }
    let rancher = [DistributionKind::Rke2, DistributionKind::K3s];
    let installed = distributions
        .iter()
        .filter(|one| rancher.contains(&one.kind));
    let directories = installed.map(|one| &*one.data_dir);
    for directory in directories.chain(rancher.map(DistributionKind::default_data_dir)) {
        add(&mut list, directory.join(CLOUD_PROVIDER_CONFIG), None);
    }
    add(&mut list, CLOUD_CONFIG, None);
    list
}

/// Reports whether the file of the cloud provider may be a kubeconfig: with another provider, it has the format of that one.
fn may_be_harvester(distribution: &Distribution) -> bool {
    let provider = distribution.cloud_provider_name.as_deref();
    matches!(provider, None | Some("harvester" | "external"))
}

/// Returns the path for a Harvester kubeconfig if there is none and no setting names one. The cloud provider and the CSI driver of RKE2
/// mount that of Rancher, for K3s the documentation of Harvester names the other one.
pub fn new_harvester_kubeconfig(distributions: &[Distribution]) -> PathBuf {
    let mut distributions = distributions.iter();
    let rke2 = distributions.find(|one| one.kind == DistributionKind::Rke2);
    match rke2.filter(|rke2| may_be_harvester(rke2)) {
        Some(rke2) => rke2.data_dir.join(CLOUD_PROVIDER_CONFIG),
        None => CLOUD_CONFIG.into(),
    }
}

/// Returns why `cloud-provider-config` names no file, if it has a reference that only Rancher resolves.
pub fn unresolved(distributions: &[Distribution]) -> Option<String> {
    let configs = distributions.iter();
    let mut configs = configs.filter_map(|one| one.cloud_provider_config.as_ref());
    let config = configs.find(|config| config.value.to_string_lossy().starts_with(REFERENCE))?;
    Some(format!(
        "`cloud-provider-config` in {} is a reference (`{REFERENCE}`) that only Rancher resolves, in the configuration of its cluster; it is no path",
        config.origin.display()
    ))
}

/// Returns the possible paths of the kubelet's kubeconfig; distributions that are installed come first.
pub fn kubelet_candidates(
    configured: Option<&Path>,
    distributions: &[Distribution],
) -> Vec<Candidate> {
    if let Some(path) = configured {
        return only(path, "`[guest_cluster] kubeconfig`");
    }
    let installed = distributions.iter().map(|one| (one.kind, &*one.data_dir));
    // Files in the default directory of a distribution that was moved away are of an old identity.
    let others = [
        DistributionKind::Rke2,
        DistributionKind::K3s,
        DistributionKind::Kubeadm,
        DistributionKind::Rke1,
    ]
    .into_iter()
    .filter(|kind| !distributions.iter().any(|one| one.kind == *kind))
    .map(|kind| (kind, kind.default_data_dir()));
    let mut list = Vec::new();
    for (kind, data_dir) in installed.chain(others) {
        if let Some(path) = kubelet_kubeconfig(kind, data_dir) {
            add(&mut list, path, None);
        }
    }
    list
}

/// Adds a path, unless it is already in the list.
fn add(list: &mut Vec<Candidate>, path: impl Into<PathBuf>, named_by: Option<String>) {
    let path = path.into();
    if !list.iter().any(|candidate| candidate.path == path) {
        list.push(Candidate { path, named_by });
    }
}

/// Returns the path of the kubelet's kubeconfig in a distribution.
fn kubelet_kubeconfig(kind: DistributionKind, data_dir: &Path) -> Option<PathBuf> {
    match kind {
        DistributionKind::Rke2 | DistributionKind::K3s => Some(data_dir.join(AGENT_KUBECONFIG)),
        DistributionKind::Kubeadm => Some(KUBEADM_KUBECONFIG.into()),
        DistributionKind::Rke1 => Some(RKE1_KUBECONFIG.into()),
        DistributionKind::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::distribution::Configured;

    fn paths(candidates: &[Candidate]) -> Vec<&str> {
        candidates
            .iter()
            .map(|candidate| candidate.path.to_str().unwrap())
            .collect()
    }

    fn moved() -> Distribution {
        Distribution {
            data_dir: "/data/rke2".into(),
            cloud_provider_name: Some("harvester".to_owned()),
            cloud_provider_config: Some(Configured {
                value: "/data/cloud".into(),
                origin: "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml".into(),
            }),
            ..Distribution::new(DistributionKind::Rke2)
        }
    }

    #[test]
    fn harvester_is_looked_for_in_this_order() {
        let stock = [
            "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config",
            "/var/lib/rancher/k3s/etc/config-files/cloud-provider-config",
            "/etc/kubernetes/cloud-config",
        ];
        assert_eq!(paths(&harvester_candidates(None, &[])), stock);
        let found = harvester_candidates(None, &[moved()]);
        let mut expected = vec![
            "/data/cloud",
            "/data/rke2/etc/config-files/cloud-provider-config",
        ];
        expected.extend(stock);
        assert_eq!(paths(&found), expected);
        assert_eq!(
            found[0].to_string(),
            "/data/cloud (`cloud-provider-config` in /etc/rancher/rke2/config.yaml.d/50-rancher.yaml)"
        );
    }

    #[test]
    fn a_reference_that_only_rancher_resolves_is_named_and_is_no_path() {
        let mut reference = moved();
        assert_eq!(unresolved(std::slice::from_ref(&reference)), None);
        if let Some(config) = &mut reference.cloud_provider_config {
            config.value = "secret://fleet-default:harvesterconfigx".into();
        }
        let said = unresolved(std::slice::from_ref(&reference)).unwrap();
        assert!(
            said.contains("50-rancher.yaml is a reference (`secret://`)"),
            "{said}"
        );
        let found = harvester_candidates(None, &[reference]);
        assert_eq!(
            found[0].path,
            Path::new("/data/rke2/etc/config-files/cloud-provider-config")
        );
    }

    #[test]
    fn the_file_of_another_cloud_is_not_harvesters() {
        let other = Distribution {
            cloud_provider_name: Some("vsphere".to_owned()),
            ..moved()
        };
        let others = [other];
        assert!(!paths(&harvester_candidates(None, &others)).contains(&"/data/cloud"));
        assert_eq!(new_harvester_kubeconfig(&others), Path::new(CLOUD_CONFIG));
    }

    #[test]
    fn a_new_kubeconfig_is_written_where_the_charts_of_the_distribution_mount_it() {
        let k3s = Distribution::new(DistributionKind::K3s);
        for (distributions, path) in [
            (vec![], CLOUD_CONFIG),
            (vec![k3s.clone()], CLOUD_CONFIG),
            (
                vec![k3s, moved()],
                "/data/rke2/etc/config-files/cloud-provider-config",
            ),
        ] {
            assert_eq!(
                new_harvester_kubeconfig(&distributions),
                Path::new(path),
                "{distributions:?}"
            );
        }
    }

    #[test]
    fn the_kubelet_is_looked_for_in_this_order() {
        assert_eq!(
            paths(&kubelet_candidates(None, &[])),
            [
                "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
                "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
                "/etc/kubernetes/kubelet.conf",
                "/etc/kubernetes/ssl/kubecfg-kube-node.yaml",
            ]
        );
        let both = [moved(), Distribution::new(DistributionKind::Kubeadm)];
        assert_eq!(
            paths(&kubelet_candidates(None, &both)),
            [
                "/data/rke2/agent/kubelet.kubeconfig",
                "/etc/kubernetes/kubelet.conf",
                "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
                "/etc/kubernetes/ssl/kubecfg-kube-node.yaml",
            ]
        );
    }

    #[test]
    fn a_configured_path_is_the_only_one() {
        let configured = Some(Path::new("/etc/mine"));
        assert_eq!(
            paths(&harvester_candidates(configured, &[moved()])),
            ["/etc/mine"]
        );
        assert_eq!(
            paths(&kubelet_candidates(configured, &[moved()])),
            ["/etc/mine"]
        );
    }
}
