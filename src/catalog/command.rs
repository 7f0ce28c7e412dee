// SPDX-License-Identifier: Apache-2.0
//! Commands to paste, and where to run them.
//!
//! A value that only the machine knows is a placeholder such as `<VM>` until it is known. A shell parses `<VM>` as a redirection
//! from a missing file, so a command with a placeholder never runs.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::sys::escape::shell_word;

/// The place where a command is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandPlace {
    /// This VM, as root.
    Vm,
    /// Where kubectl has an administrator's kubeconfig of the guest cluster.
    GuestCluster,
    /// Where kubectl has an administrator's kubeconfig of Harvester: a workstation, to and from which files are copied.
    Harvester,
    /// Where the image is built.
    Image,
}

impl CommandPlace {
    /// Returns the heading for commands.
    pub fn title(self) -> &'static str {
        match self {
            Self::Vm => "on this node, as root",
            Self::GuestCluster => "as guest cluster administrator",
            Self::Harvester => "as Harvester administrator",
            Self::Image => "where the image is built",
        }
    }

    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::GuestCluster => "guest-cluster",
            Self::Harvester => "harvester",
            Self::Image => "image",
        }
    }
}

/// A command of one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixCommand {
    /// The place where it is run.
    #[serde(rename = "runOn")]
    pub place: CommandPlace,
    /// The text, with a [`CommandWord`] in angle brackets for each value that only the machine knows.
    pub text: Cow<'static, str>,
}

impl FixCommand {
    /// Returns the text with all `known` values in it.
    ///
    /// A value that must be quoted keeps its placeholder: behind `ssh`, two shells parse it. A command with values of its own is
    /// complete; in it, a text such as `<NODE>` is part of a name.
    pub fn filled<'a>(&self, known: impl Fn(CommandWord) -> Option<&'a str>) -> String {
        let Cow::Borrowed(text) = self.text else {
            return self.text.to_string();
        };
        let known = |name: CommandWord| known(name).filter(|value| shell_word(value) == *value);
        let names = CommandWord::ALL.iter();
        names.fold(text.to_owned(), |text, name| match known(*name) {
            Some(value) => text.replace(name.placeholder(), value),
            None => text,
        })
    }
}

/// A value that only the machine or the user knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandWord {
    /// Our Node.
    Node,
    /// Our VM.
    Vm,
    /// The namespace of our VM.
    Namespace,
    /// The host that runs our VM.
    Host,
    /// The address of the API that the finding is about.
    Server,
    /// The address of the Harvester API, `https://VIP:6443`.
    HarvesterApi,
    /// The kubeconfig that the finding is about.
    Kubeconfig,
    /// The address of this VM for SSH.
    NodeAddress,
    /// The user for SSH.
    User,
    /// The name of the guest cluster.
    Cluster,
    /// The region label, which the user chooses.
    Region,
    /// The zone label, which the user chooses.
    Zone,
}

impl CommandWord {
    /// All values.
    pub const ALL: &[Self] = &[
        Self::Node,
        Self::Vm,
        Self::Namespace,
        Self::Host,
        Self::Server,
        Self::HarvesterApi,
        Self::Kubeconfig,
        Self::NodeAddress,
        Self::User,
        Self::Cluster,
        Self::Region,
        Self::Zone,
    ];

    /// Returns what to put in its place.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Node => "name of the Node",
            Self::Vm => "name of the VM",
            Self::Namespace => "namespace of the VM (kubectl get vmi -A)",
            Self::Host => "name of the Harvester host",
            Self::Server => "URL of the server",
            Self::HarvesterApi => {
                "https://VIP:6443 (VIP: kubectl -n harvester-system get configmap vip -o yaml)"
            }
            Self::Kubeconfig => "path of the kubeconfig",
            Self::NodeAddress => "address of this node",
            Self::User => "user of this node with sudo without a password",
            Self::Cluster => "name of the guest cluster",
            Self::Region | Self::Zone => "label value",
        }
    }

    /// Returns the placeholder in a command.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Node => "<NODE>",
            Self::Vm => "<VM>",
            Self::Namespace => "<NAMESPACE>",
            Self::Host => "<HOST>",
            Self::Server => "<SERVER>",
            Self::HarvesterApi => "<HARVESTER_API>",
            Self::Kubeconfig => "<KUBECONFIG>",
            Self::NodeAddress => "<NODE_ADDRESS>",
            Self::User => "<USER>",
            Self::Cluster => "<CLUSTER>",
            Self::Region => "<REGION>",
            Self::Zone => "<ZONE>",
        }
    }
}
