// SPDX-License-Identifier: Apache-2.0
//! Units as described by their files, in a tree whose systemd is not running (systemd.unit(5)).

use std::path::Path;

use crate::facts::guest_agent::Enablement;
use crate::sys::root::Root;

/// The unit directories; a file in an earlier one overrides those of the same name in later ones.
const DIRECTORIES: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The directories of udev rules.
const RULES: [&str; 3] = [
    "/etc/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
];

/// The maximum size of a unit or rules file, which has only some lines.
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
        let path = Path::new(dir).join(name);
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

/// Reports whether another unit wants or requires this one. `systemctl enable` creates the link, or a distribution ships it.
fn is_wanted(root: &Root, name: &str) -> bool {
    DIRECTORIES.iter().any(|dir| {
        let children = root.list(dir).unwrap_or_default();
        children.iter().any(|child| {
            let is_dependency = [".wants", ".requires"]
                .iter()
                .any(|end| child.as_encoded_bytes().ends_with(end.as_bytes()));
            is_dependency
                && root
                    .link_target(Path::new(dir).join(child).join(name))
                    .is_some()
        })
    })
}

/// Reports whether a udev rule starts the unit for a device.
fn is_in_rules(root: &Root, name: &str) -> bool {
    RULES.iter().any(|dir| {
        let files = root.list(dir).unwrap_or_default();
        files.iter().any(|file| {
            let text = root.read_text(Path::new(dir).join(file), FILE_MAX);
            text.is_ok_and(|text| {
                // A backslash at the end of a line continues it on the next one.
                let text = text.replace("\\\n", " ");
                let mut lines = text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with('#'));
                lines.any(|line| line.contains("SYSTEMD_WANTS") && line.contains(name))
            })
        })
    })
}
