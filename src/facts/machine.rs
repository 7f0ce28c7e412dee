// SPDX-License-Identifier: Apache-2.0
//! This machine, as its kernel, its files and cloud-init describe it. No credential is needed for any of it.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use uuid::Uuid;

use super::Fact;
use super::nic::Nic;

/// What `sys_vendor` or `product_family` says under KubeVirt (`pkg/virt-config`, default SMBIOS).
const KUBEVIRT: &str = "KubeVirt";

/// The local facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// What the kernel answers to `uname -n`.
    pub kernel_hostname: Fact<String>,
    /// `/etc/hostname`.
    pub static_hostname: Fact<String>,
    /// The name that the platform gave: cloud-init's `v1.local_hostname`, which user-data cannot change.
    pub platform_hostname: Fact<String>,
    /// DMI `product_uuid`, which KubeVirt sets to the VMI's `spec.domain.firmware.uuid`.
    pub product_uuid: Fact<Uuid>,
    /// DMI `product_serial`, which KubeVirt sets to `spec.domain.firmware.serial` where there is one.
    pub product_serial: Fact<String>,
    /// The NICs with a device behind them.
    pub nics: Fact<Vec<Nic>>,
    /// Permanent addresses of physical NICs; never those of CNI devices.
    pub macs: Fact<BTreeSet<Mac>>,
    /// DMI `sys_vendor` and `product_family`.
    pub vendor: Fact<Vendor>,
    /// `/etc/machine-id`.
    pub machine_id: Fact<String>,
}

impl Machine {
    /// A number that this machine keeps and others do not share, to spread a fleet over time. KubeVirt gives every VM a
    /// firmware UUID of its own; a machine ID may have been baked into an image.
    pub fn phase(&self) -> u64 {
        let uuid = self.product_uuid.known().map(Uuid::to_string);
        let text = uuid
            .as_ref()
            .or(self.machine_id.known())
            .or(self.kernel_hostname.known())
            .map(String::as_bytes)
            .unwrap_or_default();
        // FNV-1a: short, and the same in every release, unlike the standard library's hasher.
        text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// Who says to have made this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vendor {
    /// DMI `sys_vendor`.
    pub sys_vendor: String,
    /// DMI `product_family`.
    pub product_family: String,
}

impl Vendor {
    /// Whether the machine says that it runs under KubeVirt.
    pub fn is_kubevirt(&self) -> bool {
        self.sys_vendor == KUBEVIRT || self.product_family == KUBEVIRT
    }
}

/// An Ethernet address that can identify a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// Accepts six hexadecimal pairs. Addresses that identify nothing are refused: zero, broadcast, and
    /// `ee:ee:ee:ee:ee:ee`, which Calico gives to every one of its interfaces.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut pairs = text.trim().split(':');
        for byte in &mut bytes {
            let pair = pairs.next().filter(|pair| pair.len() == 2)?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        pairs.next().is_none().then(|| Self::new(bytes)).flatten()
    }

    /// The same from six bytes.
    pub fn new(bytes: [u8; 6]) -> Option<Self> {
        let identifies = ![[0; 6], [0xff; 6], [0xee; 6]].contains(&bytes);
        identifies.then_some(Self(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl Serialize for Mac {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_identify_nothing_are_refused() {
        for text in [
            "ee:ee:ee:ee:ee:ee",
            "00:00:00:00:00:00",
            "ff:ff:ff:ff:ff:ff",
            "",
            "1:2:3:4:5:6",
            "aa:bb:cc:dd:ee",
            "aa:bb:cc:dd:ee:ff:00",
            "+1:bb:cc:dd:ee:ff:",
        ] {
            assert_eq!(Mac::parse(text), None, "{text}");
        }
        assert_eq!(
            Mac::parse("6E:22:41:9C:0A:71\n").unwrap().to_string(),
            "6e:22:41:9c:0a:71"
        );
    }
}
