// SPDX-License-Identifier: Apache-2.0
//! One type name means one thing: no name is defined in more than one top-level module.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::module;
use super::{product_files, product_lines, read};

/// The kinds of items that define a type. Associated types are indented, and belong to their trait.
const KINDS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];

/// Returns the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let item = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let name = KINDS.iter().find_map(|kind| item.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric()).next()
}

#[test]
fn no_type_name_is_defined_in_two_top_level_modules() {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in product_files() {
        let text = read(&file);
        for name in product_lines(&text).into_iter().filter_map(defined) {
            let modules = names.entry(name.to_owned()).or_default();
            modules.insert(module(&file).to_owned());
        }
    }
    println!("types: {} names", names.len());
    assert!(names.len() > 400, "types are not found any more");
    let twice: Vec<_> = names
        .iter()
        .filter(|(_, modules)| modules.len() > 1)
        .collect();
    assert!(twice.is_empty(), "{twice:#?}");
}

#[test]
fn a_definition_is_found_whatever_its_visibility() {
    for line in [
        "struct A;",
        "pub enum A<'a> {",
        "pub(super) trait A: B {",
        "pub(in crate::c) type A = B;",
    ] {
        assert_eq!(defined(line), Some("A"), "{line}");
    }
    for line in ["    type A = B;", "impl A {", "use a::struct_b;"] {
        assert_eq!(defined(line), None, "{line}");
    }
}
