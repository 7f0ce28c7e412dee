// SPDX-License-Identifier: Apache-2.0
//! How much code each module of the product has, at most.

use std::collections::BTreeMap;

use super::layers::module;
use super::{product_files, product_lines, read};

/// A module, its ceiling of lines, and why that was raised if it was. It is the count rounded up to the next 10, and goes down with it.
#[rustfmt::skip]
const CEILINGS: &[(&str, usize, &str)] = &[
    ("access", 1700, ""),
    ("agent", 610, ""),
    ("apply", 390, ""),
    ("catalog", 1410, ""),
    ("commands", 8860, ""),
    ("config", 1910, ""),
    ("decide", 5420, ""),
    ("facts", 2440, ""),
    ("lib", 20, ""),
    ("main", 150, ""),
    ("observe", 3790, ""),
    ("report", 3560, ""),
    ("sys", 1890, "files are written off the loop's thread"),
    ("triggers", 2230, ""),
    ("wire", 4390, ""),
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
