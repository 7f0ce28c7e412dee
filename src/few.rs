// SPDX-License-Identifier: Apache-2.0
//! Putting a few things in order.
//!
//! The library's sort is made for many: 4 kB of code for each type of element, and a map or a set that is collected at once
//! sorts too. All of ours are short, and together those sorts were 0.1 MB of the daemon's memory.

use std::collections::{BTreeMap, BTreeSet};

/// Collects one by one.
pub trait Few: Iterator + Sized {
    /// The elements as a set.
    fn into_set(self) -> BTreeSet<Self::Item>
    where
        Self::Item: Ord,
    {
        let mut set = BTreeSet::new();
        set.extend(self);
        set
    }

    /// The pairs as a map; of equal keys the last counts.
    fn into_map<K: Ord, V>(self) -> BTreeMap<K, V>
    where
        Self: Iterator<Item = (K, V)>,
    {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }
}

impl<I: Iterator> Few for I {}

/// Sorts by a key; equal ones stay in their order. Fast where the list is short or nearly in order already.
pub fn sort_by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..list.len() {
        let mut place = end;
        while place > 0 {
            let is_before = match (list.get(place), list.get(place - 1)) {
                (Some(this), Some(previous)) => key(this) < key(previous),
                _ => false,
            };
            if !is_before {
                break;
            }
            list.swap(place, place - 1);
            place -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sorts_as_the_library_does() {
        let mut list: Vec<(u32, usize)> = (0u32..200)
            .map(|position| position.wrapping_mul(2_654_435_761) >> 27)
            .enumerate()
            .map(|(position, key)| (key, position))
            .collect();
        let mut expected = list.clone();
        expected.sort_by_key(|pair| pair.0);
        sort_by_key(&mut list, |pair| pair.0);
        assert_eq!(list, expected);
        sort_by_key(&mut [] as &mut [u8], |byte| *byte);
    }

    #[test]
    fn it_collects_as_the_library_does() {
        let pairs = [("b", 1), ("a", 2), ("b", 3)];
        assert_eq!(pairs.into_iter().into_map(), BTreeMap::from(pairs));
        assert_eq!(pairs.into_iter().into_set(), BTreeSet::from(pairs));
    }
}
