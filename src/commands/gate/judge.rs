// SPDX-License-Identifier: Apache-2.0
//! Decides whether the kubelet can start for the first time. A Node keeps the name under which it registers, so the first start
//! waits, for a limited time, until that name is the VM's. The daemon reconciles; the gate only evaluates its status.

use std::time::Duration;

use crate::decide::identity::NameKind;
use crate::decide::name_match::Verdict;
use crate::facts::registration::Labels;

/// The time without a daemon after which the gate opens. systemd restarts the daemon 5 s after a crash, and a start takes at most
/// 1 s: after a longer time, the daemon will not restart on its own.
pub(super) const DAEMON_GRACE: Duration = Duration::from_secs(15);

/// The state of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Daemon {
    /// No daemon has run for this long.
    Missing(Duration),
    /// The daemon runs, but has not published a status yet.
    Silent,
    /// The daemon runs and has published this.
    Says(GateStatement),
}

/// The part of the daemon's status that the gate uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateStatement {
    /// The source of the name that would register: the hostname, or the node name if it is configured.
    pub kind: NameKind,
    /// The name that would register.
    pub name: String,
    /// The result of the comparison with the VM name.
    pub verdict: Verdict,
    /// The name of the VM, if it is identified.
    pub vm: Option<String>,
    /// The name that cloud-init received, while the VM is not identified.
    pub given: Option<String>,
    /// Whether `/etc/hostname` is a template, which a fix must not replace.
    pub has_template: bool,
    /// The reason why the VM is unknown.
    pub reason: Option<String>,
    /// Whether there is a Harvester credential, so that an unknown VM may still become known.
    pub may_learn: bool,
    /// The labels for the registration.
    pub labels: WantedName,
}

/// A kubelet credential that is present before the kubelet starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// The path of the kubeconfig.
    pub path: String,
    /// The name of the Node that it is for, if it can be read.
    pub node: Option<String>,
    /// The reason to believe that it was copied from another machine.
    pub copied: Option<String>,
}

/// The labels for the registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedName {
    /// No labels are required.
    None,
    /// Labels are required, but not known yet.
    Unknown,
    /// The labels.
    Known(Labels),
}

/// The decision of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Wait; with the reason.
    Wait(String),
    /// Let the kubelet start.
    Open(Opening),
}

/// The reason why the kubelet can start, with its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The reason, machine-readable.
    pub reason: GateReason,
    /// The reason, human-readable, in one line.
    pub text: String,
    /// The labels for the registration.
    pub labels: Option<Labels>,
}

/// The reason why the kubelet can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateReason {
    /// A kubelet has already registered on this machine.
    NotFirstStart,
    /// The machine is not a KubeVirt VM, so there is no name to compare.
    NotKubevirt,
    /// The name that would register is that of the VM.
    NameFits,
    /// No source on this machine can provide the VM name.
    NameUnknowable,
    /// The configuration is invalid, and the daemon waits for a valid one.
    ConfigurationFaults,
    /// The daemon is not running.
    NoDaemon,
    /// The wait timed out.
    TimeUp,
}

impl GateReason {
    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFirstStart => "not-first-start",
            Self::NotKubevirt => "not-kubevirt",
            Self::NameFits => "name-matches",
            Self::NameUnknowable => "name-unknown",
            Self::ConfigurationFaults => "configuration-invalid",
            Self::NoDaemon => "agent-not-running",
            Self::TimeUp => "timeout",
        }
    }

    /// Reports whether a user should check the node.
    pub fn is_worrying(self) -> bool {
        matches!(
            self,
            Self::ConfigurationFaults | Self::NoDaemon | Self::TimeUp
        )
    }
}

/// Decides where a kubelet credential is present. It opens at once, unless the credential is that of another machine: two kubelets
/// would then report one Node.
pub fn decide_registered(
    present: &Present,
    daemon: &Daemon,
    waited: Duration,
    bound: Duration,
) -> Decision {
    let open = |reason, text| {
        Decision::Open(Opening {
            reason,
            text,
            labels: None,
        })
    };
    let path = &present.path;
    let fine = || {
        let text = format!("the kubelet is already registered: {path}");
        open(GateReason::NotFirstStart, text)
    };
    let said = match daemon {
        Daemon::Says(said) if said.kind == NameKind::NodeName => Some(said),
        _ => None,
    };
    let verdict = said.map_or(Verdict::Unknown, |said| said.verdict);
    let why = match (&present.copied, verdict) {
        (Some(_), verdict) if verdict.may_register() => return fine(),
        (Some(why), _) => Some(why),
        (None, Verdict::AnotherVm) => None,
        (None, _) => return fine(),
    };
    let node = said.map(|said| &said.name).or(present.node.as_ref());
    let node = node.map_or_else(String::new, |node| {
        format!(" of Node `{}`", node.escape_debug())
    });
    let vm = said.and_then(|said| said.vm.as_ref());
    let vm = vm.map_or_else(String::new, |vm| format!(", and this is VM `{vm}`"));
    let problem = match why {
        Some(why) => format!(
            "{path} is the kubelet credential{node}, and it is of another machine: {why}{vm}. Two kubelets would report one Node; fix: \
             {EXPLAIN} node-of-another-vm"
        ),
        None => format!(
            "{path} is the kubelet credential{node}, which is the name of another VM{vm}: {}; fix: {EXPLAIN} name-of-another-vm",
            verdict.consequence()
        ),
    };
    let is_alone = matches!(daemon, Daemon::Missing(since) if *since >= DAEMON_GRACE);
    if waited < bound && !is_alone {
        return Decision::Wait(problem);
    }
    open(
        GateReason::TimeUp,
        format!("the kubelet starts, although {problem}"),
    )
}

const EXPLAIN: &str = "harvester-node-agent explain";

/// Decides, `waited` after the start of the gate, with a wait of at most `bound`.
pub fn decide(daemon: &Daemon, waited: Duration, bound: Duration) -> Decision {
    let is_over = waited >= bound;
    let open = |reason, text, labels| {
        Decision::Open(Opening {
            reason,
            text,
            labels,
        })
    };
    let said = match daemon {
        Daemon::Missing(since) if is_over || *since >= DAEMON_GRACE => {
            let text =
                format!("{NO_DAEMON}; the kubelet starts without the check; run: {START_DAEMON}");
            return open(GateReason::NoDaemon, text, None);
        }
        Daemon::Missing(_) => return Decision::Wait(format!("{NO_DAEMON}; run: {START_DAEMON}")),
        Daemon::Silent if is_over => {
            let text =
                format!("{SILENT}; the kubelet starts without the check; run: {START_DAEMON}");
            return open(GateReason::TimeUp, text, None);
        }
        Daemon::Silent => return Decision::Wait(SILENT.to_owned()),
        Daemon::Says(said) => said,
    };
    let labels = match &said.labels {
        // The Node may be that of the other VM.
        WantedName::Known(labels) if said.verdict != Verdict::AnotherVm => Some(labels.clone()),
        WantedName::Known(_) | WantedName::None | WantedName::Unknown => None,
    };
    let is_labeled = said.labels != WantedName::Unknown;
    let missing = if is_labeled {
        ""
    } else {
        "; the labels of its host are still unknown; run: harvester-node-agent whoami"
    };
    let name = format!("{} `{}`", said.kind.as_str(), said.name.escape_debug());
    let verdict = said.verdict.name();
    if said.verdict.may_register() {
        let vm = said.vm.as_deref().unwrap_or_default();
        let how = match said.verdict {
            verdict if verdict.is_match() => "matches",
            Verdict::ConfiguredOverride => "is configured for",
            _ => "is derived from the name of",
        };
        let text = format!("{name} {how} VM `{vm}` ({verdict}){missing}");
        return match (is_labeled, is_over) {
            (true, _) => open(GateReason::NameFits, text, labels),
            (false, true) => open(GateReason::TimeUp, text, labels),
            (false, false) => Decision::Wait(text),
        };
    }
    if said.verdict == Verdict::Unknown && !said.may_learn {
        let why = said.reason.as_deref().unwrap_or("no source provides it");
        let text = format!("{name} cannot be checked, the VM name is unknown: {why}");
        return open(GateReason::NameUnknowable, text, labels);
    }
    let (problem, fix) = problem(said, &name);
    if is_over {
        // A host that is renamed now registers a second Node.
        let text = format!("the kubelet starts, although {problem}{missing}{TOO_LATE}");
        open(GateReason::TimeUp, text, labels)
    } else {
        Decision::Wait(format!("{problem}; {fix}"))
    }
}

const NO_DAEMON: &str = "harvester-node-agent.service is not running, so the VM name is unknown";
const START_DAEMON: &str = "systemctl status harvester-node-agent";
const TOO_LATE: &str = "; do not rename the host now, run: harvester-node-agent doctor";
const SILENT: &str = "harvester-node-agent.service has no result yet";

/// Describes the problem with its consequence, and the fix while the kubelet has not started.
fn problem(said: &GateStatement, name: &str) -> (String, String) {
    let verdict = said.verdict;
    let (expected, found) = match (&said.vm, &said.given) {
        (Some(vm), _) if verdict != Verdict::Unknown => (vm, format!("does not match VM `{vm}`")),
        (None, Some(given)) if verdict != Verdict::Unknown => {
            let text =
                format!("is not `{given}`, which cloud-init received; the VM is not identified");
            (given, text)
        }
        _ => {
            let why = said.reason.as_deref().unwrap_or("no VM matches");
            let text = format!(
                "{name} is not checked yet, because the VM of this node is not identified: {why}"
            );
            return (text, "run: harvester-node-agent whoami".to_owned());
        }
    };
    let remedy = match said.kind {
        NameKind::NodeName => {
            format!("set it to {expected} in the RKE2/K3s configuration, or remove it there")
        }
        _ if said.has_template => format!(
            "set node-name to {expected} in the RKE2/K3s configuration; /etc/hostname is a template"
        ),
        _ => format!("hostnamectl set-hostname {expected}"),
    };
    let more = match verdict {
        Verdict::Fqdn => ", and `prefer_fqdn_over_hostname: false` in the cloud-init user data",
        _ => "",
    };
    let text = format!(
        "{name} {found} ({}), and the name of a registered Node cannot change: {}",
        verdict.name(),
        verdict.consequence(),
    );
    (text, format!("fix: {remedy}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::topology::LabelValue;

    const BOUND: Duration = Duration::from_secs(120);

    fn said(verdict: Verdict) -> GateStatement {
        GateStatement {
            kind: NameKind::KernelHostname,
            name: "localhost".to_owned(),
            verdict,
            vm: (verdict != Verdict::Unknown).then(|| "pool1-abcde".to_owned()),
            given: None,
            has_template: false,
            reason: None,
            may_learn: true,
            labels: WantedName::None,
        }
    }

    fn at(said: GateStatement, seconds: u64) -> Decision {
        decide(&Daemon::Says(said), Duration::from_secs(seconds), BOUND)
    }

    fn reason(decision: &Decision) -> Option<GateReason> {
        match decision {
            Decision::Wait(_) => None,
            Decision::Open(opening) => Some(opening.reason),
        }
    }

    #[test]
    fn each_verdict_opens_at_once_or_holds_to_the_bound() {
        for (verdict, may_register) in [
            (Verdict::Match, true),
            (Verdict::MatchExceptCaseOrDomain, true),
            (Verdict::PlatformHostname, true),
            (Verdict::RancherTruncated, true),
            (Verdict::NodeIdSuffix, true),
            (Verdict::ConfiguredOverride, true),
            (Verdict::Unknown, false),
            (Verdict::Fqdn, false),
            (Verdict::Mismatch, false),
            (Verdict::Shared, false),
            (Verdict::AnotherVm, false),
        ] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.name());
            let at_once = may_register.then_some(GateReason::NameFits);
            assert_eq!(reason(&at(said(verdict), 0)), at_once, "{verdict:?}");
            let last = at_once.unwrap_or(GateReason::TimeUp);
            assert_eq!(reason(&at(said(verdict), 119)), at_once, "{verdict:?}");
            assert_eq!(reason(&at(said(verdict), 120)), Some(last), "{verdict:?}");
        }
    }

    #[test]
    fn who_waits_learns_what_is_wrong_why_it_matters_and_what_to_type() {
        let Decision::Wait(text) = at(said(Verdict::Mismatch), 0) else {
            panic!("it opened");
        };
        for part in [
            "hostname `localhost` does not match VM `pool1-abcde`",
            "the name of a registered Node cannot change",
            "no providerID",
            "hostnamectl set-hostname pool1-abcde",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let configured = GateStatement {
            kind: NameKind::NodeName,
            ..said(Verdict::AnotherVm)
        };
        let Decision::Wait(text) = at(configured, 0) else {
            panic!("it opened");
        };
        assert!(!text.contains("hostnamectl"), "{text}");
    }

    #[test]
    fn a_name_of_cloud_init_is_not_called_the_name_of_a_vm() {
        let given = GateStatement {
            vm: None,
            given: Some("web".to_owned()),
            ..said(Verdict::Mismatch)
        };
        let unknown = GateStatement {
            given: Some("web".to_owned()),
            ..said(Verdict::Unknown)
        };
        for said in [given, unknown] {
            let Decision::Wait(text) = at(said, 0) else {
                panic!("it opened");
            };
            assert!(
                text.contains("VM") && text.contains("not identified"),
                "{text}"
            );
            assert!(!text.contains("VM `"), "{text}");
        }
    }

    #[test]
    fn a_name_with_a_domain_waits_for_the_short_one_and_a_template_is_kept() {
        let text = |has_template| {
            let said = GateStatement {
                name: "pool1-abcde.example.org".to_owned(),
                has_template,
                ..said(Verdict::Fqdn)
            };
            match at(said, 0) {
                Decision::Wait(text) => text,
                Decision::Open(opening) => panic!("{opening:?}"),
            }
        };
        assert!(text(false).contains("hostnamectl set-hostname pool1-abcde, and"));
        assert!(text(false).contains("prefer_fqdn_over_hostname: false"));
        let late = match at(said(Verdict::Shared), 120) {
            Decision::Open(opening) => opening.text,
            Decision::Wait(text) => panic!("{text}"),
        };
        // The Node may be that of another VM.
        assert!(!late.contains("delete"), "{late}");
        assert!(!text(true).contains("hostnamectl"), "{}", text(true));
    }

    #[test]
    fn a_name_that_is_not_the_vms_is_not_said_to_match() {
        for verdict in [Verdict::ConfiguredOverride, Verdict::PlatformHostname] {
            let Decision::Open(opening) = at(said(verdict), 0) else {
                panic!("it waits");
            };
            assert!(!opening.text.contains("matches"), "{}", opening.text);
        }
    }

    #[test]
    fn the_credential_of_another_machine_holds_the_kubelet_within_the_bound() {
        let present = |copied: Option<&str>| Present {
            path: "/kubelet.kubeconfig".to_owned(),
            node: Some("a".to_owned()),
            copied: copied.map(str::to_owned),
        };
        let says = |verdict| {
            Daemon::Says(GateStatement {
                kind: NameKind::NodeName,
                name: "a".to_owned(),
                ..said(verdict)
            })
        };
        let at = |present: &Present, daemon: &Daemon, seconds| {
            reason(&decide_registered(
                present,
                daemon,
                Duration::from_secs(seconds),
                BOUND,
            ))
        };
        let (usual, copied) = (present(None), present(Some("another product_uuid")));
        let (fine, up) = (Some(GateReason::NotFirstStart), Some(GateReason::TimeUp));
        let gone = Daemon::Missing(DAEMON_GRACE);
        for daemon in [
            Daemon::Silent,
            gone.clone(),
            says(Verdict::Unknown),
            says(Verdict::Mismatch),
        ] {
            assert_eq!(at(&usual, &daemon, 0), fine, "{daemon:?}");
        }
        for present in [&usual, &copied] {
            assert_eq!(at(present, &says(Verdict::Match), 0), fine);
            assert_eq!(at(present, &says(Verdict::AnotherVm), 119), None);
            assert_eq!(at(present, &says(Verdict::AnotherVm), 120), up);
        }
        for daemon in [
            Daemon::Silent,
            says(Verdict::Unknown),
            says(Verdict::Mismatch),
        ] {
            assert_eq!(
                (at(&copied, &daemon, 119), at(&copied, &daemon, 120)),
                (None, up)
            );
        }
        assert_eq!(at(&copied, &gone, 20), up);
        let Decision::Wait(text) =
            decide_registered(&copied, &says(Verdict::Unknown), Duration::ZERO, BOUND)
        else {
            panic!("it opened");
        };
        for part in [
            "/kubelet.kubeconfig",
            "Node `a`",
            "another product_uuid",
            "explain node-of-another-vm",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn a_name_that_cannot_become_known_delays_nothing() {
        let hopeless = GateStatement {
            may_learn: false,
            labels: WantedName::Unknown,
            ..said(Verdict::Unknown)
        };
        assert_eq!(reason(&at(hopeless, 0)), Some(GateReason::NameUnknowable));
        // A name that differs from the platform's is wrong, with or without a credential.
        let wrong = GateStatement {
            may_learn: false,
            ..said(Verdict::Mismatch)
        };
        assert_eq!(reason(&at(wrong, 0)), None);
    }

    #[test]
    fn labels_that_are_wanted_are_waited_for_within_the_bound() {
        let labels = Labels::from([("zone".to_owned(), LabelValue::parse("a").unwrap())]);
        let with = |wanted| GateStatement {
            labels: wanted,
            ..said(Verdict::Match)
        };
        assert_eq!(reason(&at(with(WantedName::Unknown), 119)), None);
        let late = at(with(WantedName::Unknown), 120);
        assert_eq!(reason(&late), Some(GateReason::TimeUp));
        assert!(matches!(late, Decision::Open(o) if o.text.contains("still unknown")));
        for verdict in [Verdict::Match, Verdict::Mismatch] {
            let said = GateStatement {
                labels: WantedName::Known(labels.clone()),
                ..said(verdict)
            };
            let Decision::Open(opening) = at(said, 120) else {
                panic!("it waits past its bound");
            };
            assert_eq!(opening.labels.as_ref(), Some(&labels), "{verdict:?}");
        }
    }

    #[test]
    fn without_a_daemon_it_opens_when_systemd_has_given_up_on_it() {
        let missing = |since, waited| {
            let daemon = Daemon::Missing(Duration::from_secs(since));
            reason(&decide(&daemon, Duration::from_secs(waited), BOUND))
        };
        assert_eq!(missing(14, 60), None);
        assert_eq!(missing(15, 60), Some(GateReason::NoDaemon));
        assert_eq!(missing(1, 120), Some(GateReason::NoDaemon));
        let silent = |waited| reason(&decide(&Daemon::Silent, Duration::from_secs(waited), BOUND));
        assert_eq!((silent(119), silent(120)), (None, Some(GateReason::TimeUp)));
    }
}
