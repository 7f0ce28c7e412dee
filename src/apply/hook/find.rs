// SPDX-License-Identifier: Apache-2.0
//! Finds the hooks for one state of a scheduled event: the executables in `hooks.d/STATE`. They are run as root, so those that
//! another user can change are rejected.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::access::trust::changeable;
use crate::decide::scheduled_events::ScheduledEventState;
use crate::sys::escape::chain;
use crate::sys::root::Root;

/// The directory with one subdirectory for each state.
const DIRECTORY: &str = "/etc/harvester-node-agent/hooks.d";

/// The maximum number of hooks for one state. Their results fit in the queue of one bus connection.
const HOOKS_MAX: usize = 16;

/// The maximum length of the name of a hook, which is a part of the name of a unit.
const NAME_MAX: usize = 100;

/// The permission bits to execute a file.
const EXECUTE: u32 = 0o111;

/// The hooks for one state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hooks {
    /// The paths of the hooks, sorted.
    pub(super) paths: Vec<String>,
    /// Why others are not run.
    pub(super) rejected: Vec<String>,
}

/// Returns the hooks for a state.
pub(super) fn find(root: &Root, state: ScheduledEventState) -> Hooks {
    let mut hooks = Hooks::default();
    let directory = format!("{DIRECTORY}/{}", state.as_str());
    let names = match root.list(&directory) {
        Ok(names) => names,
        Err(error) if error.is_absent() => return hooks,
        Err(error) => {
            hooks.rejected.push(chain(&error));
            return hooks;
        }
    };
    for name in names.iter().filter_map(|name| name.to_str()) {
        let path = format!("{directory}/{name}");
        if !is_name(name) || !is_program(root, &path) {
            continue;
        }
        match rejection(root, &path) {
            None if hooks.paths.len() == HOOKS_MAX => {
                let why = format!("{directory} has more than {HOOKS_MAX} hooks");
                hooks.rejected.push(why);
                break;
            }
            None => hooks.paths.push(path),
            Some(why) => hooks.rejected.push(why),
        }
    }
    // All hooks in a directory that others can write have the same problem.
    hooks.rejected.dedup();
    hooks
}

/// Reports whether a file of this name is a hook: not a backup, a hidden file, or a name that a unit cannot have.
fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= NAME_MAX && !name.starts_with('.') && name.bytes().all(is_valid)
}

/// Reports whether it is an executable, or a link, which is rejected whatever its target is.
fn is_program(root: &Root, path: &str) -> bool {
    let is_executable = |metadata: std::fs::Metadata| {
        metadata.is_file() && metadata.permissions().mode() & EXECUTE != 0
    };
    root.link_target(path).is_some() || root.metadata(path).is_ok_and(is_executable)
}

/// Returns why a hook is not run.
fn rejection(root: &Root, path: &str) -> Option<String> {
    // The last step is the file itself.
    match root.steps(path).as_slice() {
        [link, _, ..] => Some(format!("{} is a symbolic link", link.display())),
        _ => changeable(root, Path::new(path)).map(|place| place.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::{tree, write};
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::symlink;

    const STATE: &str = "/etc/harvester-node-agent/hooks.d/planned";

    fn chmod(root: &Root, path: &str, mode: u32) {
        set_permissions(root.join(path), Permissions::from_mode(mode)).unwrap();
    }

    fn hook(root: &Root, name: &str, mode: u32) -> String {
        let path = format!("{STATE}/{name}");
        write(root, &path, "#!/bin/sh\n");
        chmod(root, &path, mode);
        path
    }

    fn prepared() -> (tempfile::TempDir, Root) {
        let (dir, root) = tree();
        std::fs::create_dir_all(root.join(STATE)).unwrap();
        for folder in Path::new(STATE).ancestors() {
            chmod(&root, folder.to_str().unwrap(), 0o755);
        }
        (dir, root)
    }

    fn found(root: &Root) -> Hooks {
        find(root, ScheduledEventState::Planned)
    }

    #[test]
    fn only_executables_with_a_plain_name_are_hooks() {
        let (_dir, root) = prepared();
        let paths = vec![
            hook(&root, "10-drain.sh", 0o755),
            hook(&root, "20_notify", 0o700),
        ];
        hook(&root, "README", 0o644);
        hook(&root, ".hidden", 0o755);
        hook(&root, "10-drain.sh~", 0o755);
        hook(&root, "with space", 0o755);
        hook(&root, &"x".repeat(NAME_MAX + 1), 0o755);
        create_dir(root.join(format!("{STATE}/lib"))).unwrap();
        let rejected = Vec::new();
        assert_eq!(found(&root), Hooks { paths, rejected });
        assert_eq!(find(&root, ScheduledEventState::Done), Hooks::default());
    }

    #[test]
    fn a_hook_that_others_can_change_and_a_link_are_rejected() {
        let (_dir, root) = prepared();
        let good = hook(&root, "30-good", 0o755);
        let open = hook(&root, "10-open", 0o757);
        let link = format!("{STATE}/20-link");
        symlink(root.join(&good), root.join(&link)).unwrap();
        let hooks = found(&root);
        assert_eq!(hooks.paths, [good]);
        let rejected = [
            format!("{open} has mode 0757"),
            format!("{link} is a symbolic link"),
        ];
        assert_eq!(hooks.rejected, rejected);
        std::fs::remove_file(root.join(&link)).unwrap();
        chmod(&root, STATE, 0o777);
        let hooks = found(&root);
        assert!(hooks.paths.is_empty(), "{hooks:?}");
        assert_eq!(hooks.rejected, [format!("{STATE} has mode 0777")]);
    }

    #[test]
    fn a_directory_that_is_a_link_is_rejected() {
        let (_dir, root) = prepared();
        hook(&root, "10-good", 0o755);
        let link = "/etc/harvester-node-agent/hooks.d/done";
        symlink("planned", root.join(link)).unwrap();
        let hooks = find(&root, ScheduledEventState::Done);
        assert_eq!(hooks.rejected, [format!("{link} is a symbolic link")]);
        assert!(hooks.paths.is_empty(), "{hooks:?}");
    }

    #[test]
    fn too_many_hooks_are_rejected() {
        let (_dir, root) = prepared();
        for number in 10..30 {
            hook(&root, &number.to_string(), 0o755);
        }
        let hooks = found(&root);
        assert_eq!((hooks.paths.len(), hooks.rejected.len()), (HOOKS_MAX, 1));
    }
}
