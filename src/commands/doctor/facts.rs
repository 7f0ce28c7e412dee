// SPDX-License-Identifier: Apache-2.0
//! What only `doctor` reads: facts that explain a trouble, and that no decision of the running agent needs.
//!
//! To add a fact: a field as [`Fact`] in the file of its question, a line in its `gaps`, a read in the file of the same
//! name in `commands/doctor/read/`, and what follows from it in that of `commands/doctor/judge/`.

pub mod clock;
pub mod conflicts;
pub mod credentials;
pub mod image;
pub mod instance;
pub mod node;
pub mod pods;
pub mod rke2_charts;
pub mod servers;
pub mod versions;

use crate::catalogue::Group;
use crate::facts::permissions::Permission;
use crate::facts::{Fact, Unavailable};

/// All of it, a part for each question.
#[derive(Debug, Clone)]
pub struct Examination {
    /// Which versions meet here.
    pub versions: versions::Versions,
    /// What our Node says of itself.
    pub node: node::NodeDetails,
    /// What runs on our Node that acts on it.
    pub pods: pods::Pods,
    /// Who else has a hand in our names, labels and addresses.
    pub conflicts: conflicts::Conflicts,
    /// What the credential files are, and how long they last.
    pub credentials: credentials::Credentials,
    /// What the two servers show to anyone.
    pub servers: servers::Servers,
    /// Whether the clock can be believed.
    pub clock: clock::ClockFacts,
    /// What the image brought.
    pub image: image::Image,
    /// What the Harvester credential may do; nothing where it was not asked.
    pub permissions: Vec<Permission>,
}

impl Examination {
    /// What could not be checked, in the order of the parts.
    pub fn gaps(&self) -> Vec<Gap> {
        [
            self.versions.gaps(),
            self.node.gaps(),
            self.pods.gaps(),
            self.conflicts.gaps(),
            self.credentials.gaps(),
            self.servers.gaps(),
            self.clock.gaps(),
            self.image.gaps(),
            self.permissions.iter().filter_map(unknown).collect(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn unknown(permission: &Permission) -> Option<Gap> {
    let what = "permissions of the Harvester credential";
    Gap::of(Group::HarvesterApi, what, &permission.allowed)
}

/// Something that could not be checked: nothing may be concluded from its silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Where it belongs.
    pub group: Group,
    /// What it is, as in "cannot see ...".
    pub what: &'static str,
    /// Why not.
    pub why: Unavailable,
    /// How much it matters.
    pub need: Need,
}

/// Whether something is missed when it cannot be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Without it, something that is wrong may not be found.
    Usual,
    /// Good to know, and more than a credential usually may read.
    Optional,
}

impl Gap {
    /// The gap that a fact leaves, if it could not be read.
    pub fn of<T>(group: Group, what: &'static str, seen: &Fact<T>) -> Option<Self> {
        let why = seen.why()?.clone();
        let need = Need::Usual;
        Some(Self {
            group,
            what,
            why,
            need,
        })
    }

    /// The same of something that is not missed.
    pub fn optional(self) -> Self {
        let need = Need::Optional;
        Self { need, ..self }
    }
}
