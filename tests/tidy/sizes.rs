// SPDX-License-Identifier: Apache-2.0
//! How much code each module of the product has, at most.

use std::collections::BTreeMap;

use super::layers::folder;
use super::{product_files, product_lines, read};

/// How far a count may be from its ceiling: a small change needs no new one.
const SLACK: usize = 50;

/// A module, its ceiling of lines, and why that was raised if it was. It is the count rounded up to the next 10, and goes down with it.
#[rustfmt::skip]
const CEILINGS: &[(&str, usize, &str)] = &[
    ("access", 1430, "a value that may be a secret is not shown; an encoded kubeconfig is named with the command that decodes it; the token of one that cannot be used"),
    ("agent", 620, "the VM whose disk was copied; the last migration with its duration; a round concludes on the Node after its labels are written; the time limits of a round"),
    ("apply", 500, "a flood of bus signals stops no hook; it executes the actions, and finds the hooks"),
    ("catalog", 1370, "what is new to the journal and to Events; findings of images; each code is the reason of conditions and Events; the APIs; steps that find the cause before they change anything; the log of the kubelet of RKE2, the ages of VMs; servers with etcd, one at a time"),
    ("commands", 6560, "what is said of an agent that is stopped or idle, and of files that are damaged or cannot be read; files with the labels for a kubelet that starts, as `gate` writes them instead of the daemon, with our keys only, and why there are none; a directory that a setting names as a file; since when a service without a credential has been starting; a gate that holds a copied kubelet credential; a token of Rancher in a file that cannot be used; what systemd-logind refuses is told from what it does not know; release numbers; what an agent that is stopped would write"),
    ("config", 1100, ""),
    ("decide", 4590, "an error or a warning that no condition shows is an Event; a failure that lasts ends no poll; a refused removal waits; withheld conditions have a deadline; a VM that only a MAC address identifies is compared with all others; a conflict is one finding over migrations; names with a domain, configured and shared ones; two kubelets of one Node; each refused write has its own retry; so have unread files; a Node is replaced on evidence, and last"),
    ("facts", 1730, "templates of hostnames; what user data asks for; files that could not be read; names of ConfigMaps"),
    ("lib", 20, ""),
    ("main", 60, ""),
    ("observe", 2700, "a round that reads nothing sends no requests; /etc/hostname as systemd reads it; Afterburn; Events are sent, hooks are run and files are read beside the loop"),
    ("report", 2690, ""),
    ("sys", 1930, "a file on a mount that comes later is polled; changes of files, which commands follow, too; files are read and written off the loop\'s thread; a text that is only shown is cut, never refused"),
    ("triggers", 1720, "the protocol of the operator channel; inotify restarts with a delay; interruptions of watches; the rate limit and the polled files are those of an event source; what a watch requests next is a part of its own"),
    ("wire", 2690, "`forbidden` is said once; bus signals are read during calls"),
];

#[test]
fn each_module_keeps_to_its_ceiling() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for file in product_files() {
        *counts.entry(folder(&file).to_owned()).or_default() += product_lines(&read(&file)).len();
    }
    for (name, lines) in &counts {
        let row = CEILINGS.iter().find(|(folder, ..)| folder == name);
        let (_, ceiling, _) = row.unwrap_or_else(|| panic!("no row for {name}"));
        let is_kept = lines.abs_diff(*ceiling) <= SLACK;
        assert!(is_kept, "{name} has {lines} lines, its row {ceiling}");
    }
    println!("total    {:>6}", counts.values().sum::<usize>());
    assert_eq!(counts.len(), CEILINGS.len(), "a row without a module");
}
