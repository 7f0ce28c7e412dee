// SPDX-License-Identifier: Apache-2.0
//! The status: all that the agent knows, as `/run/harvester-node-agent/status.json` holds it and `-o json` prints it.
//!
//! The shape is stable: fields are added, never renamed or removed, while `apiVersion` stays.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agent::Report;
use crate::decide::identity::{Identity, OwnVm};
use crate::decide::labels::{LeftReason, Owned};
use crate::decide::placement::{Outcome, Placement};
use crate::decide::sync::Sync;
use crate::decide::{self, Migration};
use crate::facts::Seen;
use crate::facts::permissions::Permission;
use crate::facts::who::Who;

/// `apiVersion` of the status.
pub const API_VERSION: &str = "node-agent.harvesterhci.io/v1";

/// The status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// [`API_VERSION`].
    pub api_version: String,
    /// `Status`.
    pub kind: String,
    /// When this was found out, RFC 3339.
    pub updated_at: String,
    /// Why the agent looked.
    pub trigger: String,
    /// The process.
    pub agent: AgentStatus,
    /// Who we are.
    pub identity: IdentityStatus,
    /// Where we are; missing while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementStatus>,
    /// How the labels of the Node stand.
    pub labels: LabelsStatus,
    /// The last migration that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_migration: Option<MigrationStatus>,
    /// The two credentials.
    pub credentials: CredentialsStatus,
    /// What the Harvester credential may do; only where it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<PermissionStatus>,
    /// What wakes the agent, and whether it works here.
    pub signals: Vec<SignalStatus>,
    /// Complaints, worst first.
    pub findings: Vec<FindingStatus>,
}

/// The process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// When it started, RFC 3339.
    pub started_at: String,
}

/// Who we are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    /// How the names compare: one of the verdicts of `explain verdicts`.
    pub verdict: String,
    /// What breaks because of it.
    pub consequence: String,
    /// The VM; missing while it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmStatus>,
    /// Why the VM is not known, or not read just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The names of this machine.
    pub names: Vec<NameStatus>,
    /// What was compared.
    pub evidence: Vec<EvidenceStatus>,
}

/// The VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VmStatus {
    /// Name.
    pub name: String,
    /// Namespace; missing when only the name is proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID of the VirtualMachine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// UID of the VirtualMachineInstance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_uid: Option<String>,
}

/// One name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NameStatus {
    /// Which name.
    pub kind: String,
    /// The name, control characters escaped.
    pub name: String,
    /// How it compares.
    pub verdict: String,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceStatus {
    /// What was compared.
    pub kind: String,
    /// Whether it speaks for the VM.
    pub agrees: bool,
    /// What was compared with what.
    pub detail: String,
}

/// Where we are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// The Harvester host.
    pub host: String,
    /// Its region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The source that was believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Every source, in order.
    pub sources: Vec<SourceStatus>,
}

/// What became of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// The source.
    pub source: String,
    /// `won`, `not-needed`, `off`, `stale`, `nothing`, `failed` or `illegal`.
    pub outcome: String,
    /// The same for people.
    pub detail: String,
}

/// How the labels stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelsStatus {
    /// The Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// One word; the reason of the condition `HarvesterTopologySynced` in kebab-case.
    pub state: String,
    /// Labels that we own, with the values that we wrote.
    pub owned: BTreeMap<String, String>,
    /// Labels that differ and were left alone.
    pub left: Vec<LeftStatus>,
}

/// A label that was left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftStatus {
    /// The key.
    pub key: String,
    /// The value on the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<String>,
    /// The value of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// `held`, `report-only`, `foreign`, `host-has-none` or `would-mix`.
    pub reason: String,
}

/// A migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationStatus {
    /// The host before.
    pub from: String,
    /// The host after.
    pub to: String,
    /// When the agent saw it, RFC 3339.
    pub at: String,
    /// Milliseconds from the trigger to the written labels; missing until they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// The trigger after which the labels were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
}

/// The two credentials, without their secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsStatus {
    /// For Harvester.
    pub harvester: CredentialStatus,
    /// The kubelet's.
    pub kubelet: CredentialStatus,
}

/// One credential.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialStatus {
    /// The kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    /// The API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The user that it is for, where it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The namespace in which the VM is looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// When it ends, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A request that the agent sends to Harvester.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionStatus {
    /// `verb resource.group`, with the scope.
    pub request: String,
    /// `yes`, `no`, or why it is not known.
    pub allowed: String,
    /// What it is good for.
    pub purpose: String,
}

impl PermissionStatus {
    /// The answer as text.
    pub fn new(permission: &Permission) -> Self {
        let useful = permission.useful;
        let group = if useful.group.is_empty() {
            String::new()
        } else {
            format!(".{}", useful.group)
        };
        let scope = if useful.namespaced {
            "in the VM's namespace"
        } else {
            "in the cluster"
        };
        let allowed = match &permission.allowed {
            Seen::Known(true) => "yes".to_owned(),
            Seen::Known(false) | Seen::Absent => "no".to_owned(),
            Seen::Failed(why) => why.text.clone(),
        };
        Self {
            request: format!("{} {}{group} {scope}", useful.verb, useful.resource),
            allowed,
            purpose: useful.purpose.to_owned(),
        }
    }
}

/// A signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalStatus {
    /// Its name.
    pub name: String,
    /// Whether it works here.
    pub live: bool,
    /// The same for people.
    pub detail: String,
}

/// A complaint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FindingStatus {
    /// Its code, for `explain`.
    pub code: String,
    /// `error`, `warning` or `notice`.
    pub severity: String,
    /// What it is.
    pub title: String,
    /// What was seen.
    pub seen: String,
    /// Why it matters.
    pub consequence: String,
    /// What to do.
    pub remedy: String,
    /// Since when, RFC 3339.
    pub since: String,
}

/// What a status holds beyond one round.
#[derive(Debug, Clone)]
pub struct Context {
    /// The process.
    pub agent: AgentStatus,
    /// What wakes it.
    pub signals: Vec<SignalStatus>,
    /// Since when each finding is there, by code.
    pub since: BTreeMap<String, String>,
    /// The last migration whose labels were written.
    pub last_migration: Option<MigrationStatus>,
}

impl Status {
    /// The status after a round.
    pub fn new(report: &Report<'_>, context: &Context) -> Self {
        let updated_at = decide::rfc3339(report.now.wall);
        let findings = report
            .plan
            .findings
            .iter()
            .map(|finding| {
                let entry = finding.code.entry();
                FindingStatus {
                    code: entry.name.to_owned(),
                    severity: entry.severity.as_str().to_owned(),
                    title: entry.title.to_owned(),
                    seen: finding.seen.clone(),
                    consequence: entry.consequence.to_owned(),
                    remedy: finding.remedy().to_owned(),
                    since: context.since.get(entry.name).unwrap_or(&updated_at).clone(),
                }
            })
            .collect();
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "Status".to_owned(),
            updated_at,
            trigger: report.trigger.as_str().to_owned(),
            agent: context.agent.clone(),
            identity: identity(report.identity),
            placement: report.placement.map(placement),
            labels: labels(report),
            last_migration: last_migration(report, context),
            credentials: credentials(report.who),
            permissions: Vec::new(),
            signals: context.signals.clone(),
            findings,
        }
    }
}

fn identity(identity: &Identity) -> IdentityStatus {
    let vm = match &identity.vm {
        OwnVm::Identified(vmi) | OwnVm::Remembered(vmi, _) => Some(VmStatus {
            name: vmi.name.to_string(),
            namespace: Some(vmi.namespace.to_string()),
            uid: vmi.vm_uid.clone(),
            instance_uid: Some(vmi.uid.clone()),
        }),
        OwnVm::ProvenOffline(name) => Some(VmStatus {
            name: name.to_string(),
            namespace: None,
            uid: None,
            instance_uid: None,
        }),
        OwnVm::Ambiguous(_) | OwnVm::NotFound(_) | OwnVm::Unknown(_) => None,
    };
    let reason = match &identity.vm {
        OwnVm::Identified(_) => None,
        OwnVm::ProvenOffline(_) => {
            Some("proven by the firmware UUID; Harvester was not read".to_owned())
        }
        OwnVm::Remembered(_, why) | OwnVm::Unknown(why) => Some(why.text.clone()),
        OwnVm::Ambiguous(vms) => Some(format!("several VMs fit: {}", vms.join(", "))),
        OwnVm::NotFound(text) => Some(text.clone()),
    };
    IdentityStatus {
        verdict: identity.verdict.as_str().to_owned(),
        consequence: identity.verdict.consequence().to_owned(),
        vm,
        reason,
        names: identity
            .names
            .iter()
            .map(|judged| NameStatus {
                kind: judged.kind.as_str().to_owned(),
                name: judged.name.escape_debug().to_string(),
                verdict: judged.verdict.as_str().to_owned(),
            })
            .collect(),
        evidence: identity
            .evidence
            .iter()
            .map(|item| EvidenceStatus {
                kind: item.kind.as_str().to_owned(),
                agrees: item.agrees,
                detail: item.detail.clone(),
            })
            .collect(),
    }
}

fn placement(placement: &Placement) -> PlacementStatus {
    let known = placement.known.as_ref();
    let topology = known.map(|known| &known.topology);
    PlacementStatus {
        host: placement.host.to_string(),
        region: topology
            .and_then(|topology| topology.region.as_ref())
            .map(ToString::to_string),
        zone: topology
            .and_then(|topology| topology.zone.as_ref())
            .map(ToString::to_string),
        source: known.map(|known| known.source.to_string()),
        sources: placement
            .tried
            .iter()
            .map(|tried| SourceStatus {
                source: tried.source.to_string(),
                outcome: outcome(tried.outcome).to_owned(),
                detail: tried.detail.clone(),
            })
            .collect(),
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Won => "won",
        Outcome::NotNeeded => "not-needed",
        Outcome::Off => "off",
        Outcome::Stale => "stale",
        Outcome::Nothing => "nothing",
        Outcome::Failed => "failed",
        Outcome::Illegal => "illegal",
    }
}

fn labels(report: &Report<'_>) -> LabelsStatus {
    let node = report.who.node.known();
    let owned = Owned::parse(node.and_then(|node| node.annotations.get(decide::ANNOTATION_OWNED)));
    let written =
        !report.plan.labels.owned.0.is_empty() && report.outcomes.iter().all(Result::is_ok);
    let left = report.plan.labels.left.iter().map(|left| LeftStatus {
        key: left.key.clone(),
        present: left.present.clone(),
        wanted: left.wanted.clone(),
        reason: match left.reason {
            LeftReason::Held => "held",
            LeftReason::ReportOnly => "report-only",
            LeftReason::Foreign => "foreign",
            LeftReason::HostHasNone => "host-has-none",
            LeftReason::WouldMix => "would-mix",
        }
        .to_owned(),
    });
    LabelsStatus {
        node: report
            .who
            .kubelet
            .known()
            .map(|kubelet| kubelet.node_name.to_string()),
        state: state(&report.plan.sync).to_owned(),
        owned: if written {
            report.plan.labels.owned.0.clone()
        } else {
            owned.0
        },
        left: left.collect(),
    }
}

/// The state in one word.
pub fn state(sync: &Sync) -> &'static str {
    match sync {
        Sync::Synced => "synced",
        Sync::Pending => "pending",
        Sync::HostWithoutTopology => "host-has-no-topology",
        Sync::Held => "held",
        Sync::Stale => "annotations-stale",
        Sync::Partial => "topology-partial",
        Sync::Illegal => "invalid-topology",
        Sync::Fighting { .. } => "rival-writer",
        Sync::WriteFailed(_) => "write-refused",
        Sync::NoSource => "no-source",
        Sync::NoVm { .. } => "no-vm",
    }
}

fn last_migration(report: &Report<'_>, context: &Context) -> Option<MigrationStatus> {
    let remembered = report.plan.memory.last_migration.as_ref()?;
    let same = |Migration { from, to, at }: &Migration, status: &MigrationStatus| {
        *from == status.from && *to == status.to && *at == status.at
    };
    match &context.last_migration {
        Some(written) if same(remembered, written) => Some(written.clone()),
        _ => Some(MigrationStatus {
            from: remembered.from.clone(),
            to: remembered.to.clone(),
            at: remembered.at.clone(),
            latency_ms: None,
            trigger: None,
        }),
    }
}

fn credentials(who: &Who) -> CredentialsStatus {
    let date = |seconds: Option<i64>| {
        seconds
            .and_then(|seconds| time::UtcDateTime::from_unix_timestamp(seconds).ok())
            .map(decide::rfc3339)
    };
    let harvester = match &who.harvester {
        Seen::Known(harvester) => CredentialStatus {
            kubeconfig: Some(harvester.kubeconfig.display().to_string()),
            server: Some(harvester.server.clone()),
            user: harvester.account.clone(),
            namespace: Some(harvester.namespace.to_string()),
            expires: date(harvester.expires),
            problem: None,
        },
        seen => CredentialStatus {
            problem: seen.why().map(|why| why.text.clone()),
            ..CredentialStatus::default()
        },
    };
    let kubelet = match &who.kubelet {
        Seen::Known(kubelet) => CredentialStatus {
            kubeconfig: Some(kubelet.kubeconfig.display().to_string()),
            server: Some(kubelet.server.clone()),
            user: Some(format!("system:node:{}", kubelet.node_name)),
            namespace: None,
            expires: date(kubelet.expires),
            problem: None,
        },
        seen => CredentialStatus {
            problem: seen.why().map(|why| why.text.clone()),
            ..CredentialStatus::default()
        },
    };
    CredentialsStatus { harvester, kubelet }
}
