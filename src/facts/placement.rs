// SPDX-License-Identifier: Apache-2.0
//! The sources of region and zone of a host, other than the VirtualMachineInstance.

use std::collections::BTreeMap;
use std::fmt;

use super::topology::{IllegalValue, LabelValue, REGION, Topology, ZONE};
use crate::sys::named::named;

/// The labels of a host according to a source, each a label value or not. Empty ones are missing, because Harvester does not write
/// empty values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostLabels(BTreeMap<String, Result<LabelValue, IllegalValue>>);

impl FromIterator<(String, String)> for HostLabels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        let parsed = labels.map(|(key, value)| {
            let parsed = LabelValue::parse(&value);
            let illegal = |source| IllegalValue {
                key: key.clone(),
                value,
                source,
            };
            (key.clone(), parsed.map_err(illegal))
        });
        Self(parsed.collect())
    }
}

impl HostLabels {
    /// Returns the value of a label.
    pub fn get(&self, key: &str) -> Option<&Result<LabelValue, IllegalValue>> {
        self.0.get(key)
    }

    /// Returns region and zone.
    pub fn topology(&self) -> Result<Topology, IllegalValue> {
        let value = |key| self.get(key).cloned().transpose();
        Ok(Topology {
            region: value(REGION)?,
            zone: value(ZONE)?,
        })
    }
}

named! {
    /// A source of a host's region and zone. The order is the precedence.
    Source {
        /// The labels of the host's Node in the Harvester cluster. It is exact, and the only source with all labels.
        HostNode = "host-node",
        /// The annotations that Harvester writes on VirtualMachineInstances created by Rancher's node driver.
        VmiAnnotations = "vmi-annotations",
        /// The labels that Kubernetes 1.35 and later copies from the host to the virt-launcher pod when it is bound.
        LauncherPod = "launcher-pod",
        /// A ConfigMap that an administrator maintains in `harvester-public`.
        ConfigMap = "configmap",
        /// The `[hosts]` table of our own configuration. Together with the name of the host from KubeVirt's downward metrics, it needs no
        /// credential for Harvester.
        HostsTable = "hosts-table",
        /// The labels of the virt-launcher pod, from files that the host shares with this VM. It needs neither a network nor a
        /// credential.
        PodInfo = "pod-info",
    }
}

impl Source {
    /// Reports whether it is a copy of the host's labels, which Harvester or Kubernetes makes for the VM and does not update.
    pub fn is_copy(self) -> bool {
        matches!(
            self,
            Self::VmiAnnotations | Self::LauncherPod | Self::PodInfo
        )
    }

    /// Reports whether it has all labels of the host.
    pub fn has_all(self) -> bool {
        matches!(self, Self::HostNode | Self::ConfigMap)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HostLabels {
        /// Adds a label.
        pub(crate) fn insert(&mut self, key: String, value: String) {
            self.0.extend(Self::from_iter([(key, value)]).0);
        }
    }

    fn topology<const N: usize>(labels: [(&str, &str); N]) -> Result<Topology, IllegalValue> {
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        HostLabels::from_iter(labels).topology()
    }

    #[test]
    fn an_illegal_value_is_named_with_its_key() {
        let error = topology([(ZONE, "rack a")]).unwrap_err();
        assert_eq!((error.key.as_str(), error.value.as_str()), (ZONE, "rack a"));
    }

    #[test]
    fn an_empty_value_is_none() {
        let topology = topology([(ZONE, ""), (REGION, "eu-1")]).unwrap();
        assert_eq!(
            (topology.zone, topology.region.unwrap().as_str()),
            (None, "eu-1")
        );
    }
}
