// SPDX-License-Identifier: Apache-2.0
//! Reads the CPUs, memory, kernel modules and shutdown settings of this VM.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Given, overlay};
use crate::commands::doctor::facts::system::SystemFacts;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::root::{ReadError, Root};

/// The maximum size of a short file of the kernel, in bytes.
const SHORT_MAX: u64 = 64 * 1024;

/// The maximum size of a list of modules, in bytes; that of a distribution's kernel has less than 1 MB.
const MODULES_MAX: u64 = 8 << 20;

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

/// Reads these facts.
pub(super) fn read(given: &Given<'_>) -> SystemFacts {
    let root = given.root;
    SystemFacts {
        cpus_online: parsed(root, "/sys/devices/system/cpu/online", cpus),
        cpus_present: parsed(root, "/sys/devices/system/cpu/present", cpus),
        memory_kib: parsed(root, "/proc/meminfo", memory),
        inhibit_delay: inhibit_delay(root),
        macvlan: macvlan(root),
        overlays: overlay::read(root),
    }
}

fn parsed(root: &Root, path: &str, parse: impl Fn(&str) -> Option<u64>) -> Fact<u64> {
    match root.read_text(path, SHORT_MAX) {
        Err(error) => error.into(),
        Ok(text) => match parse(&text) {
            Some(value) => Fact::Known(value),
            None => Fact::failed(UnavailableKind::Malformed, format!("`{path}` is invalid")),
        },
    }
}

/// Counts the CPUs of a list such as `0-3,5`.
fn cpus(text: &str) -> Option<u64> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    let mut ranges = text.trim().split(',').map(count);
    ranges.try_fold(0_u64, |sum, range| sum.checked_add(range?))
}

fn memory(text: &str) -> Option<u64> {
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Reads `InhibitDelayMaxSec` as systemd-logind does: the last setting in the file and its drop-ins counts.
fn inhibit_delay(root: &Root) -> Fact<u64> {
    let mut drop_ins: BTreeMap<_, PathBuf> = BTreeMap::new();
    for dir in DROP_INS.map(Path::new) {
        for name in root.list(dir).unwrap_or_default() {
            if Path::new(&name)
                .extension()
                .is_some_and(|end| end == "conf")
            {
                let path = dir.join(&name);
                drop_ins.insert(name, path);
            }
        }
    }
    let mut delay = INHIBIT_DELAY;
    let main = PathBuf::from("/etc/systemd/logind.conf");
    for path in [main].into_iter().chain(drop_ins.into_values()) {
        let text = match root.read_text(&path, SHORT_MAX) {
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

/// Reports whether the running kernel has macvlan as a module or built in.
fn macvlan(root: &Root) -> Fact<bool> {
    let release = match root.read_text("/proc/sys/kernel/osrelease", SHORT_MAX) {
        Ok(release) => release,
        Err(error) => return error.into(),
    };
    let modules = Path::new("/lib/modules").join(release.trim());
    let mut is_listed = false;
    let mut has_module = false;
    for list in ["modules.dep", "modules.builtin"] {
        match root.read_text(modules.join(list), MODULES_MAX) {
            Ok(text) => {
                is_listed = true;
                has_module |= text.contains("/macvlan.ko");
            }
            Err(error) if error.is_absent() => {}
            Err(error) => return error.into(),
        }
    }
    match is_listed {
        true => Fact::Known(has_module),
        false => Fact::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn lists_of_cpus_and_the_memory_are_counted() {
        for (text, count) in [
            ("0\n", Some(1)),
            ("0-3\n", Some(4)),
            ("0-3,5,8-9", Some(7)),
            ("", None),
            ("3-0", None),
            ("a", None),
            ("0-18446744073709551615", None),
        ] {
            assert_eq!(cpus(text), count, "{text}");
        }
        assert_eq!(
            memory("MemTotal:       16384256 kB\nMemFree: 1 kB\n"),
            Some(16_384_256)
        );
        assert_eq!(memory("MemTotal: x kB\n"), None);
    }

    #[test]
    fn the_last_setting_of_the_delay_counts_and_an_invalid_one_does_not() {
        assert_eq!(inhibit_delay(&tree(&[]).1), Fact::Known(5));
        let (_dir, root) = tree(&[
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
        ]);
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

    #[test]
    fn macvlan_is_looked_for_in_the_modules_of_the_running_kernel() {
        let release = ("/proc/sys/kernel/osrelease", "6.12.0-default\n");
        assert_eq!(macvlan(&tree(&[release]).1), Fact::Absent);
        let dep = "/lib/modules/6.12.0-default/modules.dep";
        let other = tree(&[release, (dep, "kernel/drivers/net/dummy.ko.xz:\n")]);
        assert_eq!(macvlan(&other.1), Fact::Known(false));
        let has = tree(&[release, (dep, "kernel/drivers/net/macvlan.ko.xz:\n")]);
        assert_eq!(macvlan(&has.1), Fact::Known(true));
    }
}
