// SPDX-License-Identifier: Apache-2.0
//! The content of an image that is being built.
//!
//! Every path is relative to the root of the image, with all symbolic links resolved there, so that commands can use it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::commands::bake_check::rules::FaultCode;

use crate::facts::distribution::Unshareable;
use crate::facts::guest_agent::{Enablement, Family};

/// The facts about one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Files and directories at the places in the catalog.
    pub traces: Vec<Trace>,
    /// The files with a machine-id, and their content.
    pub machine_ids: Vec<ImageTextFile>,
    /// `/etc/hostname`.
    pub hostname: Option<ImageTextFile>,
    /// The default hostnames of the distribution (`ID`, `DEFAULT_HOSTNAME` of os-release(5)).
    pub default_hostnames: Vec<String>,
    /// Settings of RKE2, K3s and the kubelet that must be unique to one machine, and their files.
    pub unshareable: Vec<(ImagePlace, Unshareable)>,
    /// The QEMU guest agent.
    pub guest_agent: Service,
    /// The agent itself.
    pub agent: Service,
    /// Lines of our configuration that name one VM or one Node.
    pub pinned: Vec<Pinned>,
    /// The errors in our configuration, one line each.
    pub configuration_faults: Vec<String>,
    /// The paths that could not be checked.
    pub unreadable: Vec<Unreadable>,
    /// The distribution family, which determines the package manager.
    pub family: Family,
}

/// A file or directory at a place in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The fault that it is.
    pub code: FaultCode,
    /// The path.
    pub place: ImagePlace,
}

/// The path of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePlace {
    /// The path itself, which may be a symbolic link. Commands remove this path, never the target of a link.
    pub path: PathBuf,
    /// The target, if the path is a symbolic link.
    pub leads_to: Option<PathBuf>,
}

impl ImagePlace {
    /// Returns the target of the link, or the path itself.
    pub fn target(&self) -> &Path {
        self.leads_to.as_ref().unwrap_or(&self.path)
    }
}

impl From<&str> for ImagePlace {
    fn from(path: &str) -> Self {
        Self {
            path: path.into(),
            leads_to: None,
        }
    }
}

impl fmt::Display for ImagePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(formatter)?;
        match &self.leads_to {
            Some(target) => write!(formatter, " (a link to {})", target.display()),
            None => Ok(()),
        }
    }
}

/// A file or directory that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The error message.
    pub line: String,
    /// The path.
    pub path: PathBuf,
    /// Whether root could read it.
    pub is_denied: bool,
}

/// A file with one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageTextFile {
    /// The file.
    pub place: ImagePlace,
    /// The content, without leading and trailing whitespace.
    pub text: String,
}

/// A program and its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Whether the program is installed.
    pub has_program: bool,
    /// The unit; the first of its names that exists.
    pub unit: Option<UnitFile>,
}

/// A unit as described by its files, for a systemd that is not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitFile {
    /// Its name.
    pub name: String,
    /// Whether the unit is masked: a link to `/dev/null`, or an empty file.
    pub is_masked: bool,
    /// How the unit is started at boot. `Static` only if a udev rule or a unit of the distribution starts it.
    pub enablement: Enablement,
}

/// A line of our configuration that is valid for one machine only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The key.
    pub key: String,
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
}
