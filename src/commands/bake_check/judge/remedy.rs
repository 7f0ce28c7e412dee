// SPDX-License-Identifier: Apache-2.0
//! The commands that take a fault out of an image: for the running system, or for a tree from outside.

use std::path::{Path, PathBuf};

use crate::facts::guest_agent::Family;
use crate::sys::escape::shell_word;

/// The tree that the commands apply to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageTree {
    dir: PathBuf,
}

impl ImageTree {
    /// The tree at `dir`, an absolute path; `/` is the running system.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Removes files, and directories with all that is in them.
    pub(super) fn remove(&self, paths: &[&Path]) -> String {
        let paths: Vec<String> = paths.iter().map(|path| self.path(path)).collect();
        format!("rm -rf {}", paths.join(" "))
    }

    /// Keeps a file and takes its content.
    pub(super) fn empty(&self, path: &Path) -> String {
        format!("truncate -s 0 {}", self.path(path))
    }

    /// Makes a line of a TOML file a comment. No line changes its number, so that several such commands can follow each other.
    pub(super) fn comment_out(&self, path: &Path, line: usize) -> String {
        format!("sed -i '{line}s/^/#/' {}", self.path(path))
    }

    /// Takes a key of the top level, with its value on the same line, out of a YAML file.
    pub(super) fn delete_yaml(&self, path: &Path, key: &str) -> String {
        let key = key.replace('+', "[+]");
        format!(
            "sed -i -E \"/^['\\\"]?{key}['\\\"]?[[:space:]]*:/d\" {}",
            self.path(path)
        )
    }

    /// Takes a variable out of an environment file.
    pub(super) fn delete_variable(&self, path: &Path, name: &str) -> String {
        format!(
            "sed -i '/^[[:space:]]*{name}[[:space:]]*=/d' {}",
            self.path(path)
        )
    }

    /// Takes items that begin with these labels out of a list of a YAML file; with them its key, on a line of its own.
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

    /// Puts one plain text where another ends a word.
    pub(super) fn replace(&self, path: &Path, old: &str, new: &str) -> String {
        let old = old.replace('.', "[.]");
        format!(
            r#"sed -i -E "s#{old}([[:space:]\"']|\$)#{new}\1#g" {}"#,
            self.path(path)
        )
    }

    /// Takes a file away that no one can make sense of.
    pub(super) fn correct_or_remove(&self, path: &Path) -> String {
        format!("{}  # or correct it", self.remove(&[path]))
    }

    /// Has systemd change how a unit is started.
    pub(super) fn systemctl(&self, verb: &str, unit: &str) -> String {
        let unit = shell_word(unit);
        match self.outside() {
            None => format!("systemctl {verb} {unit}"),
            Some(dir) => format!("systemctl --root={dir} {verb} {unit}"),
        }
    }

    /// Runs a command of our own.
    pub(super) fn ourselves(&self, command: &str) -> String {
        match self.outside() {
            None => format!("harvester-node-agent {command}"),
            Some(dir) => format!("harvester-node-agent --root {dir} {command}"),
        }
    }

    /// Looks again, at all.
    pub(super) fn check_as_root(&self) -> String {
        format!("sudo {}", self.ourselves("bake-check"))
    }

    /// Installs us from a package in the working directory.
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

    /// Installs QEMU's guest agent from the distribution.
    pub(super) fn install_guest_agent(&self, family: Family) -> String {
        let chroot = self
            .outside()
            .map(|dir| format!("chroot {dir} "))
            .unwrap_or_default();
        let install = match family {
            Family::Debian => "apt-get install -y",
            Family::Suse => "zypper --non-interactive install",
            Family::RedHat | Family::Other => "dnf install -y",
        };
        format!("{chroot}{install} qemu-guest-agent")
    }

    fn path(&self, path: &Path) -> String {
        let path = path.strip_prefix("/").unwrap_or(path);
        shell_word(&self.dir.join(path).to_string_lossy())
    }

    /// The directory as a shell's word; `None` for the running system.
    fn outside(&self) -> Option<String> {
        (self.dir != Path::new("/")).then(|| shell_word(&self.dir.to_string_lossy()))
    }
}
