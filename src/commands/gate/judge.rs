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
    /// The name of the VM.
    pub vm: Option<String>,
    /// The reason why the VM is unknown.
    pub reason: Option<String>,
    /// Whether there is a Harvester credential, so that an unknown VM may still become known.
    pub may_learn: bool,
    /// The labels for the registration.
    pub labels: WantedName,
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
        WantedName::Known(labels) => Some(labels.clone()),
        WantedName::None | WantedName::Unknown => None,
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
        let text = format!("{name} matches VM `{vm}` ({verdict}){missing}");
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
    let problem = problem(said, &name);
    if is_over {
        let text = format!("the kubelet starts, although {problem}{missing}{TOO_LATE}");
        open(GateReason::TimeUp, text, labels)
    } else {
        Decision::Wait(problem)
    }
}

const NO_DAEMON: &str = "harvester-node-agent.service is not running, so the VM name is unknown";
const START_DAEMON: &str = "systemctl status harvester-node-agent";
const TOO_LATE: &str =
    "; if the Node registered under a wrong name, delete it and let it join again";
const SILENT: &str = "harvester-node-agent.service has no result yet";

/// Describes the problem, its consequence and its fix.
fn problem(said: &GateStatement, name: &str) -> String {
    let verdict = said.verdict;
    match &said.vm {
        Some(vm) if verdict != Verdict::Unknown => {
            let remedy = if said.kind == NameKind::NodeName {
                format!("set it to {vm} in the RKE2/K3s configuration, or remove it there")
            } else {
                format!("hostnamectl set-hostname {vm}")
            };
            format!(
                "{name} does not match VM `{vm}` ({}), and the name of a registered Node cannot change: {}; fix: {remedy}",
                verdict.name(),
                verdict.consequence(),
            )
        }
        _ => format!(
            "unknown whether {name} matches the VM name: {}; run: harvester-node-agent whoami",
            said.reason.as_deref().unwrap_or("no VM matches")
        ),
    }
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
            (Verdict::Mismatch, false),
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
