// SPDX-License-Identifier: Apache-2.0
//! Has the VM more CPUs or memory than the kubelet counted when it started?

use crate::catalog::{Code, Finding, Group};
use crate::commands::doctor::case::{Checked, finding};
use crate::commands::doctor::reads::Reads;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::root::Root;

/// The maximum size of a file of the kernel, in bytes.
const FILE_MAX: u64 = 64 << 10;

/// What this VM has, and what the kubelet counted.
#[derive(Debug, Default)]
struct Capacity {
    /// The number of CPUs that are online.
    online: Option<u64>,
    /// The number of CPUs that the VM has.
    present: Option<u64>,
    /// The memory, in KiB.
    memory: Option<u64>,
    /// The CPUs of the Node.
    node_cpus: Option<u64>,
    /// The memory of the Node, in KiB.
    node_memory: Option<u64>,
}

/// Reads CPUs and memory from the kernel, and compares them with those of the Node.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let node = reads.node.known();
    let mut need = |what, path: &str, parse: fn(&str) -> Option<u64>| {
        let fact = parsed(reads.observer.root(), path, parse);
        checked.need(Group::Node, what, &fact).copied()
    };
    let mut need_cpus = |what, list| need(what, &format!("/sys/devices/system/cpu/{list}"), cpus);
    let capacity = Capacity {
        online: need_cpus("the online CPUs of this VM", "online"),
        present: need_cpus("the CPUs of this VM", "present"),
        memory: need("the memory of this VM", "/proc/meminfo", memory),
        node_cpus: node.and_then(|node| node.capacity("cpu", "")),
        node_memory: node.and_then(|node| node.capacity("memory", "Ki")),
    };
    checked.findings.extend(judge(&capacity));
}

fn parsed(root: &Root, path: &str, parse: impl Fn(&str) -> Option<u64>) -> Fact<u64> {
    let invalid = || Fact::failed(UnavailableKind::Malformed, format!("`{path}` is invalid"));
    let text = Fact::from(root.read_text(path, FILE_MAX));
    text.and_then(|text| parse(&text).map_or_else(invalid, Fact::Known))
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
    let mut lines = text.lines();
    let total = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn judge(capacity: &Capacity) -> Option<Finding> {
    let mut texts = Vec::new();
    if let (Some(here), Some(counted)) = (capacity.online, capacity.node_cpus)
        && here > counted
    {
        texts.push(format!("{here} CPUs are online, the Node has {counted}"));
    }
    if let (Some(online), Some(all)) = (capacity.online, capacity.present)
        && online < all
    {
        texts.push(format!("{} of {all} CPUs are offline", all - online));
    }
    if let (Some(here), Some(counted)) = (capacity.memory, capacity.node_memory)
        && here > counted
    {
        texts.push(format!(
            "the VM has {here} KiB of memory, the Node has {counted} KiB"
        ));
    }
    finding(Code::CapacityStale, &texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hotplugged_cpus_and_memory_are_named_and_equal_ones_are_not() {
        let mut capacity = Capacity {
            online: Some(4),
            present: Some(4),
            memory: Some(8_000_000),
            node_cpus: Some(4),
            node_memory: Some(8_000_000),
        };
        assert_eq!(judge(&capacity), None);
        (capacity.present, capacity.online) = (Some(8), Some(6));
        capacity.memory = Some(9_000_000);
        let text = "6 CPUs are online, the Node has 4; 2 of 8 CPUs are offline; \
                    the VM has 9000000 KiB of memory, the Node has 8000000 KiB";
        assert_eq!(judge(&capacity).unwrap().seen, text);
        assert_eq!(judge(&Capacity::default()), None);
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
        let text = "MemTotal:       16384256 kB\nMemFree: 1 kB\n";
        assert_eq!(memory(text), Some(16_384_256));
        assert_eq!(memory("MemTotal: x kB\n"), None);
    }
}
