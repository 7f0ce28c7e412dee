// SPDX-License-Identifier: Apache-2.0
//! What lets our credential read what it may not, filled in for its service account.

use crate::decide::access;
use crate::facts::names::ServiceAccount;
use crate::facts::who::Who;

/// The service account of the Harvester credential, where its token tells.
pub fn service_account(who: &Who) -> Option<ServiceAccount> {
    ServiceAccount::of_user(who.harvester.known()?.account.as_deref()?)
}

/// What lets our credential read its host. The commands make what `rbac` prints for it, so that either can follow the other.
pub(super) fn host_rbac(who: &Who) -> String {
    let label = "label the VM harvesterhci.io/creator=docker-machine-driver-harvester and restart it, so that Harvester \
                 annotates it";
    let Some(account) = service_account(who) else {
        return format!("{}; or {label}", print_rbac());
    };
    let name = access::name(&account);
    format!(
        "{}; or only what reads hosts: kubectl create clusterrole {name} --verb=get --resource=nodes; \
         kubectl create clusterrolebinding {name} --clusterrole={name} --serviceaccount={account}; or {label}",
        print_rbac()
    )
}

/// What lets our credential read its VM.
pub fn vmi_rbac(who: &Who) -> String {
    let (Some(account), Some(harvester)) = (service_account(who), who.harvester.known()) else {
        return print_rbac();
    };
    let (name, namespace) = (access::name(&account), &harvester.namespace);
    format!(
        "{}; or only what reads VMs: kubectl -n {namespace} create role {name} --verb=get,list,watch \
         --resource=virtualmachineinstances.kubevirt.io; kubectl -n {namespace} create rolebinding {name} --role={name} \
         --serviceaccount={account}",
        print_rbac()
    )
}

fn print_rbac() -> String {
    "on Harvester, as an administrator, pass to `kubectl apply -f -` what `harvester-node-agent rbac` prints on this machine"
        .to_owned()
}
