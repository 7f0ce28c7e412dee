// SPDX-License-Identifier: Apache-2.0
//! Units as described by their files, in a tree whose systemd is not running (systemd.unit(5)).

use std::path::{Path, PathBuf};

use crate::facts::guest_agent::Enablement;
use crate::sys::root::Root;

/// The directories above those of units and of udev rules; a file in an earlier one overrides those of the same name in later ones.
const DIRECTORIES: [&str; 4] = ["/etc", "/usr/local/lib", "/usr/lib", "/lib"];

/// Where they have the units.
const UNITS: &str = "systemd/system";

/// The maximum size of a file that is read; typical ones are below 16 KiB.
const FILE_MAX: u64 = 64 << 10;

/// A link to this path masks a unit.
const NOTHING: &str = "/dev/null";

/// The path of our program in the packages.
pub(crate) const PROGRAM: &str = "/usr/bin/harvester-node-agent";

/// Our unit.
pub(crate) const OURS: &str = "harvester-node-agent.service";

/// Returns the first of the names that has a unit, and how the next boot starts it. `Static` only if a udev rule or a unit of the
/// distribution does.
pub(super) fn find<'n>(root: &Root, names: &[&'n str]) -> Option<(&'n str, Enablement)> {
    let mut names = names.iter();
    names.find_map(|name| Some((*name, enablement(root, name)?)))
}

fn enablement(root: &Root, name: &str) -> Option<Enablement> {
    let file = DIRECTORIES.iter().find_map(|dir| {
        let path = Path::new(dir).join(UNITS).join(name);
        if root.resolve(&path) == Path::new(NOTHING) {
            return Some(String::new());
        }
        root.read_text(path, FILE_MAX).ok()
    })?;
    Some(match () {
        // A link to `/dev/null`, or an empty file.
        () if file.is_empty() => Enablement::Masked,
        () if is_wanted(root, name) => Enablement::Enabled,
        () if is_in_rules(root, name) => Enablement::Static,
        () => Enablement::Disabled,
    })
}

/// Returns the paths in one directory below each of [`DIRECTORIES`].
fn entries(root: &Root, below: &str) -> impl Iterator<Item = PathBuf> {
    DIRECTORIES.iter().flat_map(move |dir| {
        let dir = Path::new(dir).join(below);
        let names = root.list(&dir).unwrap_or_default().into_iter();
        names.map(move |name| dir.join(name))
    })
}

/// Reports whether another unit wants or requires this one. `systemctl enable` creates the link, or a distribution ships it.
fn is_wanted(root: &Root, name: &str) -> bool {
    entries(root, UNITS).any(|dir| {
        let kind = dir.extension().unwrap_or_default();
        (kind == "wants" || kind == "requires") && root.link_target(dir.join(name)).is_some()
    })
}

/// Reports whether a udev rule starts the unit for a device.
fn is_in_rules(root: &Root, name: &str) -> bool {
    entries(root, "udev/rules.d").any(|file| {
        // A backslash at the end of a line continues it on the next one.
        let text = root.read_text(file, FILE_MAX).unwrap_or_default();
        let text = text.replace("\\\n", " ");
        let is_start = |line: &str| line.contains("SYSTEMD_WANTS") && line.contains(name);
        let mut lines = text.lines().map(str::trim_start);
        lines.any(|line| !line.starts_with('#') && is_start(line))
    })
}
