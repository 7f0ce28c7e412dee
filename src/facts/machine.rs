// SPDX-License-Identifier: Apache-2.0
//! Facts of this machine from its kernel, its files and cloud-init. No credential is needed to read them.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::fact::Fact;
use super::nic::{Mac, Nic};

/// The value of `sys_vendor` or `product_family` under KubeVirt (`pkg/virt-config`, default SMBIOS).
const KUBEVIRT: &str = "KubeVirt";

/// The local facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// The hostname of the kernel (`uname -n`).
    pub kernel_hostname: Fact<String>,
    /// `/etc/hostname`.
    pub static_hostname: Fact<String>,
    /// The name given by the platform: cloud-init's `v1.local_hostname`, which user-data cannot change, or Afterburn's.
    pub platform_hostname: Fact<String>,
    /// DMI `product_uuid`, which KubeVirt sets to the VMI's `spec.domain.firmware.uuid`.
    pub product_uuid: Fact<Uuid>,
    /// DMI `product_serial`, which KubeVirt sets to `spec.domain.firmware.serial` if there is one.
    pub product_serial: Fact<String>,
    /// The NICs that have a device.
    pub nics: Fact<Vec<Nic>>,
    /// DMI `sys_vendor` and `product_family`.
    pub vendor: Fact<Vendor>,
    /// `/etc/machine-id`.
    pub machine_id: Fact<String>,
}

impl Machine {
    /// Reports whether the kernel could not read a file, which may pass.
    pub fn is_unread(&self) -> bool {
        let reads = [
            self.kernel_hostname.why(),
            self.static_hostname.why(),
            self.platform_hostname.why(),
            self.product_uuid.why(),
            self.product_serial.why(),
            self.nics.why(),
            self.vendor.why(),
            self.machine_id.why(),
        ];
        reads.into_iter().flatten().any(|why| why.kind.is_passing())
    }

    /// Returns the permanent addresses of the NICs, as far as they are known.
    pub fn macs(&self) -> BTreeSet<Mac> {
        let nics = self.nics.known().into_iter().flatten();
        let mut macs = BTreeSet::new();
        macs.extend(nics.filter_map(|nic| nic.address));
        macs
    }

    /// Returns a number that is constant for this machine and differs from others, to spread a fleet over time. KubeVirt gives
    /// every VM its own firmware UUID; a machine ID may be part of an image.
    pub fn phase(&self) -> u64 {
        let uuid = self.product_uuid.known().map(Uuid::to_string);
        let text = uuid
            .as_ref()
            .or(self.machine_id.known())
            .or(self.kernel_hostname.known())
            .map(String::as_bytes)
            .unwrap_or_default();
        // FNV-1a is short and, unlike the hasher of the standard library, the same in every release.
        text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// The vendor of the machine according to DMI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vendor {
    /// DMI `sys_vendor`.
    pub sys_vendor: String,
    /// DMI `product_family`.
    pub product_family: String,
}

impl Vendor {
    /// Reports whether the machine runs under KubeVirt according to DMI.
    pub fn is_kubevirt(&self) -> bool {
        self.sys_vendor == KUBEVIRT || self.product_family == KUBEVIRT
    }
}
