// SPDX-License-Identifier: Apache-2.0
//! The layers of `src/lib.rs`: a module uses only modules above it, and five rules hold beyond the order.

use std::collections::{BTreeMap, BTreeSet};

use super::{product_files, product_lines, read, top};

/// What `ls src` may print at most.
const TOP_MAX: usize = 17;

/// The modules may depend on each other this often.
const EDGES_MAX: usize = 80;

/// What reaches out of the process or asks a clock.
const IMPURE: [&str; 13] = [
    "tokio::",
    "reqwest::",
    "zbus::",
    "nix::",
    "rtnetlink::",
    "inotify::",
    "std::fs",
    "std::net::Tcp",
    "std::thread",
    "std::process",
    "std::env",
    "::now()",
    "tracing::",
];

/// The modules of the table, in its order.
fn layers() -> Vec<String> {
    let map = read("src/lib.rs");
    let rows = map
        .lines()
        .skip_while(|line| !line.starts_with("//! | module |"))
        .skip(2);
    let rows = rows.take_while(|line| line.starts_with("//! |"));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned())
        .collect()
}

/// The module to which a file belongs: the first name of its path.
pub(super) fn module(file: &str) -> &str {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    path.split('/').next().unwrap()
}

/// The files of the modules, each with its code.
fn code() -> Vec<(String, String)> {
    let files = product_files().into_iter();
    let files = files.filter(|file| !["lib", "main", "testing", "fuzz"].contains(&module(file)));
    files
        .map(|file| (file.clone(), product_lines(&read(&file)).join("\n")))
        .collect()
}

/// The modules that code names.
fn used(code: &str) -> BTreeSet<String> {
    let word = |rest: &str| {
        rest.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    code.split("crate::")
        .skip(1)
        .map(word)
        .filter(|name| !name.is_empty())
        .collect()
}

/// The modules that each module uses, with a file that does.
fn graph() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut graph: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (file, code) in code() {
        let own = module(&file).to_owned();
        let others = used(&code).into_iter().filter(|other| *other != own);
        let edges = graph.entry(own.clone()).or_default();
        for other in others {
            edges.entry(other).or_insert_with(|| file.clone());
        }
    }
    graph
}

#[test]
fn a_module_uses_only_modules_above_it() {
    let (layers, graph) = (layers(), graph());
    let modules: BTreeSet<&String> = layers.iter().collect();
    assert_eq!(
        modules,
        graph.keys().collect(),
        "rows of the table, and folders"
    );
    let place = |name: &String| layers.iter().position(|layer| layer == name);
    let mut wrong = Vec::new();
    for (module, uses) in &graph {
        println!(
            "{module}: {}",
            uses.keys().cloned().collect::<Vec<_>>().join(" ")
        );
        let below = uses
            .iter()
            .filter(|(other, _)| place(other) >= place(module));
        wrong.extend(
            below.map(|(other, file)| format!("{file} uses {other}, which is below {module}")),
        );
    }
    let edges: usize = graph.values().map(BTreeMap::len).sum();
    println!("{} modules, {edges} dependencies", graph.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        edges <= EDGES_MAX,
        "{edges} dependencies, more than {EDGES_MAX}"
    );
}

#[test]
fn the_top_of_the_sources_is_short() {
    let entries = std::fs::read_dir(top().join("src")).unwrap().count();
    assert!(entries <= TOP_MAX, "{entries} entries, more than {TOP_MAX}");
}

/// Files below one of `folders` that hold one of `words`.
fn holding(folders: &[&str], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (file, code) in code() {
        if folders.iter().any(|folder| file.starts_with(folder)) {
            let here = words.iter().filter(|word| code.contains(**word));
            found.extend(here.map(|word| format!("{file}: {word}")));
        }
    }
    found
}

#[test]
fn decisions_and_facts_do_no_io_and_know_no_clock() {
    let none: [String; 0] = [];
    assert_eq!(
        holding(&["src/facts/", "src/catalog/", "src/decide/"], &IMPURE),
        none
    );
    // The rule would be empty if the words were never found.
    assert!(!holding(&["src/"], &IMPURE).is_empty());
}

#[test]
fn only_apply_sends_changes() {
    let sends = ["PatchKind", ".patch(", ".create(&", ".create(event"];
    let senders: BTreeSet<String> = holding(&["src/"], &sends)
        .into_iter()
        .map(|found| module(found.split(':').next().unwrap()).to_owned())
        .filter(|module| module != "wire")
        .collect();
    assert_eq!(senders, BTreeSet::from(["apply".to_owned()]));
}

#[test]
fn observe_writes_no_file() {
    // Each way to write: of the standard library, of nix, and our own.
    let writes = [
        "fs::write",
        "fs::remove",
        "fs::create",
        "fs::rename",
        "fs::set_permissions",
        "File::create",
        "OpenOptions",
        "atomic_file",
        "fcntl",
        "unlink",
        "mkdir",
        "renameat",
        "symlink",
        "write_all",
    ];
    assert_eq!(holding(&["src/observe/"], &writes), Vec::<String>::new());
    assert!(!holding(&["src/sys/"], &writes).is_empty());
}

#[test]
fn wire_knows_no_labels_and_no_findings() {
    let words = ["topology.", "harvesterhci", "failure-domain", "catalog::"];
    assert_eq!(
        holding(
            &["src/wire/kubeapi/", "src/wire/dbus", "src/wire/netlink"],
            &words
        ),
        Vec::<String>::new()
    );
}

#[test]
fn the_loop_works_through_its_traits() {
    let loops = ["src/agent/mod.rs", "src/agent/round.rs"];
    let wire = [
        "reqwest::",
        "zbus::",
        "nix::",
        "rtnetlink::",
        "inotify::",
        "std::fs",
        "std::net",
        "std::thread",
        "tokio::net",
        "tokio::fs",
    ];
    assert_eq!(holding(&loops, &wire), Vec::<String>::new());
}

#[test]
fn modules_are_named_from_the_top() {
    for file in product_files() {
        let code = product_lines(&read(&file)).join("\n");
        // As many `super` as the file lies deep lead where `crate` does.
        let to_the_top = "super::".repeat(file.trim_end_matches("/mod.rs").matches('/').count());
        assert!(
            !code.contains(&to_the_top),
            "{file}: write `crate::` for {to_the_top}"
        );
    }
}

#[test]
fn every_library_is_used() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let names = manifest
        .get("dependencies")
        .unwrap()
        .as_table()
        .unwrap()
        .keys();
    let code: String = product_files().iter().map(|file| read(file)).collect();
    let idle: Vec<&String> = names
        .filter(|name| !code.contains(&format!("{}::", name.replace('-', "_"))))
        .collect();
    assert!(idle.is_empty(), "{idle:?}");
}
