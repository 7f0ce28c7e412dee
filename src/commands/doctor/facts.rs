// SPDX-License-Identifier: Apache-2.0
//! The data that only `doctor` reads: facts that explain a problem, and that no decision of the running agent needs.
//!
//! To add a fact: a line in the file of its topic, with the check that depends on it, a read in the file of the same name in
//! `commands/doctor/read/`, and its consequences in that of `commands/doctor/judge/`.

/// Defines the facts of one topic, each with the group and the name of the check that it is read for.
macro_rules! facts {
    (
        $(#[$attribute:meta])*
        $name:ident {
            $($(#[$doc:meta])* $field:ident: $type:ty, $group:ident, $what:literal;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $crate::facts::Fact<$type>,)*
        }

        impl $name {
            /// Creates facts that are all unavailable for the same reason.
            pub fn unseen(why: &$crate::facts::Unavailable) -> Self {
                Self { $($field: $crate::facts::Fact::Failed(why.clone()),)* }
            }

            /// Returns the checks that could not be done.
            pub fn gaps(&self) -> Vec<super::Gap> {
                use $crate::catalog::Group;
                let gaps = [
                    $(super::Gap::of(Group::$group, $what, &self.$field),)*
                ];
                gaps.into_iter().flatten().collect()
            }
        }
    };
}

pub mod clock;
pub mod conflicts;
pub mod credentials;
pub mod image;
pub mod instance;
pub mod node;
pub mod pods;
pub mod rke2_charts;
pub mod servers;
pub mod system;
pub mod versions;

use crate::catalog::Group;
use crate::commands::rbac::permissions::Permission;
use crate::facts::{Fact, Unavailable};

/// All facts of an examination, in one part for each topic.
#[derive(Debug, Clone)]
pub struct Examination {
    /// The versions of the components.
    pub versions: versions::Versions,
    /// The status of our Node.
    pub node: node::NodeDetails,
    /// The pods on our Node that affect it.
    pub pods: pods::Pods,
    /// Other writers and owners of our names, labels and addresses.
    pub conflicts: conflicts::Conflicts,
    /// The types and expiration of the credential files.
    pub credentials: credentials::Credentials,
    /// The unauthenticated data of the two servers.
    pub servers: servers::Servers,
    /// The state of the clock.
    pub clock: clock::ClockFacts,
    /// The CPUs, memory, modules and shutdown settings of this VM.
    pub system: system::SystemFacts,
    /// The data that the image may have brought.
    pub image: image::Image,
    /// The permissions of the Harvester credential.
    pub permissions: Vec<Permission>,
}

impl Examination {
    /// Returns the checks that could not be done, in the order of the parts.
    pub fn gaps(&self) -> Vec<Gap> {
        [
            self.versions.gaps(),
            self.node.gaps(),
            self.pods.gaps(),
            self.conflicts.gaps(),
            self.credentials.gaps(),
            self.servers.gaps(),
            self.clock.gaps(),
            self.system.gaps(),
            self.image.gaps(),
            self.permissions
                .iter()
                .find_map(unknown)
                .into_iter()
                .collect(),
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

/// A check that could not be done: the absence of a finding has no meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The group of the check.
    pub group: Group,
    /// The name, as in "cannot see ...".
    pub what: &'static str,
    /// The reason.
    pub why: Unavailable,
}

impl Gap {
    /// Creates a gap.
    pub fn new(group: Group, what: &'static str, why: Unavailable) -> Self {
        Self { group, what, why }
    }

    /// Returns the gap of a fact, if it could not be read.
    pub fn of<T>(group: Group, what: &'static str, seen: &Fact<T>) -> Option<Self> {
        Some(Self::new(group, what, seen.why()?.clone()))
    }
}
