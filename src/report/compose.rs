// SPDX-License-Identifier: Apache-2.0
//! Builds the status from one round of the loop.

use std::collections::BTreeMap;

use super::problem::Problem;
use super::status::{
    API_VERSION, AgentStatus, CredentialStatus, CredentialsStatus, EventSourceStatus,
    GuestAgentStatus, IdentityStatus, LabelsStatus, MigrationHintStatus, PlacementStatus, Status,
    VmStatus,
};
use crate::agent::Round;
use crate::agent::source_board::SourceState;
use crate::agent::state::{LastMigration, Seconds};
use crate::catalog::kebab;
use crate::catalog::{Api, Code, Finding, FindingKey, Group, Severity};
use crate::decide::fast_poll::WindowEnd;
use crate::decide::identity::{JudgedName, OwnVm};
use crate::decide::labels::Owned;
use crate::decide::placement::Placement;
use crate::facts::Fact;
use crate::facts::clock::rfc3339;
use crate::facts::node::ANNOTATION_OWNED;
use crate::facts::topology::{LabelValue, REGION, ZONE};
use crate::sys::escape::one_line;

/// The maximum length of a name of this machine, in characters: more than the kernel or DNS allow.
const NAME_MAX: usize = 253;

/// The parts of a status that outlive one round.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The process.
    pub agent: AgentStatus,
    /// The event sources.
    pub event_sources: BTreeMap<&'static str, SourceState>,
    /// The time at which each finding was first observed.
    pub since: BTreeMap<FindingKey, String>,
    /// The last migration hint and its outcome.
    pub last_migration_hint: Option<MigrationHintStatus>,
}

impl Status {
    /// Creates the status after a round.
    pub fn new(round: &Round, context: &Context) -> Self {
        let last_update_time = rfc3339(round.now.wall);
        let last_migration = round.plan.memory.last_migration.clone();
        let status = Self {
            api_version: API_VERSION.to_owned(),
            kind: "Status".to_owned(),
            last_update_time,
            trigger: round.trigger().as_str().to_owned(),
            agent: context.agent.clone(),
            identity: identity(round),
            placement: round.placement.as_ref().map(placement),
            labels: labels(round),
            registration: round.plan.registration.clone(),
            last_migration: last_migration.map(LastMigration::from),
            last_migration_hint: context.last_migration_hint.clone(),
            scheduled_event: None,
            credentials: credentials(round),
            permissions: Vec::new(),
            qemu_guest_agent: guest_agent(round),
            event_sources: event_sources(&context.event_sources),
            findings: Vec::new(),
        };
        let findings = round.plan.findings.iter().map(|finding| Problem {
            first_observed_time: context.since.get(&finding.key()).cloned(),
            ..Problem::new(finding, |word| status.word(word, finding.api()))
        });
        let findings = findings.collect();
        Self { findings, ..status }
    }
}

fn identity(round: &Round) -> IdentityStatus {
    let identity = &round.identity;
    let vm = match &identity.vm {
        OwnVm::Identified(vmi) | OwnVm::Remembered(vmi, _) => Some(VmStatus {
            name: vmi.name.to_string(),
            namespace: Some(vmi.namespace.to_string()),
            uid: vmi.vm_uid.clone(),
            instance_uid: Some(vmi.uid.clone()),
        }),
        OwnVm::ProvenOffline(vm) => Some(VmStatus {
            name: vm.name.to_string(),
            namespace: vm.namespace.as_ref().map(ToString::to_string),
            uid: None,
            instance_uid: vm.instance_uid.clone(),
        }),
        OwnVm::Ambiguous(_) | OwnVm::NotFound(_) | OwnVm::Unknown(_) => None,
    };
    let message = match &identity.vm {
        OwnVm::Identified(_) => None,
        OwnVm::ProvenOffline(_) => Some(format!(
            "verified by {}; Harvester was not read",
            identity.proof()
        )),
        OwnVm::Remembered(_, why) | OwnVm::Unknown(why) => Some(why.text.clone()),
        OwnVm::Ambiguous(vms) => Some(format!("several VMs match: {}", vms.join(", "))),
        OwnVm::NotFound(text) => Some(text.clone()),
    };
    let names = identity.names.iter().map(|judged| JudgedName {
        name: one_line(&judged.name, NAME_MAX).into_owned(),
        ..judged.clone()
    });
    IdentityStatus {
        state: kebab(round.plan.identity.reason),
        impact: identity.verdict.consequence().to_owned(),
        vm,
        expected_name: identity.expected.as_ref().map(ToString::to_string),
        message,
        copied_from: None,
        names: names.collect(),
        evidence: identity.evidence.clone(),
    }
}

fn placement(placement: &Placement) -> PlacementStatus {
    let known = placement.known.as_ref();
    let value = |key| placement.value(key).map(LabelValue::to_string);
    PlacementStatus {
        host: placement.host.to_string(),
        host_source: placement.host_source.to_owned(),
        region: value(REGION),
        zone: value(ZONE),
        topology_source: known.map(|known| known.source.to_string()),
        sources: placement.tried.clone(),
    }
}

/// Returns the labels that we own, with the values that the Node has.
fn owned(round: &Round) -> BTreeMap<String, String> {
    let Some(node) = round.observation.node.known() else {
        return BTreeMap::new();
    };
    let mut present = node.labels.clone();
    let owned = Owned::parse(node.annotations.get(ANNOTATION_OWNED));
    present.retain(|key, _| owned.0.contains_key(key));
    present
}

fn labels(round: &Round) -> LabelsStatus {
    let kubelet = round.observation.kubelet.known();
    LabelsStatus {
        node: kubelet.map(|kubelet| kubelet.node_name.to_string()),
        state: round.plan.sync.name(),
        owned: owned(round),
        skipped_labels: round.plan.labels.left.clone(),
    }
}

fn credentials(round: &Round) -> CredentialsStatus {
    let observation = &round.observation;
    let unknown = |api, is_about: fn(&Finding) -> bool| {
        let is_error = |finding: &&Finding| finding.code.entry().severity == Severity::Error;
        let mut errors = round.plan.findings.iter().filter(is_error);
        let error = errors.find(|finding| is_about(finding));
        let why = observation.credential_failure(api);
        CredentialStatus {
            error: why.map(|why| why.text.clone()),
            finding: error.map(|finding| finding.code),
            ..CredentialStatus::default()
        }
    };
    let date = |seconds: Option<i64>| {
        let date = time::UtcDateTime::from_unix_timestamp(seconds?).ok()?;
        Some(rfc3339(date))
    };
    let mut harvester = unknown(Api::Harvester, |finding| {
        finding.api() == Some(Api::Harvester)
    });
    if let Fact::Known(known) = &observation.harvester {
        harvester = CredentialStatus {
            kubeconfig: Some(known.kubeconfig.display().to_string()),
            server: Some(known.server.clone()),
            user: known.account.clone(),
            namespace: Some(known.namespace.to_string()),
            expiration_time: date(known.expires),
            ..harvester
        };
    }
    let mut kubelet = unknown(Api::Guest, |finding| {
        let of_api = [
            Code::GuestApiUnauthorized,
            Code::GuestApiForbidden,
            Code::GuestApiTlsError,
        ];
        finding.group() == Group::KubeletCredential || of_api.contains(&finding.code)
    });
    if let Fact::Known(known) = &observation.kubelet {
        let node = || format!("system:node:{}", known.node_name);
        kubelet = CredentialStatus {
            kubeconfig: Some(known.kubeconfig.display().to_string()),
            server: Some(known.server.clone()),
            user: Some(known.account.clone().unwrap_or_else(node)),
            expiration_time: date(known.expires),
            ..kubelet
        };
    }
    CredentialsStatus { harvester, kubelet }
}

fn event_sources(states: &BTreeMap<&str, SourceState>) -> Vec<EventSourceStatus> {
    let sources = states.iter().map(|(name, state)| EventSourceStatus {
        name: (*name).to_owned(),
        active: state.is_active,
        detail: state.detail.clone(),
    });
    sources.collect()
}

fn guest_agent(round: &Round) -> GuestAgentStatus {
    let agent = round.observation.guest_agent.clone();
    let unit = agent.and_then(|agent| agent.unit);
    GuestAgentStatus {
        state: round.plan.guest_agent.name(),
        unit: unit.known().map(|unit| unit.name.clone()),
        unit_state: unit.known().map(|unit| unit.shown.clone()),
        error: unit.why().map(|why| why.text.clone()),
    }
}

impl MigrationHintStatus {
    /// Creates the outcome of a fast-poll window that ended at `at`.
    pub fn new(window_end: &WindowEnd, at: String) -> Self {
        Self {
            trigger: window_end.trigger.as_str().to_owned(),
            outcome: window_end.outcome.as_str().to_owned(),
            time: at,
            duration_seconds: Seconds::of(window_end.took),
            reads: window_end.reads,
        }
    }
}
