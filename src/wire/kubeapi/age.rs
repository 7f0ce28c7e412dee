// SPDX-License-Identifier: Apache-2.0
//! Which of two versions of one object is the newer one.

use std::cmp::Ordering;

/// How an object that arrives compares with the one that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// It is newer.
    Newer,
    /// It is the same.
    Same,
    /// Older, or no one knows. A watch or a cache may lag behind a read; after a restore of etcd the older one is the right one.
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
