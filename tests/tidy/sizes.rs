// SPDX-License-Identifier: Apache-2.0
//! How much code each module of the product has, at most.

use std::collections::BTreeMap;

use super::layers::module;
use super::{product_files, product_lines, read};

/// A module, its ceiling of lines, and why that was raised if it was. It is the count rounded up to the next 10, and goes down with it.
#[rustfmt::skip]
const CEILINGS: &[(&str, usize, &str)] = &[
    ("access", 1740, "an encoded kubeconfig is named with the command that decodes it"),
    ("agent", 680, ""),
    ("apply", 390, ""),
    ("catalog", 1410, "advice for a deleted Node and a rejected node password"),
    ("commands", 8890, "a kernel without user namespaces is named"),
    ("config", 1910, ""),
    ("decide", 5440, "a Node that was deleted is told from one that has not registered"),
    ("facts", 2440, "whether user data asks for qemu-guest-agent"),
    ("lib", 20, ""),
    ("main", 150, ""),
    ("observe", 3810, "whether user data asks for qemu-guest-agent"),
    ("report", 3530, ""),
    ("sys", 1780, "a text or list that is only shown is cut, never refused"),
    ("triggers", 2320, "inotify restarts with a delay, bus messages are read during calls"),
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
