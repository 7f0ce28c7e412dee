// SPDX-License-Identifier: Apache-2.0
//! May the kubelet start for the first time? A Node keeps the name that it registers under, so a first start waits, for a
//! bounded time, until that name is the VM's. The daemon reconciles; here its word is judged.

use std::time::Duration;

use crate::decide::identity::NameKind;
use crate::decide::name_match::Verdict;
use crate::facts::registration::Labels;

/// How long no daemon may run before the gate opens. systemd starts it again 5 s after a crash, and a start takes one at most:
/// anyone who is away for longer does not come back by itself.
const DAEMON_GRACE: Duration = Duration::from_secs(15);

/// What is known of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Daemon {
    /// None has run for so long.
    Missing(Duration),
    /// It runs and has not said anything yet.
    Silent,
    /// It runs and says this.
    Says(GateStatement),
}

/// What the daemon says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateStatement {
    /// Which name would register: the hostname, or the node name where the configuration sets one.
    pub kind: NameKind,
    /// That name.
    pub name: String,
    /// How it compares with the VM's.
    pub verdict: Verdict,
    /// The VM's name.
    pub vm: Option<String>,
    /// Why the VM is not known.
    pub reason: Option<String>,
    /// Whether there is a credential for Harvester, and with it hope to learn what is not known.
    pub may_learn: bool,
    /// The labels to register with.
    pub labels: WantedName,
}

/// The labels to register with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedName {
    /// None are wanted.
    None,
    /// They are wanted and not known yet.
    Unknown,
    /// These.
    Known(Labels),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Not yet; why.
    Wait(String),
    /// Now.
    Open(Opening),
}

/// Why the kubelet may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The reason, for programs.
    pub reason: GateReason,
    /// The same for people, in one line.
    pub text: String,
    /// The labels to register with.
    pub labels: Option<Labels>,
}

/// Why the kubelet may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateReason {
    /// A kubelet has registered here before.
    NotFirstStart,
    /// There is no VM whose name could be compared.
    NotKubevirt,
    /// The name that would register is the VM's.
    NameFits,
    /// Nothing here can ever tell the VM's name.
    NameUnknowable,
    /// The configuration has faults, and the daemon waits for a better one.
    ConfigurationFaults,
    /// No daemon runs.
    NoDaemon,
    /// The time is up.
    TimeUp,
}

impl GateReason {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFirstStart => "not-first-start",
            Self::NotKubevirt => "not-kubevirt",
            Self::NameFits => "name-matches",
            Self::NameUnknowable => "name-unknown",
            Self::ConfigurationFaults => "configuration-invalid",
            Self::NoDaemon => "no-daemon",
            Self::TimeUp => "timeout",
        }
    }

    /// Whether a person should check it.
    pub fn is_worrying(self) -> bool {
        matches!(
            self,
            Self::ConfigurationFaults | Self::NoDaemon | Self::TimeUp
        )
    }
}

/// Decides, `waited` after the gate began, with `bound` to wait at most.
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
            let text = format!("{NO_DAEMON}; the kubelet starts unchecked: {START_DAEMON}");
            return open(GateReason::NoDaemon, text, None);
        }
        Daemon::Missing(_) => return Decision::Wait(format!("{NO_DAEMON}: {START_DAEMON}")),
        Daemon::Silent if is_over => {
            let text = format!("{SILENT}; the kubelet starts unchecked: {START_DAEMON}");
            return open(GateReason::TimeUp, text, None);
        }
        Daemon::Silent => return Decision::Wait(SILENT.to_owned()),
        Daemon::Says(said) => said,
    };
    let labels = match &said.labels {
        WantedName::Known(labels) => Some(labels.clone()),
        WantedName::None | WantedName::Unknown => None,
    };
    let is_labelled = said.labels != WantedName::Unknown;
    let missing = if is_labelled {
        ""
    } else {
        "; the labels of its host are still unknown: harvester-node-agent whoami"
    };
    let name = format!("{} `{}`", said.kind.as_str(), said.name.escape_debug());
    let verdict = said.verdict.name();
    if said.verdict.may_register() {
        let vm = said.vm.as_deref().unwrap_or_default();
        let text = format!("{name} matches VM `{vm}` ({verdict}){missing}");
        return match (is_labelled, is_over) {
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

/// What is wrong, why it matters, what to type.
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
            "unknown whether {name} matches the VM name: {}; harvester-node-agent whoami",
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
            (Verdict::MatchModuloCaseOrDomain, true),
            (Verdict::PlatformHostname, true),
            (Verdict::RancherTruncated, true),
            (Verdict::NodeIdSuffix, true),
            (Verdict::ConfiguredOverride, true),
            (Verdict::Unknown, false),
            (Verdict::Mismatch, false),
            (Verdict::AnotherVm, false),
        ] {
            assert_eq!(Verdict::parse(&verdict.name()), Some(verdict));
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
    fn a_name_that_nobody_can_ever_report_holds_nothing() {
        let hopeless = GateStatement {
            may_learn: false,
            labels: WantedName::Unknown,
            ..said(Verdict::Unknown)
        };
        assert_eq!(reason(&at(hopeless, 0)), Some(GateReason::NameUnknowable));
        // One that differs from what the platform gave is wrong with or without a credential.
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
