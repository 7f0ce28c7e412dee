// SPDX-License-Identifier: Apache-2.0
//! The Harvester cloud provider and CSI driver that each release of RKE2 bundles, for a Node that does not run them itself.
//! Source: `scripts/build-images` of each RKE2 release.
//!
//! To add a new release: a row with the first RKE2 release of each minor version that bundles it.

use crate::facts::release::Rank;

/// A version, and the first RKE2 release of each minor version that bundles it.
type Row = (&'static str, &'static [Rank]);

const fn r(minor: u32, patch: u32) -> Rank {
    Rank::of(1, minor, patch)
}

const fn rebuilt(minor: u32, patch: u32, rebuild: u32) -> Rank {
    Rank::rebuilt(1, minor, patch, rebuild)
}

/// The versions of `rancher/harvester-cloud-provider`.
pub const CLOUD_PROVIDER: &[Row] = &[
    (
        "v0.1.4",
        &[r(22, 12), r(23, 9), r(24, 3), r(25, 0), r(26, 0)],
    ),
    (
        "v0.1.5",
        &[r(23, 16), r(24, 10), r(25, 6), r(26, 1), r(27, 1)],
    ),
    (
        "v0.2.0",
        &[r(24, 15), r(25, 11), r(26, 6), r(27, 3), r(28, 1), r(29, 0)],
    ),
    ("v0.2.1", &[r(27, 13), r(28, 9), r(29, 4), r(30, 0)]),
    (
        "v0.2.2",
        &[r(28, 14), r(29, 9), r(30, 5), r(31, 0), r(32, 0)],
    ),
    (
        "v0.2.4",
        &[r(29, 13), r(30, 9), r(31, 5), r(32, 1), r(33, 0), r(34, 1)],
    ),
    (
        "v0.2.5",
        &[r(31, 14), r(32, 10), r(33, 6), r(34, 2), r(35, 0), r(36, 0)],
    ),
    (
        "v0.2.7",
        &[rebuilt(33, 13, 2), r(34, 10), r(35, 7), r(36, 3)],
    ),
];

/// The versions of `rancher/harvester-csi-driver`.
pub const CSI_DRIVER: &[Row] = &[
    (
        "v0.1.6",
        &[r(26, 14), r(27, 11), r(28, 7), r(29, 2), r(30, 0)],
    ),
    (
        "v0.1.7",
        &[rebuilt(27, 16, 2), r(28, 13), r(29, 8), r(30, 4), r(31, 0)],
    ),
    (
        "v0.2.1",
        &[r(28, 15), r(29, 10), r(30, 6), rebuilt(31, 1, 2)],
    ),
    (
        "v0.2.2",
        &[r(29, 12), r(30, 8), r(31, 4), r(32, 0), r(33, 0)],
    ),
    (
        "v0.2.3",
        &[rebuilt(30, 14, 2), r(31, 11), r(32, 7), r(33, 3), r(34, 1)],
    ),
    (
        "v0.2.4",
        &[r(31, 14), r(32, 10), r(33, 6), r(34, 2), r(35, 0)],
    ),
    ("v0.2.8", &[r(33, 11), r(34, 7), r(35, 4), r(36, 0)]),
    (
        "v0.2.9",
        &[rebuilt(33, 13, 2), r(34, 10), r(35, 7), r(36, 3)],
    ),
];

/// Returns the version that `rke2` bundles, or `None` if the table does not have it.
pub fn of(table: &[Row], rke2: Rank) -> Option<&'static str> {
    let brings = |first: &&Rank| first.minor() == rke2.minor() && **first <= rke2;
    let rows = table.iter().rev();
    let mut rows = rows.filter(|(_, firsts)| firsts.iter().any(|first| brings(&first)));
    rows.next().map(|(version, _)| *version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::release::Release;

    #[test]
    fn a_release_brings_what_the_last_one_before_it_of_its_minor_version_brought() {
        for (rke2, cloud_provider, csi_driver) in [
            ("v1.22.11+rke2r1", None, None),
            ("v1.24.3+rke2r1", Some("v0.1.4"), None),
            ("v1.26.5+rke2r1", Some("v0.1.5"), None),
            ("v1.26.14+rke2r1", Some("v0.2.0"), Some("v0.1.6")),
            ("v1.31.1+rke2r1", Some("v0.2.2"), Some("v0.1.7")),
            ("v1.31.1+rke2r2", Some("v0.2.2"), Some("v0.2.1")),
            ("v1.33.5+rke2r1", Some("v0.2.4"), Some("v0.2.3")),
            ("v1.33.13+rke2r1", Some("v0.2.5"), Some("v0.2.8")),
            ("v1.36.9+rke2r1", Some("v0.2.7"), Some("v0.2.9")),
            ("v1.37.0+rke2r1", None, None),
        ] {
            let rank = Release::parse(rke2).unwrap().rank();
            assert_eq!(of(CLOUD_PROVIDER, rank), cloud_provider, "{rke2}");
            assert_eq!(of(CSI_DRIVER, rank), csi_driver, "{rke2}");
        }
    }

    #[test]
    fn later_rows_hold_later_versions_and_later_releases() {
        for table in [CLOUD_PROVIDER, CSI_DRIVER] {
            let version = |row: &Row| Release::parse(row.0).unwrap().rank();
            assert!(table.is_sorted_by(|a, b| version(a) < version(b)));
            for (index, row) in table.iter().enumerate() {
                assert!(
                    row.1.is_sorted_by(|a, b| a.minor() < b.minor()),
                    "{}",
                    row.0
                );
                for first in row.1 {
                    let earlier = table[..index].iter().flat_map(|row| row.1);
                    let mut earlier = earlier.filter(|rank| rank.minor() == first.minor());
                    assert!(earlier.all(|rank| rank < first), "{} in {first}", row.0);
                }
            }
        }
    }
}
