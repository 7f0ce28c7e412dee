// SPDX-License-Identifier: Apache-2.0
//! The layers of `src/lib.rs`: a module uses only modules above it, and the additional rules hold.

use std::collections::{BTreeMap, BTreeSet};

use super::{product_files, product_lines, read};

/// A rule: how it is called, the modules that it binds, what their code does not have.
type Rule = (&'static str, fn(&str) -> bool, &'static [&'static str]);

#[rustfmt::skip]
const RULES: &[Rule] = &[
    ("facts, catalog and decide do no I/O", |name| ["facts", "catalog", "decide"].contains(&folder(name)), &[
        "tokio::", "reqwest::", "zbus::", "nix::", "rtnetlink::", "inotify::", "std::fs", "std::net::Tcp", "std::thread", "std::process",
        "std::env", "::now()", "tracing::",
    ]),
    ("only apply sends changes", |name| !["apply", "wire"].contains(&folder(name)), &[
        "PatchKind", ".patch(", ".create(&", ".create(event",
    ]),
    // Each way to write: of the standard library, of nix, and our own.
    ("observe writes no file", |name| folder(name) == "observe", &[
        "fs::write", "fs::remove", "fs::create", "fs::rename", "fs::set_permissions", "File::create", "OpenOptions", "atomic_file",
        "fcntl", "unlink", "mkdir", "renameat", "symlink", "write_all",
    ]),
    ("wire has no code for labels or findings",
     |name| ["kubeapi", "dbus", "netlink"].iter().any(|part| name.starts_with(&format!("wire::{part}"))),
     &["topology.", "harvesterhci", "failure-domain", "catalog::"]),
    ("agent works through its traits", |name| ["agent", "agent::round"].contains(&name), &[
        "tokio::net", "tokio::fs", "reqwest::", "zbus::", "nix::", "rtnetlink::", "inotify::", "std::fs", "std::net", "std::thread",
    ]),
];

/// The folder or file of `src` to which the path of a file or a module belongs.
pub(super) fn folder(path: &str) -> &str {
    let mut names = path.trim_start_matches("src/").split(['/', '.', ':']);
    names.next().unwrap()
}

/// The code of each module below a folder, by its path. That of a folder is the file that declares it.
fn modules() -> BTreeMap<String, String> {
    let files = product_files().into_iter();
    let files = files.filter(|file| file.matches('/').count() > 1);
    let modules = files.map(|file| {
        let code = product_lines(&read(&file)).join("\n");
        let path = file.trim_start_matches("src/").trim_end_matches(".rs");
        let path = path.trim_end_matches("/mod").replace('/', "::");
        (path, code)
    });
    modules.collect()
}

/// Returns the paths of a text that begins with one, such as `a::{b, c::d}`, which has braces at one level only.
fn paths(text: &str) -> Vec<String> {
    let (path, rest) = text.split_at(text.find(|c| !is_of_path(c)).unwrap_or(text.len()));
    let Some((inner, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
        return vec![path.to_owned()];
    };
    assert!(!inner.contains('{'), "{path}: braces in braces");
    let items = inner.split(',').map(str::trim);
    items.map(|item| format!("{path}{item}")).collect()
}

fn is_of_path(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == ':'
}

/// Returns the modules that a module uses.
fn imports(code: &str, own: &str, all: &BTreeMap<String, String>) -> BTreeSet<String> {
    let below = all
        .keys()
        .filter_map(|name| name.strip_prefix(own)?.strip_prefix("::"));
    let children = below.filter(|name| !name.contains("::"));
    let mut found = BTreeSet::new();
    for start in children.chain(["crate", "super"]) {
        for (at, _) in code.match_indices(&format!("{start}::")) {
            let (before, text) = code.split_at(at);
            if before.ends_with(is_of_path) || before.ends_with("(in ") {
                continue;
            }
            for path in paths(text) {
                let (mut folder, mut path) = (own, path.as_str());
                while let Some(rest) = path.strip_prefix("super::") {
                    (folder, path) = (folder.rsplit_once("::").map_or("", |(one, _)| one), rest);
                }
                let whole = format!("{folder}::{path}");
                let mut name = path
                    .strip_prefix("crate::")
                    .unwrap_or(whole.trim_matches(':'));
                while !all.contains_key(name) && !name.is_empty() {
                    name = name.rsplit_once("::").map_or("", |(one, _)| one);
                }
                found.insert(name.to_owned());
            }
        }
    }
    found.retain(|name| !name.is_empty() && name != own);
    found
}

#[test]
fn a_module_uses_only_modules_above_it_and_no_file_uses_its_folder_or_itself_by_a_detour() {
    let map = read("src/lib.rs");
    let rows = map.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let layers: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let all = modules();
    let folders: BTreeSet<&str> = all.keys().map(|name| folder(name)).collect();
    assert_eq!(folders, layers.iter().copied().collect());
    let layer = |name: &str| layers.iter().position(|layer| *layer == folder(name));
    let mut left = BTreeMap::new();
    for (own, code) in &all {
        let used = imports(code, own, &all);
        for other in &used {
            let is_above = layer(other) <= layer(own);
            assert!(is_above, "{own} uses {other}, which is not above it");
            let is_folder = own.starts_with(&format!("{other}::"));
            assert!(!is_folder, "{own} uses its folder's file");
        }
        left.insert(own, used);
    }
    let uses: usize = left.values().map(BTreeSet::len).sum();
    // A file that uses none of those that are left is in no circle.
    let mut count = usize::MAX;
    while left.len() < count {
        count = left.len();
        let names: BTreeSet<String> = left.keys().map(|name| (*name).clone()).collect();
        left.retain(|_, used| !used.is_disjoint(&names));
    }
    let names = left.into_keys();
    assert_eq!(names.collect::<Vec<_>>(), [""; 0], "they use each other");
    println!(
        "{} modules with {uses} uses of each other, in no circle",
        all.len()
    );
}

#[test]
fn the_additional_rules_of_the_layers_hold() {
    let all = modules();
    for (rule, binds, words) in RULES {
        let mut elsewhere = 0;
        for (name, code) in &all {
            let found: Vec<_> = words.iter().filter(|word| code.contains(**word)).collect();
            match binds(name) {
                true => assert!(found.is_empty(), "{rule}: {name} has {found:?}"),
                false => elsewhere += found.len(),
            }
        }
        assert!(elsewhere > 0, "{rule}: its words are never found");
    }
}
