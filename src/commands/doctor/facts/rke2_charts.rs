// SPDX-License-Identifier: Apache-2.0
//! The Harvester cloud provider and CSI driver that each release of RKE2 bundles, for a Node that does not run them itself.
//! Source: `scripts/build-images` of each RKE2 release.
//!
//! To add a new release: a row with the first RKE2 release of each minor version that bundles it.

use crate::facts::release::Rank;

/// A version, and the first RKE2 release of each minor version that bundles it.
type Row = (&'static str, &'static [Rank]);

/// Defines the rows of a table: the version, and for each minor version of RKE2 the patch, and the rebuild unless it is the first.
macro_rules! rows {
    ($($version:literal: $(($($number:literal),+))+;)*) => {
        &[$(($version, &[$(rows!(@rank $($number),+)),+])),*]
    };
    (@rank $minor:literal, $patch:literal) => { Rank::of(1, $minor, $patch) };
    (@rank $minor:literal, $patch:literal, $rebuild:literal) => { Rank::rebuilt(1, $minor, $patch, $rebuild) };
}

/// The versions of `rancher/harvester-cloud-provider`.
pub const CLOUD_PROVIDER: &[Row] = rows! {
    "v0.1.4": (22, 12) (23, 9) (24, 3) (25, 0) (26, 0);
    "v0.1.5": (23, 16) (24, 10) (25, 6) (26, 1) (27, 1);
    "v0.2.0": (24, 15) (25, 11) (26, 6) (27, 3) (28, 1) (29, 0);
    "v0.2.1": (27, 13) (28, 9) (29, 4) (30, 0);
    "v0.2.2": (28, 14) (29, 9) (30, 5) (31, 0) (32, 0);
    "v0.2.4": (29, 13) (30, 9) (31, 5) (32, 1) (33, 0) (34, 1);
    "v0.2.5": (31, 14) (32, 10) (33, 6) (34, 2) (35, 0) (36, 0);
    "v0.2.7": (33, 13, 2) (34, 10) (35, 7) (36, 3);
};

/// The versions of `rancher/harvester-csi-driver`.
pub const CSI_DRIVER: &[Row] = rows! {
    "v0.1.6": (26, 14) (27, 11) (28, 7) (29, 2) (30, 0);
    "v0.1.7": (27, 16, 2) (28, 13) (29, 8) (30, 4) (31, 0);
    "v0.2.1": (28, 15) (29, 10) (30, 6) (31, 1, 2);
    "v0.2.2": (29, 12) (30, 8) (31, 4) (32, 0) (33, 0);
    "v0.2.3": (30, 14, 2) (31, 11) (32, 7) (33, 3) (34, 1);
    "v0.2.4": (31, 14) (32, 10) (33, 6) (34, 2) (35, 0);
    "v0.2.8": (33, 11) (34, 7) (35, 4) (36, 0);
    "v0.2.9": (33, 13, 2) (34, 10) (35, 7) (36, 3);
};

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
