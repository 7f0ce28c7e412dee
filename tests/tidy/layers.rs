// SPDX-License-Identifier: Apache-2.0
//! The layers of `src/lib.rs`: a module uses only modules above it, and the additional rules hold.

use std::collections::BTreeSet;

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

#[test]
fn a_module_uses_only_modules_above_it() {
    let layers = layers();
    let code = code();
    let folders: BTreeSet<&str> = code.iter().map(|(_, file)| module(file)).collect();
    assert_eq!(folders, layers.iter().map(String::as_str).collect());
    for (code, file) in &code {
        let own = module(file);
        let above: Vec<&String> = layers.iter().take_while(|layer| *layer != own).collect();
        for rest in code.split("crate::").skip(1) {
            let mut words = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
            let other = words.next().unwrap().to_owned();
            let is_above = other == own || above.contains(&&other);
            assert!(is_above, "{file} uses `{other}`, which is not above it");
        }
        // As many `super` as the file lies deep lead where `crate` does, and are not found above.
        let crates = "super::".repeat(file.trim_end_matches("/mod.rs").matches('/').count());
        assert!(
            !code.contains(&crates),
            "{file}: write `crate` for {crates}"
        );
    }
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
