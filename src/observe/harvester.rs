// SPDX-License-Identifier: Apache-2.0
//! Reads the VirtualMachineInstances that this machine might be.

mod listed;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::config::Settings;
use crate::decide::identity::{is_certain, is_likely, may_be};
use crate::facts::distribution::Distribution;
use crate::facts::names::{Namespace, VmName, short};
use crate::facts::observation::{Candidates, Coverage, Observation};
use crate::facts::scheduled_events::VirtualMachine;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::wire::kubeapi::{Client, Error, INSTANCES, Kind, VIRTUAL_MACHINES};

use super::unavailable::why;
use listed::ListedVmi;

/// The number of remaining instances of a list that are read one by one; more are read in pages of whole objects.
const READ_ONE_BY_ONE: usize = 16;

/// The maximum number of instances with our hardware, or likely ones, that are read by name: two prove that the match is
/// ambiguous, and other users may create any number.
const READ_MAX: usize = 4;

/// The names that our VM may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names(BTreeSet<VmName>);

impl Names {
    /// Reports whether an instance of this name is relevant even if it is not ours.
    pub fn contains(&self, name: &VmName) -> bool {
        self.0.contains(name)
    }

    /// Creates the set from the configured name, the name found in an earlier run, and all local names of this machine.
    pub fn new(settings: &Settings, earlier: Option<&VmName>, facts: &Observation) -> Self {
        let machine = &facts.machine;
        let local = [
            &machine.kernel_hostname,
            &machine.static_hostname,
            &machine.platform_hostname,
        ];
        let local = local
            .into_iter()
            .filter_map(|name| name.known())
            .flat_map(|name| [name.to_ascii_lowercase(), short(name)]);
        let node = facts.kubelet.known();
        let node = node.map(|kubelet| kubelet.node_name.to_string());
        // A kubelet that starts may get the name of another VM.
        let configured = facts.distributions.iter();
        let configured = configured.filter_map(Distribution::configured_node_name);
        let configured = configured.map(|name| name.trim().to_ascii_lowercase());
        let node = node.into_iter().chain(configured);
        let node = node.flat_map(|name| [short(&name), name]);
        let names = local
            .chain(node)
            .filter_map(|name| VmName::parse(&name).ok());
        let mut all = BTreeSet::new();
        all.extend(settings.harvester.vm.iter().chain(earlier).cloned());
        all.extend(names);
        Self(all)
    }
}

/// The policy for listing all instances of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListPolicy {
    /// Never: no other instance can be ours, or the namespace was listed recently.
    Never,
    /// Only after this delay, because many machines may be in the same situation.
    After(Duration),
    /// Now, if the names do not lead to our instance.
    IfNeeded,
    /// Always: the search is for other instances with our names or our hardware.
    Always,
}

/// The list of the namespace in one search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// It was not requested.
    Unsent,
    /// It was requested, and failed or timed out.
    Failed,
    /// It succeeded, or it is certain that it cannot.
    Done,
}

/// A search for our own instance.
///
/// First each known name is read, which costs the cluster almost nothing and is sufficient on nearly every machine. An instance is
/// accepted as ours only by its hardware or because the configuration names it; a name alone requires a list, which may show an
/// instance whose hardware matches better.
///
/// A list requests metadata first. It has no firmware UUID, serial or MAC address, so it excludes no instance; but it shows which
/// instances are likely: the owner's UID is that of `spec.providerID`, or the firmware UUID is derived from the name. The rest is
/// read one by one or, if there are many, in pages of whole objects.
#[derive(Debug)]
pub struct Search<'a> {
    /// The client.
    pub client: &'a Client,
    /// The namespace to search.
    pub namespace: &'a Namespace,
    /// The names that our instance may have.
    pub names: &'a Names,
    /// Instances that had our hardware in the last list.
    pub duplicates: &'a BTreeSet<VmName>,
    /// The facts that prove which instance is ours.
    pub facts: &'a Observation,
    /// The VM that the configuration names.
    pub pinned: Option<&'a VmName>,
    /// The policy for listing the namespace.
    pub list: ListPolicy,
}

impl Search<'_> {
    /// Reads the candidates. `list` reports what became of the list, even if the search is canceled.
    pub async fn run(&self, list: &mut List) -> Fact<Candidates> {
        let mut unreadable = None;
        let named = match self.named(&mut unreadable).await {
            Ok(named) => named,
            Err(error) => return failed(&error),
        };
        let is_found = named.iter().any(|vmi| self.is_ours(vmi));
        let known = |vmis, coverage| Fact::Known(Candidates { vmis, coverage });
        match self.list {
            ListPolicy::IfNeeded if !is_found => {}
            ListPolicy::Always => {}
            ListPolicy::After(left) if !is_found => {
                let seen = unreadable.map_or_else(
                    || "no VM with a name of this node is certainly this one".to_owned(),
                    |error| why(&error).text,
                );
                let text = format!(
                    "{seen}; the VMs of the namespace are listed in {} s",
                    left.as_secs()
                );
                let why = Unavailable {
                    retry_after: Some(left),
                    ..Unavailable::new(UnavailableKind::NotAsked, text)
                };
                return Fact::Failed(why);
            }
            _ => {
                if let Some(error) = unreadable.as_ref().filter(|_| !is_found) {
                    return failed(error);
                }
                return known(named, Coverage::Listed);
            }
        }
        *list = List::Failed;
        let candidates;
        let mut likely = None;
        (candidates, *list) = match self.listed(&named, &mut likely).await {
            Ok(others) => {
                let vmis = named.into_iter().chain(others).collect();
                (known(vmis, Coverage::Namespace), List::Done)
            }
            // Anyone who may create VMs can make the list too large. To request it again would load the API for nothing.
            Err(error) if matches!(error.kind, Kind::Forbidden | Kind::TooLarge) => {
                (known(named, Coverage::Named), List::Done)
            }
            // Ours was read by its name: only the search for others is repeated.
            Err(_) if is_found => (known(named, Coverage::Listed), List::Failed),
            Err(error) => (failed(&error), List::Failed),
        };
        let is_ours = |seen: &Candidates| seen.vmis.iter().any(|vmi| self.is_ours(vmi));
        if candidates.known().is_some_and(is_ours) {
            return candidates;
        }
        // The instance that cannot be parsed may be ours. One with another name is found again only by the list.
        if likely.is_some() {
            *list = List::Failed;
        }
        let unreadable = unreadable.or(likely);
        unreadable.map_or(candidates, |error| failed(&error))
    }

    /// Reports whether an instance is certainly this machine.
    fn is_ours(&self, vmi: &Vmi) -> bool {
        is_certain(self.facts, vmi, self.pinned)
    }

    async fn read(&self, name: &VmName) -> Result<Result<Option<Vmi>, Error>, Error> {
        get_foreign(self.client, self.namespace, name).await
    }

    /// Reads the instances with our names. One that cannot be parsed is `unreadable`. It is an error if none of the names may be read: an
    /// instance that cannot be read by its name is of no use on a list.
    async fn named(&self, unreadable: &mut Option<Error>) -> Result<Vec<Vmi>, Error> {
        let (mut vmis, mut refused, mut is_readable) = (Vec::new(), None, false);
        let duplicates = self.duplicates.difference(&self.names.0).take(READ_MAX);
        for name in self.names.0.iter().chain(duplicates) {
            match self.read(name).await {
                // With `resourceNames`, every other name is forbidden.
                Err(error) if error.kind == Kind::Forbidden => refused = Some(error),
                read => {
                    is_readable = true;
                    vmis.extend(keep(read?, unreadable));
                }
            }
        }
        match refused {
            Some(error) if !is_readable => Err(error),
            _ => Ok(vmis),
        }
    }

    /// Reads the other instances of the namespace that may be ours. A likely one that cannot be parsed is `unreadable`.
    async fn listed(
        &self,
        named: &[Vmi],
        unreadable: &mut Option<Error>,
    ) -> Result<Vec<Vmi>, Error> {
        let collection = INSTANCES.within(self.namespace);
        let list = self.client.list_metadata::<ListedVmi>(&collection).await?;
        let is_named = |uid: &str| named.iter().any(|vmi| vmi.uid == uid);
        let mut likely = Vec::new();
        let mut rest = Vec::new();
        // The list is freed before more is read.
        for ListedVmi { name, uid, owner } in list {
            if is_named(&uid) {
                continue;
            }
            match is_likely(self.facts, &name, owner.as_deref()) {
                true => likely.push(name),
                false => rest.push(name),
            }
        }
        // Anyone who may create VMs can make any number of them likely. Those that are not read here may be ours.
        let mut more = likely.split_off(likely.len().min(READ_MAX));
        let mut vmis = Vec::new();
        for name in &likely {
            vmis.extend(keep(self.read(name).await?, unreadable));
        }
        let is_found = more.is_empty() && vmis.iter().any(|vmi| self.is_ours(vmi));
        if is_found && self.list != ListPolicy::Always {
            return Ok(vmis);
        }
        if rest.len() + more.len() <= READ_ONE_BY_ONE {
            for name in &rest {
                vmis.extend(self.read(name).await?.ok().flatten());
            }
        } else {
            let new = |mut vmi: Vmi| {
                let is_read = |read: &Vmi| read.uid == vmi.uid;
                if is_named(&vmi.uid) || vmis.iter().any(is_read) {
                    return None;
                }
                // There may be thousands, and others created them.
                if !may_be(self.facts, &vmi) {
                    vmi.active_pods.clear();
                }
                Some(vmi)
            };
            let others = self.client.list(&collection, &[], new).await?;
            vmis.extend(others);
            // The list skips what cannot be parsed.
            let read: BTreeSet<&VmName> = vmis.iter().map(|vmi| &vmi.name).collect();
            more.retain(|name| !read.contains(name));
            more.truncate(READ_MAX);
        }
        for name in &more {
            vmis.extend(keep(self.read(name).await?, unreadable));
        }
        Ok(vmis)
    }
}

/// A search that found our own instance. While its inputs do not change, reading that one instance is sufficient.
#[derive(Debug)]
pub struct OwnInstance {
    /// The instance.
    pub vmi: Vmi,
    /// The other candidates.
    pub others: Candidates,
    /// The names that were searched for.
    pub names: Names,
}

/// Reads the instance that was found before, which is all that a migration changes. The other candidates are read again if
/// `with_others`: one may be gone. Returns `None` if the instance is gone or has another UID: a new search is then necessary.
pub async fn read_own(
    client: &Client,
    found: &OwnInstance,
    with_others: bool,
) -> Option<Fact<Candidates>> {
    let OwnInstance {
        vmi: own, others, ..
    } = found;
    let path = INSTANCES.within(&own.namespace).named(&own.name);
    let mut vmis = match client.get::<Vmi>(&path).await {
        Ok(read) if read.uid == own.uid => vec![read],
        Ok(_) => return None,
        Err(error) if error.kind == Kind::Absent => return None,
        Err(error) => return Some(failed(&error)),
    };
    for other in others.vmis.iter().filter(|other| other.name != own.name) {
        if !with_others {
            vmis.push(other.clone());
            continue;
        }
        match get_foreign(client, &own.namespace, &other.name).await {
            Ok(read) => vmis.extend(read.unwrap_or_else(|_| Some(other.clone()))),
            Err(error) => return Some(failed(&error)),
        }
    }
    let coverage = others.coverage;
    Some(Fact::Known(Candidates { vmis, coverage }))
}

/// Reads the VirtualMachine of an instance.
pub async fn read_vm(client: &Client, vmi: &Vmi) -> Fact<VirtualMachine> {
    let path = VIRTUAL_MACHINES.within(&vmi.namespace).named(&vmi.name);
    match client.get(&path).await {
        Ok(vm) => Fact::Known(vm),
        Err(error) if matches!(error.kind, Kind::Absent | Kind::NotFound) => Fact::Absent,
        Err(error) => Fact::Failed(why(&error)),
    }
}

/// Reads an instance that may be another user's. It is the inner error if it cannot be parsed or is too large.
async fn get_foreign(
    client: &Client,
    namespace: &Namespace,
    name: &VmName,
) -> Result<Result<Option<Vmi>, Error>, Error> {
    let path = INSTANCES.within(namespace).named(name);
    match client.get_foreign::<Vmi>(&path).await {
        Ok(read) => Ok(read.map(Some)),
        Err(error) if error.kind == Kind::Absent => Ok(Ok(None)),
        Err(error) if error.kind == Kind::TooLarge => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

/// Returns an instance that was read. One that cannot be parsed is `unreadable`: another user may have given it one of our names, or
/// our owner, and it must not keep us from finding ours.
fn keep(read: Result<Option<Vmi>, Error>, unreadable: &mut Option<Error>) -> Option<Vmi> {
    read.unwrap_or_else(|error| {
        *unreadable = Some(error);
        None
    })
}

fn failed(error: &Error) -> Fact<Candidates> {
    let reason = why(error);
    if matches!(error.kind, Kind::Absent | Kind::NotFound) {
        let text = format!(
            "{}: the server has no KubeVirt API, so it is not Harvester, or a proxy responds in its place",
            reason.text
        );
        return Fact::failed(UnavailableKind::Refused, text);
    }
    Fact::Failed(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_instance_in_a_list_only_name_uid_and_owner_are_kept_whatever_its_maps_hold() {
        let entries: Vec<String> = (0..20_000).map(|key| format!("\"{key}\":\"\"")).collect();
        let map = format!("{{{}}}", entries.join(","));
        let text = format!(
            r#"{{"metadata":{{"name":"a","uid":"u","labels":{map},"annotations":{map},"managedFields":[{map}],
            "ownerReferences":[{{"kind":"K","uid":"x"}},{{"kind":"VirtualMachine","uid":"vm"}}]}}}}"#
        );
        let listed = ListedVmi {
            name: VmName::parse("a").unwrap(),
            uid: "u".to_owned(),
            owner: Some("vm".to_owned()),
        };
        assert_eq!(serde_json::from_str::<ListedVmi>(&text).unwrap(), listed);
    }
}
