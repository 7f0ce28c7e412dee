// SPDX-License-Identifier: Apache-2.0
//! The files of a virt-launcher pod, as virtiofs shows them in the VM: a downward API volume in the form in which the kubelet
//! writes it.

use std::fmt::Write;

use crate::guest::GuestTree;

/// The mount point.
pub const POD_INFO: &str = "/run/podinfo";

/// What the files say.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'a> {
    /// The VM.
    pub vm: &'a str,
    /// The random end of the pod's name, of five characters. Each migration makes a new one.
    pub suffix: &'a str,
    /// The host in `kubevirt.io/nodeName`.
    pub host: &'a str,
    /// The region and zone, which Kubernetes before 1.35 does not set on a pod.
    pub place: Option<(&'a str, &'a str)>,
}

impl Pod<'_> {
    /// Writes the files: a new directory, and one rename that makes all files those of it.
    pub fn share(&self, guest: &GuestTree) {
        let mut labels = format!(
            "harvesterhci.io/vmName=\"{}\"\nkubevirt.io=\"virt-launcher\"\nkubevirt.io/nodeName=\"{}\"\n",
            self.vm, self.host
        );
        if let Some((region, zone)) = self.place {
            let _ = writeln!(labels, "topology.kubernetes.io/region=\"{region}\"");
            let _ = writeln!(labels, "topology.kubernetes.io/zone=\"{zone}\"");
        }
        share_labels(guest, self.vm, self.suffix, &labels);
    }
}

/// Writes the files with this text as labels.
pub fn share_labels(guest: &GuestTree, vm: &str, suffix: &str, labels: &str) {
    let version = format!("..{}", uuid::Uuid::new_v4());
    let name = format!("virt-launcher-{vm}-{suffix}");
    for (file, text) in [
        ("labels", labels),
        ("name", &name),
        ("namespace", "default"),
    ] {
        guest.write(&format!("{POD_INFO}/{version}/{file}"), text);
        guest.flip_link(&format!("{POD_INFO}/{file}"), &format!("..data/{file}"));
    }
    guest.flip_link(&format!("{POD_INFO}/..data"), &version);
}
