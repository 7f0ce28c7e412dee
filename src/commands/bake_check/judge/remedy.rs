// SPDX-License-Identifier: Apache-2.0
//! The commands that remove a fault from an image: in the running system, or in a mounted tree.

use std::path::{Path, PathBuf};

use crate::facts::guest_agent::Family;
use crate::sys::escape::{shell_path, shell_word};

/// The tree to which the commands apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageTree {
    dir: PathBuf,
}

impl ImageTree {
    /// Creates the tree at `dir`, an absolute path; `/` is the running system.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Removes files, and directories with all their content.
    pub(in crate::commands::bake_check) fn remove(&self, paths: &[&Path]) -> String {
        let paths: Vec<String> = paths.iter().map(|path| self.path(path)).collect();
        format!("rm -rf {}", paths.join(" "))
    }

    /// Empties a file, but keeps it.
    pub(super) fn empty(&self, path: &Path) -> String {
        format!("truncate -s 0 {}", self.path(path))
    }

    /// Comments out a line of a TOML file. Line numbers do not change, so several such commands can run in sequence.
    pub(super) fn comment_out(&self, path: &Path, line: usize) -> String {
        format!("sed -i '{line}s/^/#/' {}", self.path(path))
    }

    /// Removes a top-level key, with its value on the same line, from a YAML file.
    pub(super) fn delete_yaml(&self, path: &Path, key: &str) -> String {
        let key = key.replace('+', "[+]");
        format!(
            "sed -i -E \"/^['\\\"]?{key}['\\\"]?[[:space:]]*:/d\" {}",
            self.path(path)
        )
    }

    /// Removes a variable from an environment file.
    pub(super) fn delete_variable(&self, path: &Path, name: &str) -> String {
        format!(
            "sed -i '/^[[:space:]]*{name}[[:space:]]*=/d' {}",
            self.path(path)
        )
    }

    /// Removes items that begin with these labels from a list in a YAML file; also the key, if it is on its own line.
    pub(super) fn delete_items(&self, path: &Path, labels: &[String], key: Option<&str>) -> String {
        let key = key.map(|key| {
            let key = key.replace('+', "[+]");
            format!(r#" -e "/^['\"]?{key}['\"]?[[:space:]]*:/d""#)
        });
        let items: Vec<String> = labels
            .iter()
            .map(|label| {
                let label = label.replace('.', "[.]");
                format!(r#" -e "\|^[[:space:]]*-[[:space:]]+['\"]?{label}=|d""#)
            })
            .collect();
        format!(
            "sed -i -E{}{} {}",
            key.unwrap_or_default(),
            items.concat(),
            self.path(path)
        )
    }

    /// Replaces one text with another at the end of a word.
    pub(super) fn replace(&self, path: &Path, old: &str, new: &str) -> String {
        let old = old.replace('.', "[.]");
        format!(
            r#"sed -i -E "s#{old}([[:space:]\"']|\$)#{new}\1#g" {}"#,
            self.path(path)
        )
    }

    /// Removes a file that cannot be parsed.
    pub(super) fn correct_or_remove(&self, path: &Path) -> String {
        format!("{}  # or correct it", self.remove(&[path]))
    }

    /// Changes how systemd starts a unit.
    pub(super) fn systemctl(&self, verb: &str, unit: &str) -> String {
        format!(
            "systemctl{} {verb} {}",
            self.option(" --root="),
            shell_word(unit)
        )
    }

    /// Runs a command of the agent.
    pub(super) fn ourselves(&self, command: &str) -> String {
        format!("harvester-node-agent{} {command}", self.option(" --root "))
    }

    /// Repeats the check as root.
    pub(super) fn check_as_root(&self) -> String {
        format!("sudo {}", self.ourselves("bake-check"))
    }

    /// Installs the agent from a package in the working directory.
    pub(super) fn install_ourselves(&self, family: Family) -> String {
        match (family, self.outside()) {
            (Family::Debian, None) => "apt-get install -y ./harvester-node-agent_*.deb".to_owned(),
            (Family::Debian, Some(dir)) => {
                format!("dpkg --root={dir} -i harvester-node-agent_*.deb")
            }
            (Family::Suse, None) => {
                "zypper --non-interactive install --allow-unsigned-rpm ./harvester-node-agent-*.rpm"
                    .to_owned()
            }
            (Family::RedHat | Family::Other, None) => {
                "rpm -U harvester-node-agent-*.rpm".to_owned()
            }
            (Family::Suse | Family::RedHat | Family::Other, Some(dir)) => {
                format!("rpm --root={dir} -U harvester-node-agent-*.rpm")
            }
        }
    }

    /// Installs the QEMU guest agent from the distribution.
    pub(super) fn install_guest_agent(&self, family: Family) -> String {
        let install = match family {
            Family::Debian => "apt-get install -y",
            Family::Suse => "zypper --non-interactive install",
            Family::RedHat | Family::Other => "dnf install -y",
        };
        let chroot = self.outside().map(|dir| format!("chroot {dir} "));
        format!("{}{install} qemu-guest-agent", chroot.unwrap_or_default())
    }

    fn path(&self, path: &Path) -> String {
        let path = path.strip_prefix("/").unwrap_or(path);
        shell_path(&self.dir.join(path))
    }

    /// Returns an option with the directory, or nothing for the running system.
    fn option(&self, option: &str) -> String {
        self.outside()
            .map(|dir| format!("{option}{dir}"))
            .unwrap_or_default()
    }

    /// Returns the directory as a shell word, or `None` for the running system.
    fn outside(&self) -> Option<String> {
        (self.dir != Path::new("/")).then(|| shell_path(&self.dir))
    }
}
