// SPDX-License-Identifier: Apache-2.0
//! Compares two versions of one object to find the newer one.

use std::cmp::Ordering;

/// The age of a received object, compared with the known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// The received object is newer.
    Newer,
    /// Both are the same version.
    Same,
    /// Older, or unknown. A watch or a cache may lag behind a read; after a restore of etcd the older version is the right one.
    Doubtful,
}

/// Compares resource versions.
#[must_use]
pub fn age(arrived: &str, known: Option<&str>) -> Age {
    let number = |text: &str| text.parse::<u64>().ok();
    match known.and_then(number).zip(number(arrived)) {
        Some((known, arrived)) => match arrived.cmp(&known) {
            Ordering::Greater => Age::Newer,
            Ordering::Equal => Age::Same,
            Ordering::Less => Age::Doubtful,
        },
        None if known == Some(arrived) => Age::Same,
        None => Age::Doubtful,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_that_is_surely_newer_is_newer() {
        let table = [
            ("12", Some("9"), Age::Newer),
            ("9", Some("9"), Age::Same),
            ("9", Some("12"), Age::Doubtful),
            ("9", None, Age::Doubtful),
            ("b", Some("a"), Age::Doubtful),
            ("a", Some("a"), Age::Same),
            ("99999999999999999999999", Some("9"), Age::Doubtful),
        ];
        for (arrived, known, expected) in table {
            assert_eq!(age(arrived, known), expected, "{arrived} {known:?}");
        }
    }
}
