// SPDX-License-Identifier: Apache-2.0
//! Whether an image may be shipped: what was seen in its tree, against the catalogue of faults.

mod remedy;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use remedy::Tree;

use crate::bake::{Code, Fault};
use crate::facts::distribution::SecretForm;
use crate::facts::guest_agent::Enablement;
use crate::facts::image::{Image, Service};

/// Names that are nobody's, besides the distribution's own: systemd's and the installers'.
const ANONYMOUS: [&str; 4] = ["", "localhost", "localhost.localdomain", "linux"];

/// What systemd takes for no machine-id yet (machine-id(5), "First Boot Semantics").
const NO_MACHINE_ID: [&str; 2] = ["", "uninitialized"];

/// Things that are named in one fault; there may be thousands.
const NAMED_MAX: usize = 8;

/// Every fault, in the order of the catalogue. The remedies are commands for a shell and apply to `tree`.
pub fn judge(image: &Image, tree: &Tree) -> Vec<Fault> {
    let fault = |code, seen: String, remedy| Fault { code, seen, remedy };
    let mut faults = installed(image, tree);
    for line in &image.configuration_faults {
        let remedy = tree.ourselves("config check");
        faults.push(fault(Code::ConfigurationFaults, line.clone(), remedy));
    }
    for file in &image.machine_ids {
        if !NO_MACHINE_ID.contains(&file.text.as_str()) {
            let seen = format!("{} holds an id", file.path.display());
            faults.push(fault(Code::MachineId, seen, tree.empty(&file.path)));
        }
    }
    if let Some(file) = &image.hostname
        && !is_nobodys(&file.text, &image.default_hostnames)
    {
        let seen = format!("{} says {}", file.path.display(), file.text);
        faults.push(fault(Code::Hostname, seen, tree.empty(&file.path)));
    }
    for pinned in &image.pinned {
        let seen = format!(
            "`{}` in {} line {}",
            pinned.key,
            pinned.path.display(),
            pinned.line
        );
        let remedy = tree.comment_out(&pinned.path, pinned.line);
        faults.push(fault(Code::ConfigurationOfOneVm, seen, remedy));
    }
    for secret in &image.secrets {
        let seen = format!("`{}` in {}", secret.key, secret.origin.display());
        let remedy = match &secret.form {
            SecretForm::File(path) => tree.remove(&[path]),
            SecretForm::Json => tree.remove(&[&secret.origin]),
            SecretForm::Yaml => tree.delete_yaml(&secret.origin, &secret.key),
            SecretForm::Variable => tree.delete_variable(&secret.origin, &secret.key),
        };
        faults.push(fault(Code::ClusterToken, seen, remedy));
    }
    for code in Code::ALL {
        let traces = image.traces.iter().filter(|trace| trace.code == *code);
        let paths: Vec<&Path> = traces.map(|trace| trace.path.as_path()).collect();
        if !paths.is_empty() {
            faults.push(fault(*code, names(&paths), tree.remove(&paths)));
        }
    }
    for line in &image.unreadable {
        faults.push(fault(Code::Unreadable, line.clone(), tree.check_as_root()));
    }
    faults.sort_by_key(|fault| fault.code);
    faults
}

/// What each machine needs.
fn installed(image: &Image, tree: &Tree) -> Vec<Fault> {
    let agent = service(
        &image.agent,
        [Code::AgentMissing, Code::AgentMasked, Code::AgentNotEnabled],
        ["/usr/bin/harvester-node-agent", "ours"],
        tree.install_ourselves(image.family),
        tree,
    );
    let guest_agent = service(
        &image.guest_agent,
        [
            Code::GuestAgentMissing,
            Code::GuestAgentMasked,
            Code::GuestAgentNotEnabled,
        ],
        [
            "/usr/bin/qemu-ga or /usr/sbin/qemu-ga",
            "QEMU's guest agent",
        ],
        tree.install_guest_agent(image.family),
        tree,
    );
    agent.into_iter().chain(guest_agent).collect()
}

/// The one thing that is in the way of a service.
fn service(
    service: &Service,
    [missing, masked, not_enabled]: [Code; 3],
    [program, name]: [&str; 2],
    install: String,
    tree: &Tree,
) -> Option<Fault> {
    let fault = |code, seen, remedy| Some(Fault { code, seen, remedy });
    if !service.has_program {
        return fault(missing, format!("there is no {program}"), install);
    }
    let Some(unit) = &service.unit else {
        return fault(missing, format!("there is no unit of {name}"), install);
    };
    if unit.is_masked {
        let seen = format!("{} is masked", unit.name);
        return fault(masked, seen, tree.systemctl("unmask", &unit.name));
    }
    if unit.enablement == Enablement::Disabled {
        let seen = format!("no other unit wants {}", unit.name);
        return fault(not_enabled, seen, tree.systemctl("enable", &unit.name));
    }
    None
}

/// Whether a machine with this name can be any machine.
fn is_nobodys(name: &str, defaults: &[String]) -> bool {
    ANONYMOUS.contains(&name) || defaults.iter().any(|default| default == name)
}

fn names(paths: &[&Path]) -> String {
    let named: Vec<String> = paths
        .iter()
        .take(NAMED_MAX)
        .map(|path| path.display().to_string())
        .collect();
    let rest = match paths.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.join(", ") + &rest
}
