// SPDX-License-Identifier: Apache-2.0
//! Network interfaces that have a device, their addresses, and whether they announce a live migration.

use std::fmt;

/// The features that driver and host must negotiate so that a NIC announces itself (`drivers/net/virtio_net.c`,
/// `include/uapi/linux/virtio_net.h`): feature bits, and their names without `VIRTIO_NET_F_`.
const ANNOUNCE_NEEDS: [(usize, &str); 3] =
    [(21, "GUEST_ANNOUNCE"), (17, "CTRL_VQ"), (16, "STATUS")];

/// A NIC that has a device; never one that CNI created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// The name. Root can set any name, so escape it before it is printed.
    pub name: String,
    /// The permanent hardware address.
    pub address: Option<Mac>,
    /// The kernel driver, such as `virtio_net`.
    pub driver: Option<String>,
    /// Its announcement after a live migration.
    pub announce: Announce,
}

/// The announcement of a NIC after a live migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announce {
    /// It announces itself.
    Negotiated,
    /// It does not, because these features are missing.
    NotNegotiated(Vec<&'static str>),
    /// It does not, because it is not a virtio NIC.
    NotVirtio,
    /// Unknown, because its features cannot be read.
    Unknown,
}

impl Announce {
    /// Parses `features` of a virtio device in sysfs: a character `0` or `1` for each bit, 64 or more, bit 0 first.
    pub fn of_features(text: &str) -> Self {
        let bits = text.trim().as_bytes();
        if bits.len() < 64 || bits.iter().any(|bit| !b"01".contains(bit)) {
            return Self::Unknown;
        }
        let is_missing = |bit: usize| bits.get(bit) != Some(&b'1');
        let missing = ANNOUNCE_NEEDS.iter().filter(|(bit, _)| is_missing(*bit));
        let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
        if missing.is_empty() {
            Self::Negotiated
        } else {
            Self::NotNegotiated(missing)
        }
    }
}

/// An Ethernet address that can identify a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// Parses six hexadecimal pairs. Addresses that identify nothing are rejected: zero, broadcast, and `ee:ee:ee:ee:ee:ee`, which
    /// Calico gives to all its interfaces.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut pairs = text.trim().split(':');
        for byte in &mut bytes {
            let pair = pairs.next().filter(|pair| pair.len() == 2)?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        pairs.next().is_none().then(|| Self::new(bytes)).flatten()
    }

    /// Converts six bytes, with the same rules.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn features(bits: &[usize], length: usize) -> String {
        let bit = |index| if bits.contains(&index) { '1' } else { '0' };
        (0..length).map(bit).chain(['\n']).collect()
    }

    #[test]
    fn a_nic_announces_only_with_all_three_features_whatever_the_length_of_the_list() {
        for length in [64, 128] {
            for (bits, missing) in [
                (&[16, 17, 21][..], &[][..]),
                (&[16, 17], &["GUEST_ANNOUNCE"]),
                (&[16, 21], &["CTRL_VQ"]),
                (&[17, 21], &["STATUS"]),
                (&[5], &["GUEST_ANNOUNCE", "CTRL_VQ", "STATUS"]),
            ] {
                let expected = if missing.is_empty() {
                    Announce::Negotiated
                } else {
                    Announce::NotNegotiated(missing.to_vec())
                };
                assert_eq!(Announce::of_features(&features(bits, length)), expected);
            }
        }
    }

    #[test]
    fn features_that_are_none_prove_nothing() {
        for text in [
            "",
            "1",
            &"1".repeat(63),
            &"x".repeat(64),
            "0x0000000130bf8024",
        ] {
            assert_eq!(Announce::of_features(text), Announce::Unknown, "{text}");
        }
    }

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
