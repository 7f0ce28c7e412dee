// SPDX-License-Identifier: Apache-2.0
//! Commands to paste, and where to run them.
//!
//! A value that only the machine knows is a placeholder such as `<VM>` until it is known. A shell parses `<VM>` as a redirection
//! from a missing file, so a command with a placeholder never runs.

use std::borrow::Cow;

use crate::sys::escape::shell_word;

/// The place where a command is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
            Self::GuestCluster => "kubectl for the guest cluster",
            Self::Harvester => "kubectl for Harvester",
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

/// Prints a kubeconfig with the token of the service account that `rbac --create-account` creates, as an administrator of
/// Harvester. A kubeconfig may be JSON, because JSON is valid YAML.
pub const PRINT_KUBECONFIG: &str = concat!(
    "kubectl -n <NAMESPACE> get secret harvester-node-agent-token -o go-template='",
    r#"{"apiVersion":"v1","kind":"Config","current-context":"harvester","clusters":[{"name":"harvester","cluster":{"server":"'"#,
    "<HARVESTER_API>",
    r#"'","certificate-authority-data":"{{index .data "ca.crt"}}"}}],"users":[{"name":"agent","user":{"token":"{{.data.token | base64decode}}"}}],"#,
    r#""contexts":[{"name":"harvester","context":{"cluster":"harvester","user":"agent","namespace":"{{.data.namespace | base64decode}}"}}]}'"#,
    " | install -m 0600 /dev/stdin harvester.kubeconfig.new && test -s harvester.kubeconfig.new && mv harvester.kubeconfig.new harvester.kubeconfig",
);

/// A command of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixCommand {
    /// The place where it is run.
    pub place: CommandPlace,
    /// The text, with a [`CommandWord`] in angle brackets for each value that only the machine knows.
    pub text: Cow<'static, str>,
}

impl FixCommand {
    /// Returns the text with all `known` values in it, each quoted as one shell word.
    pub fn filled<'a>(&self, known: impl Fn(CommandWord) -> Option<&'a str>) -> String {
        CommandWord::ALL
            .iter()
            .fold(self.text.to_string(), |text, name| match known(*name) {
                Some(value) => text.replace(name.placeholder(), &shell_word(value)),
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
            Self::HarvesterApi => "https://VIP:6443",
            Self::Kubeconfig => "path of the kubeconfig",
            Self::NodeAddress => "address of this node",
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
            Self::Region => "<REGION>",
            Self::Zone => "<ZONE>",
        }
    }
}
