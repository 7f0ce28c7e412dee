// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::decide::fixtures::World;
use crate::facts::{Fact, Unavailable, UnavailableKind};

fn finding(code: Code) -> Finding {
    Finding::new(code, "seen")
}

fn service(holder: Option<&str>) -> Service {
    Service {
        holder: holder.map(str::to_owned),
        is_unknown: false,
        lacks_namespaces: false,
        updated_at: None,
        findings: vec![finding(Code::LabelConflict), finding(Code::HostnameDiffers)],
        since: BTreeMap::from([(Code::HostnameDiffers, "2026-11-21T10:00:00Z".to_owned())]),
    }
}

#[test]
fn what_an_examination_found_hides_its_consequences_in_the_round() {
    let round = finding(Code::NoTopologySource);
    let examination = finding(Code::HarvesterForbidden);
    let diagnosis = Diagnosis::new(&[round, examination.clone()], &[]);
    assert_eq!(diagnosis.findings().collect::<Vec<_>>(), [&examination]);
}

#[test]
fn each_finding_stands_in_its_group_worst_first() {
    let found = [
        finding(Code::CredentialExposed).about(Group::KubeletCredential),
        finding(Code::KubeletCredentialInvalid),
    ];
    let diagnosis = Diagnosis::new(&found, &[]);
    let groups: Vec<Group> = diagnosis
        .sections
        .iter()
        .map(|section| section.group)
        .collect();
    assert_eq!(groups, Group::ALL);
    let section = diagnosis
        .sections
        .iter()
        .find(|section| !section.findings.is_empty())
        .unwrap();
    let codes: Vec<Code> = section
        .findings
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(section.group, Group::KubeletCredential);
    assert_eq!(
        codes,
        [Code::KubeletCredentialInvalid, Code::CredentialExposed]
    );
}

#[test]
fn the_outcome_is_the_worst_that_is_known() {
    let of = |codes: &[Code], unanswered| {
        let findings: Vec<Finding> = codes.iter().copied().map(finding).collect();
        Diagnosis::new(&findings, &[]).outcome(unanswered)
    };
    let (notice, warning, error) = (
        Code::HostWithoutTopology,
        Code::HarvesterUnreachable,
        Code::LabelConflict,
    );
    assert_eq!(of(&[], false), DoctorOutcome::Ok);
    assert_eq!(of(&[notice], false), DoctorOutcome::Ok);
    assert_eq!(of(&[notice, warning], false), DoctorOutcome::Warnings);
    assert_eq!(of(&[warning], true), DoctorOutcome::Unreachable);
    assert_eq!(of(&[warning, error], true), DoctorOutcome::Errors);
    assert_eq!(
        of(&[error, Code::ConfigInvalid], true),
        DoctorOutcome::Configuration
    );
    assert_eq!(
        of(&[Code::ConfigInvalid, Code::NotKubevirt], true),
        DoctorOutcome::NotKubevirt
    );
}

#[test]
fn an_agent_that_does_not_run_is_found_and_its_old_complaints_count_no_more() {
    let (running, gone) = (service(Some("process 1")), service(None));
    assert_eq!(running.finding(), None);
    assert_eq!(
        gone.finding().map(|finding| finding.code),
        Some(Code::AgentNotRunning)
    );
    assert_eq!(
        running.since(Code::HostnameDiffers),
        Some("2026-11-21T10:00:00Z")
    );
    assert_eq!(running.since(Code::LabelConflict), None);
    assert_eq!(gone.since(Code::HostnameDiffers), None);
}

#[test]
fn what_needs_a_memory_is_reported_by_the_running_agent() {
    let codes = |service: &Service, found: &[Finding], privileges| -> Vec<Code> {
        service
            .reported(found, privileges)
            .map(|reported| reported.code)
            .collect()
    };
    let (running, gone) = (service(Some("process 1")), service(None));
    assert_eq!(codes(&running, &[], Privileges::All), [Code::LabelConflict]);
    assert_eq!(
        codes(&running, &[], Privileges::Unprivileged),
        [Code::LabelConflict, Code::HostnameDiffers]
    );
    let found = [finding(Code::HostnameDiffers)];
    assert_eq!(
        codes(&running, &found, Privileges::Unprivileged),
        [Code::LabelConflict]
    );
    assert_eq!(codes(&gone, &[], Privileges::Unprivileged), []);
}

#[test]
fn what_only_root_may_read_is_a_gap_for_others_and_a_finding_for_root() {
    let mut world = World::new();
    let why = Unavailable::new(
        UnavailableKind::Forbidden,
        "not allowed to read `/kubeconfig`",
    );
    world.observation.harvester = Fact::Failed(why.clone());
    world.observation.candidates = Fact::Failed(Unavailable::new(
        UnavailableKind::NotAsked,
        why.text.clone(),
    ));
    let (identity, placement) = (world.identity(), world.placement());
    world.observation.host_metrics = Fact::Failed(why.clone());
    let metrics = finding(Code::DownwardMetricsUnusable);
    let invalid = finding(Code::HarvesterCredentialInvalid);
    for (privileges, is_gap) in [(Privileges::All, false), (Privileges::Unprivileged, true)] {
        let gaps = gaps(
            &world.observation,
            &identity,
            placement.as_ref(),
            privileges,
        );
        let is_reported = gaps
            .iter()
            .any(|gap| gap.group == Group::HarvesterCredential);
        assert_eq!(
            (
                is_reported,
                is_hidden(&invalid, &world.observation, privileges)
            ),
            (is_gap, is_gap)
        );
        assert_eq!(is_hidden(&metrics, &world.observation, privileges), is_gap);
        // The consequences are gaps in both cases.
        for group in [Group::HarvesterApi, Group::Placement] {
            assert!(gaps.iter().any(|gap| gap.group == group), "{group:?}");
        }
    }
}

#[test]
fn a_world_that_was_seen_whole_has_no_gap() {
    let world = World::new();
    let (identity, placement) = (world.identity(), world.placement());
    assert_eq!(
        gaps(
            &world.observation,
            &identity,
            placement.as_ref(),
            Privileges::Unprivileged
        ),
        []
    );
}

#[test]
fn a_faulty_configuration_hides_what_the_defaults_do_not_find() {
    let causes = [
        Code::HarvesterCredentialMissing,
        Code::KubeletCredentialMissing,
        Code::VmNotFound,
        Code::NoTopologySource,
        Code::AgentNotRunning,
        Code::ConfigInvalid,
    ];
    let findings: Vec<Finding> = causes.into_iter().map(finding).collect();
    let diagnosis = Diagnosis::new(&findings, &[]);
    let codes: Vec<Code> = diagnosis.findings().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::ConfigInvalid]);
}

#[test]
fn a_user_who_cannot_see_processes_is_not_informed_that_none_runs() {
    let unknown = Service {
        is_unknown: true,
        ..service(None)
    };
    assert_eq!(unknown.finding(), None);
    assert!(service(None).finding().is_some());
}

#[test]
fn a_kernel_without_user_namespaces_is_named_with_the_drop_in_that_the_units_need() {
    let stopped = Service {
        lacks_namespaces: true,
        ..service(None)
    };
    let finding = stopped.finding().unwrap();
    assert!(finding.seen.contains("217/USER"), "{}", finding.seen);
    let commands: Vec<_> = finding
        .commands()
        .iter()
        .map(|command| command.text.to_string())
        .collect();
    assert_eq!(commands.len(), 3);
    assert!(
        commands[0].contains("no-user-namespace.conf"),
        "{commands:?}"
    );
    assert!(
        commands[1].contains("harvester-node-agent-gate.service.d"),
        "{commands:?}"
    );
    let running = Service {
        lacks_namespaces: true,
        ..service(Some("process 1"))
    };
    assert_eq!(running.finding(), None);
}
