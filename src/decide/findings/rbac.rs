// SPDX-License-Identifier: Apache-2.0
//! Steps that grant the missing permissions to the service account of our credential.

use crate::decide::permissions;
use crate::facts::names::ServiceAccount;
use crate::facts::observation::Observation;

/// Returns the service account of the Harvester credential, if its token contains one.
pub fn service_account(observation: &Observation) -> Option<ServiceAccount> {
    ServiceAccount::of_user(observation.harvester.known()?.account.as_deref()?)
}

/// Returns the steps that allow the credential to read its host. The commands create the same objects as the output of `rbac`, so
/// that users can apply one after the other.
pub(super) fn host_rbac(observation: &Observation) -> Vec<String> {
    let mut steps = vec![print_rbac()];
    if let Some(account) = service_account(observation) {
        let name = permissions::name(&account);
        steps.push(format!(
            "Or allow only reading hosts: `kubectl create clusterrole {name} --verb=get --resource=nodes`, then `kubectl create \
             clusterrolebinding {name} --clusterrole={name} --serviceaccount={account}`."
        ));
    }
    steps.push(
        "Or label the VM harvesterhci.io/creator=docker-machine-driver-harvester, drain the Node and restart the VM, so that Harvester annotates it."
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
        "Or allow only reading VMs: `kubectl -n {namespace} create role {name} --verb=get,list,watch \
         --resource=virtualmachineinstances.kubevirt.io`, then `kubectl -n {namespace} create rolebinding {name} --role={name} \
         --serviceaccount={account}`."
    ));
    steps
}

fn print_rbac() -> String {
    "Apply the output of `harvester-node-agent rbac` on Harvester, as an administrator.".to_owned()
}
