// SPDX-License-Identifier: Apache-2.0
//! Commands to paste, and where to run them.
//!
//! A value that only the machine knows is a placeholder such as `<VM>` until it is known. A shell parses `<VM>` as a redirection
//! from a missing file, so a command with a placeholder never runs.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::sys::escape::shell_word;
use crate::sys::named::named;

/// The placeholders of a value that only the machine or the user knows, and what to put in the place of each. The login to the
/// node needs no explanation.
pub const PLACEHOLDERS: &[(&str, &str)] = &[
    ("<NODE>", "name of the Node"),
    ("<VM>", "name of the VM"),
    ("<NAMESPACE>", "namespace of the VM (kubectl get vmi -A)"),
    ("<HOST>", "name of the Harvester host"),
    // The server of the API that the finding is about.
    ("<SERVER>", "URL of the server"),
    (
        "<HARVESTER_API>",
        "https://VIP:6443 (VIP: kubectl -n harvester-system get configmap vip -o yaml)",
    ),
    // The kubeconfig that the finding is about.
    ("<KUBECONFIG>", "path of the kubeconfig"),
    ("<NODE_ADDRESS>", "address of this node"),
    (
        "<USER>",
        "user of this node with sudo without a password, or root",
    ),
    ("<CLUSTER>", "name of the guest cluster"),
    ("<NAME>", "hostname to set"),
    ("<KEY>", "key of the label"),
    ("<SECRET>", "name of the Secret"),
    ("<REGION>", "label value"),
    ("<ZONE>", "label value"),
];

named! {
    /// The place where a command is run.
    CommandPlace {
        /// This VM, as root.
        Vm = "vm",
        /// Where kubectl has an administrator's kubeconfig of the guest cluster.
        Guest = "guest-cluster",
        /// Where kubectl has an administrator's kubeconfig of Harvester: a workstation, to and from which files are copied.
        Harvester = "harvester",
        /// Where the image is built.
        Image = "image",
    }
}

impl CommandPlace {
    /// Returns the heading for commands.
    pub fn title(self) -> &'static str {
        match self {
            Self::Vm => "on this node, as root",
            Self::Guest => "as guest cluster administrator",
            Self::Harvester => "as Harvester administrator",
            Self::Image => "where the image is built",
        }
    }
}

/// A command of one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixCommand {
    /// The place where it is run.
    #[serde(rename = "runOn")]
    pub place: CommandPlace,
    /// The text, with a placeholder of [`PLACEHOLDERS`] for each value that only the machine or the user knows.
    pub text: Cow<'static, str>,
}

impl FixCommand {
    /// Creates a command of the catalog.
    pub(super) const fn of_catalog(place: CommandPlace, text: &'static str) -> Self {
        let text = Cow::Borrowed(text);
        Self { place, text }
    }

    /// Creates a command with values of its own.
    pub fn new(place: CommandPlace, text: String) -> Self {
        let text = Cow::Owned(text);
        Self { place, text }
    }

    /// Returns the text with all values in it that `known` returns for a placeholder.
    ///
    /// A value that must be quoted keeps its placeholder: behind `ssh`, two shells parse it. A command with values of its own is
    /// complete; in it, a text such as `<NODE>` is part of a name.
    pub fn filled<'a>(&self, known: impl Fn(&str) -> Option<&'a str>) -> String {
        match self.text {
            Cow::Borrowed(text) => filled(text, known),
            Cow::Owned(ref text) => text.clone(),
        }
    }
}

/// Returns a text of the catalog with all values in it that `known` returns for a placeholder, unless they must be quoted.
pub(super) fn filled<'a>(text: &str, known: impl Fn(&str) -> Option<&'a str>) -> String {
    let known = |name: &str| known(name).filter(|value| shell_word(value) == *value);
    let names = PLACEHOLDERS.iter();
    names.fold(text.to_owned(), |text, (name, _)| match known(name) {
        Some(value) => text.replace(name, value),
        None => text,
    })
}
