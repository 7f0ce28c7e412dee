// SPDX-License-Identifier: Apache-2.0
//! What lets our credential read what it may not, filled in for its service account.

use crate::decide::permissions;
use crate::facts::names::ServiceAccount;
use crate::facts::observation::Observation;

/// The service account of the Harvester credential, where its token tells.
pub fn service_account(observation: &Observation) -> Option<ServiceAccount> {
    ServiceAccount::of_user(observation.harvester.known()?.account.as_deref()?)
}

/// Returns the steps that allow the credential to read its host. The commands create what `rbac` prints for it, so that either
/// can follow the other.
pub(super) fn host_rbac(observation: &Observation) -> Vec<String> {
    let mut steps = vec![print_rbac()];
    if let Some(account) = service_account(observation) {
        let name = permissions::name(&account);
        steps.push(format!(
            "Or, to allow only reading hosts: `kubectl create clusterrole {name} --verb=get --resource=nodes`"
        ));
        steps.push(format!(
            "and `kubectl create clusterrolebinding {name} --clusterrole={name} --serviceaccount={account}`."
        ));
    }
    steps.push(
        "Or label the VM harvesterhci.io/creator=docker-machine-driver-harvester and restart it, so that Harvester annotates it."
            .to_owned(),
    );
    steps
}

/// Returns the steps that allow the credential to read its VM.
pub fn vmi_rbac(observation: &Observation) -> Vec<String> {
    let mut steps = vec![print_rbac()];
    let (Some(account), Some(harvester)) =
        (service_account(observation), observation.harvester.known())
    else {
        return steps;
    };
    let (name, namespace) = (permissions::name(&account), &harvester.namespace);
    steps.push(format!(
        "Or, to allow only reading VMs: `kubectl -n {namespace} create role {name} --verb=get,list,watch \
         --resource=virtualmachineinstances.kubevirt.io`"
    ));
    steps.push(format!(
        "and `kubectl -n {namespace} create rolebinding {name} --role={name} --serviceaccount={account}`."
    ));
    steps
}

fn print_rbac() -> String {
    "Apply the output of `harvester-node-agent rbac` on Harvester, as an administrator.".to_owned()
}
