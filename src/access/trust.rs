// SPDX-License-Identifier: Apache-2.0
//! Checks whether only root can change the file at a path, and whether every user can read it.
//!
//! A kubeconfig names files, and the agent, which runs as root, would send their content to the server in the same kubeconfig.
//! So any user who can write the kubeconfig could have any file of root sent anywhere: a file that it names is read only if only
//! root can change the kubeconfig, a directory above it, and every symbolic link on its path.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::sys::root::Root;

/// The permission bits of the group and of others to write.
const OTHERS_WRITE: u32 = 0o022;

/// The permission bit of the group to write.
const GROUP_WRITES: u32 = 0o020;

/// The first UID of users; smaller ones are those of services (`UID_MIN` in login.defs(5)).
const USERS: u32 = 1000;

/// The permission bits of others to read or write.
const OTHERS: u32 = 0o006;

/// The permission bit of others to search a directory.
const OTHERS_PASS: u32 = 0o001;

/// The sticky bit: only the owner of a file in the directory can rename or delete it.
const STICKY: u32 = 0o1000;

/// A place that a user other than root can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changeable {
    /// The file, the directory or the link.
    pub place: PathBuf,
    /// The reason, as the rest of a sentence.
    pub reason: String,
}

impl fmt::Display for Changeable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.place.display(), self.reason)
    }
}

/// Returns the first place on the path of a file that a user other than root can change. In a tree, its owner counts as root.
pub fn changeable(root: &Root, path: &Path) -> Option<Changeable> {
    changeable_except(root, path, &[])
}

/// Like [`changeable`], except that each of these directories, but none below it, may belong to a service and its group.
pub fn changeable_except(root: &Root, path: &Path, of_services: &[&str]) -> Option<Changeable> {
    let owner_of_all = owner_of_all(root);
    let eased = |(owner, mode)| (if owner < USERS { 0 } else { owner }, mode & !GROUP_WRITES);
    let judge = |(place, seen): (&Path, Option<(u32, u32)>)| {
        let is_exempt = of_services.iter().any(|dir| place == Path::new(dir));
        let seen = if is_exempt { seen.map(eased) } else { seen };
        let reason = match seen {
            None => "cannot be checked".to_owned(),
            Some((owner, _)) if owner != 0 && owner != owner_of_all => {
                format!("is owned by UID {owner}")
            }
            Some((_, mode)) if mode & OTHERS_WRITE != 0 => format!("has mode {mode:04o}"),
            Some(_) => return None,
        };
        Some(Changeable {
            place: place.to_owned(),
            reason,
        })
    };
    let steps = root.steps(path);
    let (file, links) = steps.split_last()?;
    let folders = steps.iter().flat_map(|step| step.ancestors().skip(1));
    let folders = folders.map(|folder| {
        let in_sticky = |(owner, mode)| match mode & STICKY {
            0 => (owner, mode),
            _ => (owner, mode & !OTHERS_WRITE),
        };
        (folder, seen(root, folder).map(in_sticky))
    });
    // The permission bits of a link are ignored.
    let links = links.iter().map(|link| {
        let owner = root.link_owner(link);
        (link.as_path(), owner.map(|owner| (owner, 0)))
    });
    let places = folders.chain(links);
    places.chain([(&**file, seen(root, file))]).find_map(judge)
}

/// Reports whether a user other than root owns a symbolic link on a path, and so chooses the file that it leads to.
pub fn is_steered(root: &Root, path: &Path) -> bool {
    let owner_of_all = owner_of_all(root);
    root.steps(path).iter().any(|link| {
        let owner = root.link_owner(link);
        owner.is_some_and(|owner| owner != 0 && owner != owner_of_all)
    })
}

/// Returns the user who counts as root.
fn owner_of_all(root: &Root) -> u32 {
    match root.is_live() {
        true => 0,
        false => seen(root, Path::new("/")).map_or(0, |(owner, _)| owner),
    }
}

/// Returns the permission bits of a file that every user can reach and read or write.
pub(super) fn exposed(root: &Root, file: &Path) -> Option<u32> {
    let mode = |place: &Path| seen(root, place).map(|(_, mode)| mode);
    let exposed = mode(file).filter(|mode| mode & OTHERS != 0)?;
    let target = root.steps(file).pop()?;
    let mut folders = target.ancestors().skip(1);
    let is_reachable = folders.all(|folder| {
        // The root itself counts as searchable: for a tree in a test its mode is irrelevant.
        folder == Path::new("/") || mode(folder).is_none_or(|mode| mode & OTHERS_PASS != 0)
    });
    is_reachable.then_some(exposed)
}

/// Returns the owner and the permission bits of a file or directory.
fn seen(root: &Root, place: &Path) -> Option<(u32, u32)> {
    let metadata = root.metadata(place).ok()?;
    Some((metadata.uid(), metadata.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::{tree, write};
    use crate::testing::this_test;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const FILE: &str = "/etc/rancher/kubeconfig";

    fn chmod(root: &Root, path: &str, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(root.join(path), mode).unwrap();
    }

    fn prepared() -> (tempfile::TempDir, Root) {
        let (dir, root) = tree();
        write(&root, FILE, "");
        for folder in ["/etc", "/etc/rancher"] {
            chmod(&root, folder, 0o755);
        }
        chmod(&root, FILE, 0o600);
        (dir, root)
    }

    #[test]
    fn the_file_and_each_folder_above_it_count() {
        let (_dir, root) = prepared();
        assert_eq!(changeable(&root, Path::new(FILE)), None);
        for (place, mode, is_reported) in [
            (FILE, 0o644, false),
            (FILE, 0o620, true),
            (FILE, 0o602, true),
            ("/etc/rancher", 0o775, true),
            ("/etc/rancher", 0o777, true),
            ("/etc", 0o777, true),
            ("/etc", 0o1777, false),
        ] {
            chmod(&root, place, mode);
            let found = changeable(&root, Path::new(FILE));
            let expected = is_reported.then(|| Changeable {
                place: place.into(),
                reason: format!("has mode {mode:04o}"),
            });
            assert_eq!(found, expected, "{place} {mode:o}");
            // The group of a service may write to its own directory, and nowhere else.
            let is_of_service = (place, mode) == ("/etc/rancher", 0o775);
            for path in [FILE, "/etc/rancher"] {
                let found = changeable_except(&root, Path::new(path), &["/etc/rancher"]);
                let is_here = path.starts_with(place) && is_reported && !is_of_service;
                assert_eq!(found.is_some(), is_here, "{path}: {place} {mode:o}");
            }
            chmod(&root, place, if place == FILE { 0o600 } else { 0o755 });
        }
    }

    #[test]
    fn the_way_of_a_link_counts_on_both_ends() {
        let (_dir, root) = prepared();
        std::fs::create_dir_all(root.join("/opt/links")).unwrap();
        for folder in ["/opt", "/opt/links"] {
            chmod(&root, folder, 0o755);
        }
        symlink(FILE, root.join("/opt/links/config")).unwrap();
        let link = Path::new("/opt/links/config");
        assert_eq!(changeable(&root, link), None);
        chmod(&root, "/opt/links", 0o777);
        let found = changeable(&root, link).unwrap();
        assert_eq!(found.to_string(), "/opt/links has mode 0777");
        chmod(&root, "/opt/links", 0o755);
        chmod(&root, FILE, 0o666);
        let found = changeable(&root, link).unwrap();
        assert_eq!(found.to_string(), format!("{FILE} has mode 0666"));
    }

    #[test]
    fn a_place_of_another_user_counts_and_a_link_of_his_in_a_sticky_folder_too() {
        let (_dir, root) = prepared();
        if !nix::unistd::geteuid().is_root() {
            return harvester_lab::skip(&this_test(), "chown needs root");
        }
        let give = |path: &str| std::os::unix::fs::lchown(root.join(path), Some(1234), None);
        std::fs::create_dir_all(root.join("/tmp")).unwrap();
        chmod(&root, "/tmp", 0o1777);
        symlink(FILE, root.join("/tmp/config")).unwrap();
        let link = Path::new("/tmp/config");
        assert_eq!(changeable(&root, link), None);
        give("/tmp/config").unwrap();
        let found = changeable(&root, link).unwrap();
        assert_eq!(found.to_string(), "/tmp/config is owned by UID 1234");
        for place in [FILE, "/etc/rancher"] {
            give(place).unwrap();
            let found = changeable(&root, Path::new(FILE)).unwrap();
            assert_eq!(found.place, Path::new(place));
        }
        for (owner, is_user) in [(999, false), (1000, true)] {
            std::os::unix::fs::chown(root.join("/etc"), Some(owner), None).unwrap();
            let found = changeable_except(&root, Path::new("/etc"), &["/etc"]);
            assert_eq!(found.is_some(), is_user, "{owner}");
        }
    }
}
