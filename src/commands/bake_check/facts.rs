// SPDX-License-Identifier: Apache-2.0
//! What lies in the tree of an image that is being built.
//!
//! Every path is as seen inside the tree, with each symbolic link on its way resolved there: a command may name it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::commands::bake_check::rules::FaultCode;

use crate::facts::distribution::Unshareable;
use crate::facts::guest_agent::{Enablement, Family};

/// The facts of one reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Things that lie in one of the places of the catalogue.
    pub traces: Vec<Trace>,
    /// The files that hold a machine-id, and what they hold.
    pub machine_ids: Vec<ImageTextFile>,
    /// `/etc/hostname`.
    pub hostname: Option<ImageTextFile>,
    /// The names that the distribution itself gives (`ID`, `DEFAULT_HOSTNAME` of os-release(5)).
    pub default_hostnames: Vec<String>,
    /// Settings of RKE2, K3s and the kubelet that only one machine may have, and where their files are.
    pub unshareable: Vec<(ImagePlace, Unshareable)>,
    /// QEMU's guest agent.
    pub guest_agent: Service,
    /// Ourselves.
    pub agent: Service,
    /// Lines of our own configuration that name one VM or one Node.
    pub pinned: Vec<Pinned>,
    /// What is wrong with our own configuration, one line each.
    pub configuration_faults: Vec<String>,
    /// What could not be checked.
    pub unreadable: Vec<Unreadable>,
    /// Whose packages this system has.
    pub family: Family,
}

/// A thing that lies in a place of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// What it is.
    pub code: FaultCode,
    /// Where it is.
    pub place: ImagePlace,
}

/// Where a thing lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePlace {
    /// Its name, which may be a symbolic link. What is removed is this, and never what lies behind a link.
    pub path: PathBuf,
    /// Where the link leads.
    pub leads_to: Option<PathBuf>,
}

impl ImagePlace {
    /// The file itself.
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
    /// What and why.
    pub line: String,
    /// Where.
    pub path: PathBuf,
    /// Whether root could check it.
    pub is_denied: bool,
}

/// A file of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageTextFile {
    /// The file.
    pub place: ImagePlace,
    /// What it holds, without white space around it.
    pub text: String,
}

/// A program and its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Whether the program is there.
    pub has_program: bool,
    /// The unit, under the first name that has one.
    pub unit: Option<UnitFile>,
}

/// A unit as its files describe it to a systemd that does not run yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitFile {
    /// Its name.
    pub name: String,
    /// Whether someone forbade to start it: a link to `/dev/null`, or an empty file.
    pub is_masked: bool,
    /// Who starts it at boot. `Static` only when a rule of udev or a unit of the distribution does.
    pub enablement: Enablement,
}

/// A line of our own configuration that fits one machine only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The key.
    pub key: String,
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
}
