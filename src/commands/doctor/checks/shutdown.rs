// SPDX-License-Identifier: Apache-2.0
//! Does Harvester power the VM off before systemd-logind lets a shutdown proceed?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::case::Checked;
use crate::commands::doctor::objects::Instance;
use crate::commands::doctor::reads::Reads;
use crate::facts::Fact;
use crate::facts::release::Rank;
use crate::sys::root::{ReadError, Root};

/// The first release of KubeVirt that stops a VM through the guest agent (kubevirt/kubevirt#18721).
const STOPS_BY_GUEST_AGENT: Rank = Rank::of(1, 5, 0);

/// The time in seconds for which KubeVirt waits for a guest agent that is not connected.
const GUEST_AGENT_WAIT: u64 = 60;

/// The maximum size of a configuration file, in bytes.
const FILE_MAX: u64 = 64 << 10;

/// The directories of the drop-ins, lowest precedence first (logind.conf(5)).
const DROP_INS: [&str; 3] = [
    "/usr/lib/systemd/logind.conf.d",
    "/run/systemd/logind.conf.d",
    "/etc/systemd/logind.conf.d",
];

/// The value of `InhibitDelayMaxSec` without a setting, in seconds.
const INHIBIT_DELAY: u64 = 5;

/// The units of a time span and their seconds (systemd.time(7)); the first that fits.
const UNITS: [(&str, u64); 7] = [
    ("minutes", 60),
    ("minute", 60),
    ("min", 60),
    ("seconds", 1),
    ("second", 1),
    ("sec", 1),
    ("s", 1),
];

/// Reads the settings of systemd-logind.
pub(super) fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let delay = inhibit_delay(reads.observer.root());
    let delay = checked.need(Group::Node, "the settings of systemd-logind", &delay);
    if let (Some(instance), Some(delay)) = (reads.instance.known(), delay) {
        checked.findings.extend(judge(instance, *delay));
    }
}

/// Reads `InhibitDelayMaxSec` as systemd-logind does: the last setting in the file and its drop-ins counts.
fn inhibit_delay(root: &Root) -> Fact<u64> {
    let mut drop_ins: BTreeMap<_, PathBuf> = BTreeMap::new();
    for dir in DROP_INS.map(Path::new) {
        for name in root.list(dir).unwrap_or_default() {
            let path = dir.join(&name);
            if path.extension().is_some_and(|end| end == "conf") {
                drop_ins.insert(name, path);
            }
        }
    }
    let mut delay = INHIBIT_DELAY;
    let main = PathBuf::from("/etc/systemd/logind.conf");
    for path in [main].into_iter().chain(drop_ins.into_values()) {
        let text = match root.read_text(&path, FILE_MAX) {
            Ok(text) => text,
            // A link to /dev/null masks a drop-in.
            Err(ReadError::NotFound(_) | ReadError::NotAFile(_)) => continue,
            Err(error) => return error.into(),
        };
        let set = text.lines().filter_map(|line| line.split_once('='));
        let mut set = set.filter(|(key, _)| key.trim() == "InhibitDelayMaxSec");
        if let Some((_, value)) = set.next_back() {
            // systemd-logind ignores an invalid value.
            delay = seconds(value.trim()).unwrap_or(delay);
        }
    }
    Fact::Known(delay)
}

/// Parses a time span of seconds and minutes, such as `1min 30s` or `90`.
fn seconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, unit) = rest.split_at_checked(digits)?;
        let (seconds, after) = match unit.trim_start() {
            "" => (1, ""),
            unit => UNITS
                .iter()
                .find_map(|(name, seconds)| Some((*seconds, unit.strip_prefix(name)?)))?,
        };
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(seconds)?)?;
        rest = after.trim_start();
    }
    (!text.is_empty()).then_some(sum)
}

fn judge(instance: &Instance, delay: u64) -> Option<Finding> {
    let grace = instance.spec.grace_period?;
    let kubevirt = instance.launcher();
    let kubevirt = kubevirt.known();
    let is_waiting = !instance.is_agent_connected()
        && kubevirt.is_some_and(|release| release.rank() >= STOPS_BY_GUEST_AGENT);
    let (left, lost) = match is_waiting {
        true => (
            grace.saturating_sub(GUEST_AGENT_WAIT),
            format!(", of which KubeVirt waits {GUEST_AGENT_WAIT} s for qemu-guest-agent"),
        ),
        false => (grace, String::new()),
    };
    let text = format!(
        "terminationGracePeriodSeconds of the VM is {grace}{lost}; InhibitDelayMaxSec of systemd-logind is {delay}"
    );
    (left < delay).then(|| Finding::new(Code::StopGraceTooShort, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::doctor::testing::object;

    #[test]
    fn the_grace_period_must_outlast_the_shutdown_and_the_wait_for_the_guest_agent() {
        for (grace, kubevirt, is_connected, is_short) in [
            (Some(120), "1.5.2", true, false),
            (Some(30), "1.5.2", true, false),
            (Some(20), "1.5.2", true, true),
            (Some(120), "1.5.2", false, false),
            (Some(80), "1.5.2", false, true),
            (Some(80), "1.4.0", false, false),
            (None, "1.5.2", false, false),
        ] {
            let connected = if is_connected { "True" } else { "False" };
            let instance = object(json!({
                "spec": {"terminationGracePeriodSeconds": grace},
                "status": {
                    "launcherContainerImageVersion": format!("r.example/virt-launcher:{kubevirt}-150600.5.1"),
                    "conditions": [{"type": "AgentConnected", "status": connected}],
                },
            }));
            let found = judge(&instance, 30);
            assert_eq!(found.is_some(), is_short, "{grace:?} {found:?}");
        }
    }

    #[test]
    fn the_last_setting_of_the_delay_counts_and_an_invalid_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        assert_eq!(inhibit_delay(&root), Fact::Known(5));
        for (path, text) in [
            (
                "/etc/systemd/logind.conf",
                "[Login]\n#InhibitDelayMaxSec=7\nInhibitDelayMaxSec=9\n",
            ),
            (
                "/etc/systemd/logind.conf.d/99-kubelet.conf",
                "[Login]\nInhibitDelayMaxSec=1min 30s\n",
            ),
            (
                "/usr/lib/systemd/logind.conf.d/10-a.conf",
                "InhibitDelayMaxSec = 20\n",
            ),
            (
                "/etc/systemd/logind.conf.d/zz.conf",
                "InhibitDelayMaxSec=soon\n",
            ),
        ] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(inhibit_delay(&root), Fact::Known(90));
        for (text, value) in [
            ("2min", Some(120)),
            ("3 s", Some(3)),
            ("1h", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), value, "{text}");
        }
    }
}
