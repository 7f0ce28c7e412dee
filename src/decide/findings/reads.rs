// SPDX-License-Identifier: Apache-2.0
//! Findings for credentials that cannot be used, and for failed requests to the two APIs.

use crate::catalog::{
    Api, Code, CommandPlace, ETCD_NODE_DELETED, Finding, FixCommand, NODE_DELETED,
    USE_SERVICE_ACCOUNT,
};
use crate::decide::failure_code;
use crate::decide::input::Scene;
use crate::facts::names::NodeName;
use crate::facts::observation::Observation;
use crate::facts::placement::Source;
use crate::facts::{Fact, UnavailableKind};

/// The step for a kubelet kubeconfig that is a directory.
const DIRECTORY: &str = "It is a directory. If a setting names it, correct that. Otherwise a container that mounts a missing \
                         file may have created it: remove it if it is empty (`rmdir`). RKE2 and K3s then write the file when \
                         their service restarts, kubeadm when the node joins.";

/// The step for a Harvester kubeconfig that is a device, a socket, a link to itself or larger than any: none is replaced.
const NOT_A_FILE: &str = "Find out what created it, and move it away, or correct the setting that names it. Then create the kubeconfig with \
                          the other commands.";

/// Adds findings for credentials that cannot be used.
pub(super) fn credentials(seen: Scene<'_>, findings: &mut Vec<Finding>) {
    for (api, setting) in [
        (Api::Harvester, &seen.settings.harvester.kubeconfig),
        (Api::Guest, &seen.settings.guest.kubeconfig),
    ] {
        if let Some(why) = seen.observation.credential_failure(api)
            && let Some(code) = failure_code::credential(api, why.kind)
            && (code != Code::HarvesterCredentialMissing || !needs_no_credential(seen))
        {
            let finding = Finding::new(code, why.text.clone());
            findings.push(match (why.kind, api) {
                (UnavailableKind::Missing, _) if setting.is_some() => misnamed(finding, api),
                (UnavailableKind::Directory, Api::Guest) => finding.with_remedy(DIRECTORY),
                (UnavailableKind::Malformed, Api::Harvester) => finding
                    .with_remedy(NOT_A_FILE)
                    .with_all_commands(not_a_directory()),
                _ => finding,
            });
        }
    }
}

/// Returns the commands for what is neither a possible kubeconfig nor a directory: those for a directory, which show and replace it.
fn not_a_directory() -> Vec<FixCommand> {
    let commands = Code::CredentialIsDirectory.entry().commands.iter();
    let commands = commands.filter(|command| !command.text.starts_with("rmdir"));
    commands.cloned().collect()
}

/// Replaces the steps for a kubeconfig that does not exist by those for a setting that names it.
fn misnamed(finding: Finding, api: Api) -> Finding {
    let create = match api {
        Api::Harvester => USE_SERVICE_ACCOUNT,
        Api::Guest => "If this node has not joined yet, wait: the kubelet needs its file first.",
    };
    let steps = [
        "The configuration of the agent names this file, so no other path is searched. If the kubeconfig is at another path, correct the \
         setting; if that is a standard path, remove it. `config show` prints its file and line. Then reload the service.",
        "Otherwise put the kubeconfig at the path of the setting. If there is none yet, use the next step.",
        create,
    ];
    let first = [
        "harvester-node-agent config show",
        "systemctl reload harvester-node-agent",
    ];
    let first = first.map(|text| FixCommand::new(CommandPlace::Vm, text.to_owned()));
    let others = finding.commands().iter().cloned();
    let commands = first.into_iter().chain(others).collect();
    let steps = steps.map(str::to_owned).into();
    finding.with_steps(steps).with_all_commands(commands)
}

/// Reports whether the host is known without Harvester, and its topology is in our configuration or in the labels of the pod. A
/// credential is not needed then.
fn needs_no_credential(seen: Scene<'_>) -> bool {
    let known = seen
        .placement
        .and_then(|placement| placement.known.as_ref());
    known.is_some_and(|known| matches!(known.source, Source::HostsTable | Source::PodInfo))
}

/// Adds findings for failed requests to the two APIs. `existed`: the name of our Node when it was last read.
pub(super) fn answers(
    observation: &Observation,
    existed: Option<&NodeName>,
    findings: &mut Vec<Finding>,
) {
    findings.extend(request(observation, Api::Harvester));
    // A skipped read is not an error.
    let metrics = observation.host_metrics.why();
    if let Some(why) = metrics.filter(|why| why.kind != UnavailableKind::NotAsked) {
        let text = why.text.as_str();
        findings.push(Finding::new(Code::DownwardMetricsUnusable, text));
    }
    if let Some(why) = observation.pod_info.why() {
        findings.push(Finding::new(Code::PodInfoUnusable, why.text.clone()));
    }
    if let (Some(kubelet), Fact::Absent) = (observation.kubelet.known(), &observation.node) {
        let text = format!("no Node `{}` at {}", kubelet.node_name, kubelet.server);
        let mut finding = Finding::new(Code::NodeMissing, text);
        if existed == Some(&kubelet.node_name) {
            finding.seen.push_str(": it existed and was deleted");
            finding = finding.with_steps(AFTER_DELETION.map(str::to_owned).into());
        }
        findings.push(finding);
    }
    findings.extend(request(observation, Api::Guest));
}

/// Returns the finding for a failed request to an API. Without a credential there is none.
fn request(observation: &Observation, api: Api) -> Option<Finding> {
    let why = observation.read_failure(api)?;
    let code = failure_code::request(api, why.kind);
    let code = code.filter(|_| observation.credential_failure(api).is_none())?;
    let finding = Finding::new(code, why.text.clone());
    Some(match code {
        Code::HarvesterUnauthorized => unauthorized(finding, observation),
        _ => finding,
    })
}

/// The steps after our Node was deleted.
const AFTER_DELETION: [&str; 3] = [
    NODE_DELETED,
    ETCD_NODE_DELETED,
    "If it is deleted again, compare its name with that of the VM: a cloud provider deletes a Node without a VM of the same name.",
];

/// The label with which Kubernetes 1.29 and later invalidates a token without expiry (`LegacyServiceAccountTokenCleanUp`). The
/// server does not say so, since 401 never has a reason.
pub const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Names the Secret of the token, which may be deleted or labeled, and how to make the token valid again.
fn unauthorized(mut finding: Finding, observation: &Observation) -> Finding {
    let harvester = observation.harvester.known();
    let Some(secret) = harvester.and_then(|harvester| harvester.secret.as_ref()) else {
        return finding;
    };
    let (namespace, name) = (&secret.namespace, &secret.name);
    let fix = finding.code.entry().fix.iter();
    let steps = fix.map(|step| {
        if step.contains(INVALID_SINCE) {
            format!(
                "Check Secret {name} on Harvester. If it has the label {INVALID_SINCE}, Kubernetes 1.29 or later has invalidated the \
                 token after one year without use, and the second command makes it valid again."
            )
        } else {
            (*step).to_owned()
        }
    });
    let steps: Vec<String> = steps.collect();
    let on_harvester = |text| FixCommand::new(CommandPlace::Harvester, text);
    let first = [
        format!("kubectl -n {namespace} get secret {name} --show-labels"),
        format!("kubectl -n {namespace} label secret {name} {INVALID_SINCE}-  # only if it has it"),
    ];
    let others = finding.commands().iter();
    let others = others.filter(|command| !command.text.contains(INVALID_SINCE));
    let commands = first.map(on_harvester).into_iter().chain(others.cloned());
    let commands = commands.collect();
    let secret = format!("; the token is that of Secret {namespace}/{name}");
    finding.seen.push_str(&secret);
    finding.with_steps(steps).with_all_commands(commands)
}
