// SPDX-License-Identifier: Apache-2.0
//! Suggestions for misspelled names.

/// Longer names are not typing errors, and the cost of a comparison is the product of both lengths.
const MAX_LENGTH: usize = 64;

/// Returns the candidate that is most similar to `word`, if any is similar enough: at most one edit for every three letters, and
/// at least one.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let length = word.chars().count();
    if length > MAX_LENGTH {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let slips_max = (length / 3).max(1);
    candidates
        .into_iter()
        // Each missing or extra character is one edit: most names need no comparison.
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= slips_max)
        .map(|candidate| (strsim::damerau_levenshtein(&word, candidate), candidate))
        .filter(|(slips, _)| *slips <= slips_max)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_names_are_suggested() {
        let names = ["follow", "hold", "report", "on_change"];
        for (word, expected) in [
            ("folow", Some("follow")),
            ("FOLLOW", Some("follow")),
            ("on-change", Some("on_change")),
            ("onchange", Some("on_change")),
            ("rep", None),
            ("something", None),
            ("", None),
        ] {
            assert_eq!(closest(word, names), expected, "{word}");
        }
        assert_eq!(closest(&"follow".repeat(100), names), None);
    }
}
