// SPDX-License-Identifier: Apache-2.0
//! The virt-launcher pod of this VM, as the files of a downward API volume describe it.
//!
//! KubeVirt passes the volume to the pod and shares its files with the VM through virtiofs. The kubelet writes labels as lines of
//! `key="value"` (`pkg/fieldpath/fieldpath.go`, `FormatMap`), and a name as text without a line end.

use std::collections::BTreeMap;

use super::names::{HostName, Namespace, VmName};
use super::placement::HostLabels;
use super::topology::{REGION, ZONE};
use crate::sys::escape::one_line;

/// The maximum number of labels.
const LABELS_MAX: usize = 512;

/// The maximum length of external text in a message, in characters.
const SHOWN_MAX: usize = 120;

/// The label with the host. virt-controller copies it from the VirtualMachineInstance, so that the pod of a migration has the
/// previous host at first (`pkg/virt-controller/watch/vmi/lifecycle.go`, `dynamicLabels`).
const HOST: &str = "kubevirt.io/nodeName";

/// The label with the UID of the VirtualMachineInstance (`pkg/virt-controller/services/template.go`, `podLabels`).
const CREATED_BY: &str = "kubevirt.io/created-by";

/// The label with the name of the VM, which Harvester writes. `vm.kubevirt.io/name` is the hostname, not the name.
const VM_NAME: &str = "harvesterhci.io/vmName";

/// The beginning of the name of each virt-launcher pod. The name of the VM and a random suffix follow.
const POD_PREFIX: &str = "virt-launcher-";

/// The length of the random suffix of a generated name, and the length at which Kubernetes cuts the rest
/// (`k8s.io/apiserver/pkg/storage/names/generate.go`).
const SUFFIX: usize = 5;
const GENERATED_MAX: usize = 63 - SUFFIX;

/// The virt-launcher pod that runs this VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInfo {
    /// The name of the pod. Each migration creates a new pod.
    pub pod: String,
    /// The namespace of the pod and of the VM.
    pub namespace: Namespace,
    /// The name of the VM, if the pod shows it.
    pub vm: Option<VmName>,
    /// The UID of the VirtualMachineInstance.
    pub instance_uid: Option<String>,
    /// The host according to the label. For up to two minutes after a migration, it is the previous one.
    pub host: Option<HostName>,
    /// Region and zone of the host. Kubernetes 1.35 and later sets them when the pod is bound, so they are never those of the
    /// previous host.
    pub topology: HostLabels,
}

impl PodInfo {
    /// Parses the three files.
    ///
    /// # Errors
    ///
    /// Returns one escaped line if the text of a file is not what the kubelet writes for a virt-launcher pod. Labels that are not used
    /// may have any value.
    pub fn parse(labels: &str, name: &str, namespace: &str) -> Result<Self, String> {
        let labels = parse_labels(labels)?;
        let label = |key| labels.get(key).copied().filter(|value| !value.is_empty());
        let pod = name.trim();
        let generated = HostName::parse(pod)
            .ok()
            .and_then(|_| pod.len().checked_sub(SUFFIX))
            .and_then(|length| pod.get(..length))
            .filter(|base| base.starts_with(POD_PREFIX))
            // The text is not shown: another file may be in its place.
            .ok_or("the file `name` has no name of a virt-launcher pod")?;
        let host = |host: &str| {
            let parsed = HostName::parse(host);
            parsed.map_err(|error| format!("{HOST} `{}`: {error}", shown(host)))
        };
        let namespace = Namespace::parse(namespace.trim());
        Ok(Self {
            pod: pod.to_owned(),
            namespace: namespace.map_err(|error| {
                format!("the file `namespace` has no name of a namespace: {error}")
            })?,
            vm: vm_name(generated, label(VM_NAME)),
            instance_uid: label(CREATED_BY).map(str::to_owned),
            host: label(HOST).map(host).transpose()?,
            topology: [REGION, ZONE]
                .into_iter()
                .filter_map(|key| Some((key.to_owned(), label(key)?.to_owned())))
                .collect(),
        })
    }

    /// Returns `namespace/name` of the VM, or of the pod if it does not show the VM.
    pub fn reference(&self) -> String {
        let name = self.vm.as_ref().map_or(self.pod.as_str(), VmName::as_str);
        format!("{}/{name}", self.namespace)
    }
}

/// Returns the name of the VM from the generated part of the pod's name. Where Kubernetes cut it, the label has the rest: any user
/// of the VM can set the label, so it counts only if the name of the pod agrees.
fn vm_name(generated: &str, label: Option<&str>) -> Option<VmName> {
    if generated.len() < GENERATED_MAX {
        let name = generated.strip_prefix(POD_PREFIX)?.strip_suffix('-')?;
        return VmName::parse(name).ok();
    }
    let name = label?;
    let whole = format!("{POD_PREFIX}{name}-");
    let is_same = whole.get(..GENERATED_MAX) == Some(generated);
    VmName::parse(name).ok().filter(|_| is_same)
}

fn parse_labels(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    let mut labels = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        // A label value has no character that the kubelet escapes.
        let not_a_label = || format!("line {} of the labels is not `key=\"value\"`", index + 1);
        let (key, quoted) = line.split_once('=').ok_or_else(not_a_label)?;
        let value = quoted
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .filter(|value| !key.is_empty() && !value.contains(['"', '\\']))
            .ok_or_else(not_a_label)?;
        if labels.len() == LABELS_MAX {
            return Err(format!("more than {LABELS_MAX} labels"));
        }
        if labels.insert(key, value).is_some() {
            return Err(format!("label `{}` exists twice", shown(key)));
        }
    }
    Ok(labels)
}

fn shown(text: &str) -> String {
    one_line(text, SHOWN_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: &str = "harvesterhci.io/vmName=\"pool1-abcde\"\nkubevirt.io=\"virt-launcher\"\n\
                          kubevirt.io/created-by=\"1f2e3d4c\"\nkubevirt.io/nodeName=\"hv-a\"\n\
                          topology.kubernetes.io/region=\"eu-1\"\ntopology.kubernetes.io/zone=\"rack-a\"\n\
                          vm.kubevirt.io/name=\"another-hostname\"\n";

    fn parse(labels: &str, name: &str) -> Result<PodInfo, String> {
        PodInfo::parse(labels, name, "default")
    }

    #[test]
    fn the_files_of_a_pod_give_vm_host_region_and_zone() {
        let info = parse(LABELS, "virt-launcher-pool1-abcde-x7k2p").unwrap();
        assert_eq!(info.reference(), "default/pool1-abcde");
        assert_eq!(info.host.unwrap().as_str(), "hv-a");
        assert_eq!(info.instance_uid.as_deref(), Some("1f2e3d4c"));
        let topology = info.topology.topology().unwrap();
        assert_eq!(topology.to_string(), "eu-1/rack-a");
    }

    #[test]
    fn the_name_of_the_pod_decides_and_a_label_only_completes_a_cut_one() {
        let named = |vm: &str, label: &str| {
            let base: String = format!("virt-launcher-{vm}-").chars().take(58).collect();
            let labels = format!("{VM_NAME}=\"{label}\"\n");
            let info = parse(&labels, &format!("{base}x7k2p")).unwrap();
            info.vm.map(|vm| vm.to_string())
        };
        assert_eq!(named("pool1", "victim").as_deref(), Some("pool1"));
        let long = "a".repeat(60);
        assert_eq!(named(&long, &long), Some(long.clone()));
        assert_eq!(named(&long, &format!("{long}b")), Some(format!("{long}b")));
        assert_eq!(named(&long, "victim"), None);
        assert_eq!(named(&long, ""), None);
    }

    #[test]
    fn a_pod_without_labels_has_neither_host_nor_topology() {
        let info = parse("", "virt-launcher-a-x7k2p").unwrap();
        assert_eq!((info.host, info.instance_uid), (None, None));
        assert_eq!(info.topology, HostLabels::default());
    }

    #[test]
    fn other_text_is_refused_with_its_place() {
        let pod = "virt-launcher-a-x7k2p";
        let many: String = (0..600).map(|n| format!("k{n}=\"v\"\n")).collect();
        for (labels, name, said) in [
            ("a=\"b\"\nno", pod, "line 2 of the labels"),
            ("a=b\n", pod, "line 1"),
            ("a=\"\\u001b[31m\"\n", pod, "line 1"),
            ("=\"b\"\n", pod, "line 1"),
            ("a=\"\"b\"\n", pod, "line 1"),
            ("a=\"1\"\na=\"2\"\n", pod, "`a` exists twice"),
            (many.as_str(), pod, "more than 512"),
            (
                "kubevirt.io/nodeName=\"A/b\"\n",
                pod,
                "kubevirt.io/nodeName `A/b`",
            ),
            ("", "nginx-x7k2p", "no name of a virt-launcher pod"),
            ("", "virt-launcher-\u{1b}[31m-x7k2p", "no name of"),
            ("", "", "no name of"),
        ] {
            let error = parse(labels, name).unwrap_err();
            assert!(error.contains(said), "{error}");
            assert!(!error.contains('\u{1b}'), "{error}");
        }
        let error = PodInfo::parse("", pod, "De/fault").unwrap_err();
        assert_eq!(
            error,
            "the file `namespace` has no name of a namespace: not a namespace: lower-case letters, digits and `-`, at most 63 characters"
        );
    }
}
