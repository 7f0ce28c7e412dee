// SPDX-License-Identifier: Apache-2.0
//! What lies in the tree of an image that is being built.
//!
//! Every path is as seen inside the tree, with each symbolic link on its way resolved there: a command may name it.

use std::path::PathBuf;

use crate::bake::Code;

use super::distribution::Secret;
use super::guest_agent::{Enablement, Family};

/// The facts of one reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Things that lie in one of the places of the catalogue.
    pub traces: Vec<Trace>,
    /// The files that hold a machine-id, and what they hold.
    pub machine_ids: Vec<TextFile>,
    /// `/etc/hostname`.
    pub hostname: Option<TextFile>,
    /// The names that the distribution itself gives (`ID`, `DEFAULT_HOSTNAME` of os-release(5)).
    pub default_hostnames: Vec<String>,
    /// Secrets in the configuration of RKE2 and K3s.
    pub secrets: Vec<Secret>,
    /// QEMU's guest agent.
    pub guest_agent: Service,
    /// Ourselves.
    pub agent: Service,
    /// Lines of our own configuration that name one VM or one Node.
    pub pinned: Vec<Pinned>,
    /// What is wrong with our own configuration, one line each.
    pub configuration_faults: Vec<String>,
    /// What could not be looked at and why, one line each.
    pub unreadable: Vec<String>,
    /// Whose packages this system has.
    pub family: Family,
}

/// A thing that lies in a place of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// What it is.
    pub code: Code,
    /// Where it is.
    pub path: PathBuf,
}

/// A file of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// The file.
    pub path: PathBuf,
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
    /// Whether somebody forbade to start it: a link to `/dev/null`, or an empty file.
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
