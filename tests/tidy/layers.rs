// SPDX-License-Identifier: Apache-2.0
//! The layers of `src/lib.rs`: a module uses only modules above it, and the additional rules hold.

use std::collections::{BTreeMap, BTreeSet};

use super::{product_files, product_lines, read};

/// A rule: how it is called, the files that it binds, what their code does not have.
type Rule = (&'static str, fn(&str) -> bool, &'static [&'static str]);

#[rustfmt::skip]
const RULES: &[Rule] = &[
    ("facts, catalog and decide do no I/O", |file| ["facts", "catalog", "decide"].contains(&module(file)), &[
        "tokio::", "reqwest::", "zbus::", "nix::", "rtnetlink::", "inotify::", "std::fs", "std::net::Tcp", "std::thread", "std::process",
        "std::env", "::now()", "tracing::",
    ]),
    ("only apply sends changes", |file| !["apply", "wire"].contains(&module(file)), &[
        "PatchKind", ".patch(", ".create(&", ".create(event",
    ]),
    // Each way to write: of the standard library, of nix, and our own.
    ("observe writes no file", |file| module(file) == "observe", &[
        "fs::write", "fs::remove", "fs::create", "fs::rename", "fs::set_permissions", "File::create", "OpenOptions", "atomic_file",
        "fcntl", "unlink", "mkdir", "renameat", "symlink", "write_all",
    ]),
    ("wire has no code for labels or findings",
     |file| ["kubeapi/", "dbus", "netlink"].iter().any(|part| file.starts_with(&format!("src/wire/{part}"))),
     &["topology.", "harvesterhci", "failure-domain", "catalog::"]),
    ("agent works through its traits", |file| ["src/agent/mod.rs", "src/agent/round.rs"].contains(&file), &[
        "tokio::net", "tokio::fs", "reqwest::", "zbus::", "nix::", "rtnetlink::", "inotify::", "std::fs", "std::net", "std::thread",
    ]),
];

/// The module to which a file belongs: the first name of its path.
pub(super) fn module(file: &str) -> &str {
    file.split('/').nth(1).unwrap().trim_end_matches(".rs")
}

/// The modules of the table of `src/lib.rs`, in its order.
fn layers() -> Vec<String> {
    let map = read("src/lib.rs");
    let rows = map.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let names = rows.filter_map(|row| row.split('`').next());
    names.map(str::to_owned).collect()
}

/// The code of each file of the layers, and its path.
fn code() -> Vec<(String, String)> {
    let mut files = product_files();
    files.retain(|file| file.matches('/').count() > 1);
    let code = |file: String| (product_lines(&read(&file)).join("\n"), file);
    files.into_iter().map(code).collect()
}

/// Reads the paths of a tree such as `a::{b, c::d}`, each with the names before it, and returns the rest of the text.
fn tree<'t>(mut text: &'t str, before: &[&'t str], found: &mut Vec<Vec<&'t str>>) -> &'t str {
    let mut path = before.to_vec();
    loop {
        text = text.trim_start();
        let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
        let (name, rest) = text.split_at(text.find(|c| !is_of_name(c)).unwrap_or(text.len()));
        path.extend(Some(name).filter(|name| !name.is_empty()));
        if let Some(next) = rest.strip_prefix("::") {
            text = next;
        } else if let Some(mut inner) = rest.strip_prefix('{').filter(|_| name.is_empty()) {
            while !inner.trim_start().starts_with('}') {
                inner = tree(inner, &path, found).trim_start_matches(|c| c != ',' && c != '}');
                inner = inner.strip_prefix(',').unwrap_or(inner);
            }
            return inner.trim_start().strip_prefix('}').unwrap();
        } else {
            found.push(path);
            return rest;
        }
    }
}

/// The names of a module, without that of the file `mod.rs`.
fn names(file: &str) -> Vec<&str> {
    let path = file.strip_prefix("src/").unwrap().trim_end_matches(".rs");
    path.trim_end_matches("/mod").split('/').collect()
}

/// The modules that a module uses. That of a folder is the file that declares it.
fn imports<'t>(
    code: &'t str,
    own: &[&'t str],
    all: &BTreeSet<Vec<&'t str>>,
) -> BTreeSet<Vec<&'t str>> {
    let children = all
        .iter()
        .filter(|one| one.len() == own.len() + 1 && one.starts_with(own));
    let starts = children
        .map(|child| child[own.len()])
        .chain(["crate", "super"]);
    let mut found = Vec::new();
    for start in starts {
        for (at, _) in code.match_indices(&format!("{start}::")) {
            let is_first =
                !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if is_first && !code[..at].ends_with("(in ") {
                tree(&code[at..], &[], &mut found);
            }
        }
    }
    let module = |path: Vec<&'t str>| {
        let ups = path.iter().take_while(|name| **name == "super").count();
        let above = match path[0] {
            "crate" => &[],
            _ => &own[..own.len() - ups],
        };
        let skipped = ups.max(usize::from(path[0] == "crate"));
        let names = [above, &path[skipped..]].concat();
        (1..=names.len())
            .rev()
            .find_map(|count| all.get(&names[..count]).cloned())
    };
    found
        .into_iter()
        .filter_map(module)
        .filter(|module| module != own)
        .collect()
}

#[test]
fn a_module_uses_only_modules_above_it_and_no_file_uses_its_folder_or_itself_by_a_detour() {
    let layers = layers();
    let code = code();
    let folders: BTreeSet<&str> = code.iter().map(|(_, file)| module(file)).collect();
    assert_eq!(folders, layers.iter().map(String::as_str).collect());
    let all: BTreeSet<Vec<&str>> = code.iter().map(|(_, file)| names(file)).collect();
    let mut left = BTreeMap::new();
    for (code, file) in &code {
        let own = names(file);
        let used = imports(code, &own, &all);
        let above: Vec<&String> = layers.iter().take_while(|layer| *layer != own[0]).collect();
        for other in &used {
            let is_above = other[0] == own[0] || above.iter().any(|layer| *layer == other[0]);
            assert!(
                is_above,
                "{file} uses `{}`, which is not above it",
                other[0]
            );
            assert!(
                !own.starts_with(other),
                "{file} uses its folder's file, {}",
                other.join("::")
            );
        }
        left.insert(own, used);
    }
    println!(
        "{} files, {} imports",
        left.len(),
        left.values().map(BTreeSet::len).sum::<usize>()
    );
    // A file that uses none of those that are left is in no circle.
    while let Some(free) = left.iter().find_map(|(own, used)| {
        used.iter()
            .all(|other| !left.contains_key(other))
            .then(|| own.clone())
    }) {
        left.remove(&free);
    }
    assert!(
        left.is_empty(),
        "these files use each other: {:#?}",
        left.keys()
    );
}

#[test]
fn the_additional_rules_of_the_layers_hold() {
    let code = code();
    for (rule, binds, words) in RULES {
        let mut elsewhere = 0;
        for (code, file) in &code {
            let found: Vec<_> = words.iter().filter(|word| code.contains(**word)).collect();
            match binds(file) {
                true => assert!(found.is_empty(), "{rule}: {file} has {found:?}"),
                false => elsewhere += found.len(),
            }
        }
        assert!(elsewhere > 0, "{rule}: its words are never found");
    }
}
