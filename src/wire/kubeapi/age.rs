// SPDX-License-Identifier: Apache-2.0
//! Compares two versions of one object to find the newer one.

use std::cmp::Ordering;

/// Compares the resource version of a received object with the known one. Returns `None` if it is unknown which one is newer. A watch
/// or a cache may lag behind a read; after a restore of etcd the older version is the right one.
#[must_use]
pub fn age(arrived: &str, known: Option<&str>) -> Option<Ordering> {
    let number = |text: &str| text.parse::<u64>().ok();
    match known.and_then(number).zip(number(arrived)) {
        Some((known, arrived)) => Some(arrived.cmp(&known)),
        None => (known == Some(arrived)).then_some(Ordering::Equal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_that_is_surely_newer_is_newer() {
        let table = [
            ("12", Some("9"), Some(Ordering::Greater)),
            ("9", Some("9"), Some(Ordering::Equal)),
            ("9", Some("12"), Some(Ordering::Less)),
            ("9", None, None),
            ("b", Some("a"), None),
            ("a", Some("a"), Some(Ordering::Equal)),
            ("99999999999999999999999", Some("9"), None),
        ];
        for (arrived, known, expected) in table {
            assert_eq!(age(arrived, known), expected, "{arrived} {known:?}");
        }
    }
}
