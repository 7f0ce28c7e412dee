// SPDX-License-Identifier: Apache-2.0
//! Release numbers of Kubernetes, RKE2, K3s, KubeVirt and Harvester.

use std::fmt;

/// The maximum length of a release number.
const TEXT_MAX: usize = 64;

/// The names of pre-releases; a number follows.
const BEFORE: [&str; 3] = ["alpha", "beta", "rc"];

/// A comparable release number with its text: `v1.9.0-rc6`, `v1.33.5+rke2r1`, `1.5.2-150600.5.1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Release {
    text: String,
    rank: Rank,
}

/// The sort key of a release. All pre-releases of a release have the same, and so have all its builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    numbers: [u32; 3],
    is_final: bool,
}

impl Rank {
    /// Returns the rank of a release that is not a pre-release.
    pub(super) const fn of(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            numbers: [major, minor, patch],
            is_final: true,
        }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(formatter, "v{major}.{minor}.{patch}")
    }
}

impl Release {
    /// Parses three numbers, with or without `v`; then `-alphaN`, `-betaN`, `-rcN` (a pre-release) or the number of a package;
    /// then `+` and a build. Other text is not a release: `master-head`, `v1.7-27934bc3-head`.
    ///
    /// # Errors
    ///
    /// Returns an error with the beginning of any other text, which is external: escape it before it is printed.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let rank = rank(text).filter(|_| text.len() <= TEXT_MAX);
        let rank = rank.ok_or_else(|| {
            let shown: String = text.chars().take(TEXT_MAX).collect();
            format!("`{shown}` is not a release version: its contents are unknown")
        })?;
        Ok(Self {
            text: text.to_owned(),
            rank,
        })
    }

    /// Returns the sort key.
    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    /// Reports whether this is an RKE2 release.
    pub(super) fn is_rke2(&self) -> bool {
        self.text.contains("+rke2r")
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn rank(text: &str) -> Option<Rank> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let text = match text.split_once('+') {
        Some((text, build)) if !build.is_empty() && build.bytes().all(is_plain) => text,
        Some(_) => return None,
        None => text,
    };
    let (text, is_final) = match text.split_once('-') {
        Some((text, suffix)) => (text, is_final(suffix)?),
        None => (text, true),
    };
    let mut numbers = [0; 3];
    let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
    for place in &mut numbers {
        *place = number(parts.next()?)?;
    }
    let rank = Rank { numbers, is_final };
    parts.next().is_none().then_some(rank)
}

/// Reports whether a suffix is the number of a package, and not that of a pre-release; `None` for any other text.
fn is_final(suffix: &str) -> Option<bool> {
    match BEFORE.iter().find_map(|name| suffix.strip_prefix(name)) {
        Some(count) => number(count.strip_prefix('.').unwrap_or(count)).map(|_| false),
        None => suffix
            .split('.')
            .all(|part| number(part).is_some())
            .then_some(true),
    }
}

/// Parses digits only. `parse` alone would accept a sign.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank_of(text: &str) -> Rank {
        Release::parse(text).unwrap().rank()
    }

    #[test]
    fn releases_are_ordered_as_they_came_out() {
        for before in ["v1.9.0-alpha1", "v1.9.0-beta.2", "v1.9.0-rc10+rke2r1"] {
            let ordered = ["v0.9.9", "v1.8.2", before, "v1.9.0", "v1.10.0"];
            assert!(ordered.map(rank_of).is_sorted_by(|a, b| a < b), "{before}");
        }
    }

    /// The file has releases, each with its number, and texts that are none.
    #[test]
    fn a_build_changes_nothing_and_a_development_version_is_no_release() {
        let file = "src/commands/doctor/release.txt";
        harvester_lab::expected::cases_are_expected(file, |text| match Release::parse(text) {
            Ok(release) => format!("{}, final: {}", release.rank(), release.rank().is_final),
            Err(error) => error.to_string(),
        });
        for text in ["", "v1.6.1 ", "v1.6.1\u{1b}[31m", &"1".repeat(1000)] {
            Release::parse(text).unwrap_err();
        }
    }
}
