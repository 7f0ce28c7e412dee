// SPDX-License-Identifier: Apache-2.0
//! Commands to paste: what is typed, and where.
//!
//! What only the machine knows stands as `<VM>` until it is known. A shell takes `<VM>` for a file to read, finds none,
//! and so runs nothing that still has a gap in it.

use std::borrow::Cow;

use crate::sys::escape::shell_word;

/// Where a command is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandPlace {
    /// In this VM, as root.
    Vm,
    /// Where kubectl has an administrator's kubeconfig of the guest cluster.
    GuestCluster,
    /// Where kubectl has an administrator's kubeconfig of Harvester: on a workstation, to and from which files are copied.
    Harvester,
    /// Where the image is built.
    Image,
}

impl CommandPlace {
    /// As a heading over commands.
    pub fn title(self) -> &'static str {
        match self {
            Self::Vm => "on this node, as root",
            Self::GuestCluster => "kubectl for the guest cluster",
            Self::Harvester => "kubectl for Harvester",
            Self::Image => "where the image is built",
        }
    }

    /// Its name in JSON.
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
/// Harvester. A kubeconfig may be JSON, because JSON is YAML.
pub const PRINT_KUBECONFIG: &str = concat!(
    "kubectl -n <NAMESPACE> get secret harvester-node-agent-token -o go-template='",
    r#"{"apiVersion":"v1","kind":"Config","current-context":"harvester","clusters":[{"name":"harvester","cluster":{"server":"'"#,
    "<HARVESTER_API>",
    r#"'","certificate-authority-data":"{{index .data "ca.crt"}}"}}],"users":[{"name":"agent","user":{"token":"{{.data.token | base64decode}}"}}],"#,
    r#""contexts":[{"name":"harvester","context":{"cluster":"harvester","user":"agent","namespace":"{{.data.namespace | base64decode}}"}}]}'"#,
    " | install -m 0600 /dev/stdin harvester.kubeconfig.new && test -s harvester.kubeconfig.new && mv harvester.kubeconfig.new harvester.kubeconfig",
);

/// One line to paste.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixCommand {
    /// Where.
    pub place: CommandPlace,
    /// What, with a [`CommandWord`] in angle brackets for what only the machine knows.
    pub text: Cow<'static, str>,
}

impl FixCommand {
    /// The text with all names in it that are `known`, each as one word for the shell.
    pub fn filled<'a>(&self, known: impl Fn(CommandWord) -> Option<&'a str>) -> String {
        CommandWord::ALL
            .iter()
            .fold(self.text.to_string(), |text, name| match known(*name) {
                Some(value) => text.replace(name.placeholder(), &shell_word(value)),
                None => text,
            })
    }
}

/// What only the machine, or only its reader, knows.
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
    /// The address at which the reader logs in to this VM.
    NodeAddress,
    /// The value of a label, for the reader to choose.
    Region,
    /// The value of a label, for the reader to choose.
    Zone,
}

impl CommandWord {
    /// All of them.
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

    /// How it stands in a command.
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
