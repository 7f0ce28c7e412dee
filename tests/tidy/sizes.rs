// SPDX-License-Identifier: Apache-2.0
//! How much code each module of the product has, at most.

use std::collections::BTreeMap;

use super::layers::module;
use super::{product_files, product_lines, read};

/// A module, its ceiling of lines, and why that was raised if it was. It is the count rounded up to the next 10, and goes down with it.
#[rustfmt::skip]
const CEILINGS: &[(&str, usize, &str)] = &[
    ("access", 1750, "an encoded kubeconfig is named with the command that decodes it"),
    ("agent", 660, "the last migration as the status shows it"),
    ("apply", 420, "a change of a file has a limit"),
    ("catalog", 1460, "findings of files, of names, and of each source; codes are read from JSON"),
    ("commands", 9010, "a gate that holds a copied kubelet credential"),
    ("config", 1910, ""),
    ("decide", 5750, "the words of the status; names with a domain, configured and shared ones; two kubelets of one Node; each refused write has its own retry"),
    ("facts", 2480, "templates of hostnames; what user data asks for"),
    ("lib", 20, ""),
    ("main", 150, ""),
    ("observe", 3880, "/etc/hostname as systemd reads it; Events are sent beside the loop"),
    ("report", 3150, ""),
    ("sys", 1980, "files are written off the loop's thread; a text that is only shown is cut, never refused"),
    ("triggers", 2330, "inotify restarts with a delay, bus messages are read during calls"),
    ("wire", 4420, "an interrupted list of links is requested again"),
];

#[test]
fn each_module_keeps_to_its_ceiling() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for file in product_files() {
        *counts.entry(module(&file).to_owned()).or_default() += product_lines(&read(&file)).len();
    }
    let mut wrong = Vec::new();
    for (name, lines) in &counts {
        let row = CEILINGS.iter().find(|(module, ..)| module == name);
        let (_, ceiling, why) = row.unwrap_or(&("", 0, "no row"));
        println!("{name:<8} {lines:>6} of {ceiling:>6}  {why}");
        if lines > ceiling || lines + 100 < *ceiling {
            wrong.push(format!("{name}: {lines} lines, ceiling {ceiling}"));
        }
    }
    println!("total    {:>6}", counts.values().sum::<usize>());
    assert_eq!(counts.len(), CEILINGS.len(), "a row without a module");
    assert!(wrong.is_empty(), "over, or over 100 below: {wrong:#?}");
}
