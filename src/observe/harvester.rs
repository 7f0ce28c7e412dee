// SPDX-License-Identifier: Apache-2.0
//! Reads the VirtualMachineInstances that this machine might be.

use std::collections::BTreeSet;

use crate::config::Settings;
use crate::facts::machine::Machine;
use crate::facts::names::{Namespace, VmName, short};
use crate::facts::vmi::Vmi;
use crate::facts::who::{Candidates, Coverage, Kubelet};
use crate::facts::{Seen, WhyKind};
use crate::few::Few;
use crate::kubeapi::{Class, Client, Error, Selectors};

use super::node::Freshness;
use super::why;

/// The names under which our VM might be found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names(BTreeSet<VmName>);

impl Names {
    /// Whether an instance of this name concerns us even if it is not ours.
    pub fn contains(&self, name: &VmName) -> bool {
        self.0.contains(name)
    }

    /// The configured name, the one found in an earlier run, and every name that this machine goes by.
    pub fn new(
        settings: &Settings,
        earlier: Option<&VmName>,
        machine: &Machine,
        kubelet: Option<&Kubelet>,
    ) -> Self {
        let local = [
            &machine.kernel_hostname,
            &machine.static_hostname,
            &machine.platform_hostname,
        ];
        let local = local
            .into_iter()
            .filter_map(|name| name.known())
            .map(|name| short(name));
        let node = kubelet.map(|kubelet| kubelet.node_name.as_str());
        let node = node
            .into_iter()
            .flat_map(|name| [name.to_owned(), short(name)]);
        let names = local
            .chain(node)
            .filter_map(|name| VmName::parse(&name).ok());
        Self(
            settings
                .harvester
                .vm
                .iter()
                .chain(earlier)
                .cloned()
                .chain(names)
                .into_set(),
        )
    }
}

/// The path of the instances of a namespace.
pub fn collection(namespace: &Namespace) -> String {
    format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances")
}

/// Reads all candidates: only a full list shows a double.
pub async fn search(client: &Client, namespace: &Namespace, names: &Names) -> Seen<Candidates> {
    let collection = collection(namespace);
    match client.list::<Vmi>(&collection, &Selectors::default()).await {
        Ok(list) => Seen::Known(Candidates {
            vmis: list.items,
            coverage: Coverage::Namespace,
        }),
        // A namespace may also hold more than is read at once.
        Err(error)
            if error.class() == Class::Forbidden || matches!(error, Error::TooLarge { .. }) =>
        {
            named(client, &collection, names, &error).await
        }
        Err(error) => failed(&error),
    }
}

/// Whether the instances beside our own are read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// They are: one may be gone.
    Again,
    /// They are not: a migration cannot wait for them.
    AsKnown,
}

/// Reads the one that was found before, which is all that a migration changes.
/// `None` when it is gone or is another instance now: then everything is to be searched again.
pub async fn read_own(
    client: &Client,
    own: &Vmi,
    known: &Candidates,
    others: Others,
    freshness: Freshness,
) -> Option<Seen<Candidates>> {
    let collection = collection(&own.namespace);
    let mut vmis = match get(client, &collection, &own.name, freshness).await {
        Ok(Some(vmi)) if vmi.uid == own.uid => vec![vmi],
        Ok(_) => return None,
        Err(error) => return Some(failed(&error)),
    };
    for other in known.vmis.iter().filter(|other| other.name != own.name) {
        match others {
            Others::AsKnown => vmis.push(other.clone()),
            Others::Again => match get(client, &collection, &other.name, freshness).await {
                Ok(vmi) => vmis.extend(vmi),
                Err(error) => return Some(failed(&error)),
            },
        }
    }
    Some(Seen::Known(Candidates {
        vmis,
        coverage: known.coverage,
    }))
}

/// Without leave to list, asks for each name.
async fn named(
    client: &Client,
    collection: &str,
    names: &Names,
    refused: &Error,
) -> Seen<Candidates> {
    let mut vmis = Vec::new();
    let mut readable = false;
    for name in &names.0 {
        match get(client, collection, name, Freshness::Newest).await {
            Ok(vmi) => {
                readable = true;
                vmis.extend(vmi);
            }
            // With `resourceNames`, every other name is forbidden.
            Err(error) if error.class() == Class::Forbidden => {}
            Err(error) => return failed(&error),
        }
    }
    if readable {
        Seen::Known(Candidates {
            vmis,
            coverage: Coverage::Named,
        })
    } else {
        failed(refused)
    }
}

async fn get(
    client: &Client,
    collection: &str,
    name: &VmName,
    freshness: Freshness,
) -> Result<Option<Vmi>, Error> {
    let path = format!("{collection}/{name}");
    match freshness.get::<Vmi>(client, &path).await {
        Ok(vmi) => Ok(Some(vmi).filter(|vmi| vmi.name == *name)),
        Err(error) if error.is_absence() => Ok(None),
        Err(error) => Err(error),
    }
}

fn failed(error: &Error) -> Seen<Candidates> {
    let reason = why(error);
    if error.class() == Class::NotFound {
        let text = format!(
            "{}: what answers there serves no KubeVirt, so it is not Harvester, or something in between answers for it",
            reason.text
        );
        return Seen::failed(WhyKind::Refused, text);
    }
    Seen::Failed(reason)
}
