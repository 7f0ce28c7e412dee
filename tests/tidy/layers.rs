// SPDX-License-Identifier: Apache-2.0
//! The table of `src/lib.rs`: each part uses what its row says, all of it and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use super::{product_files, product_lines, read};

/// What of the standard library reaches out of the process, and so stands in the table.
const OUTSIDE: [&str; 6] = ["env", "fs", "net", "os", "process", "thread"];

/// A row that allows everything.
const EVERYTHING: &str = "everything";

/// Names that code uses: `config`, `findings::Code`, `tokio`, `std::fs`, `now()`.
type Names = BTreeSet<String>;

/// Column after column of the table, by part.
fn table() -> BTreeMap<String, [String; 2]> {
    let map = read("src/lib.rs");
    let rows = map
        .lines()
        .skip_while(|line| !line.starts_with("//! | part |"))
        .skip(2)
        .take_while(|line| line.starts_with("//! |"));
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let [_, parts, ours, others, _, _] = cells[..] else {
            panic!("not a row of four columns: {row}");
        };
        let uses = [ours.trim().to_owned(), others.trim().to_owned()];
        quoted(parts)
            .into_iter()
            .map(move |part| (part, uses.clone()))
    })
    .collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> Names {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// The part to which a file belongs: the first name of its path.
fn part(file: &str) -> String {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    path.split('/').next().unwrap().to_owned()
}

/// The code of each part, each file on a line of its own.
fn parts() -> BTreeMap<String, Vec<(String, String)>> {
    let mut parts: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for file in product_files() {
        let code = product_lines(&read(&file)).join("\n");
        parts.entry(part(&file)).or_default().push((file, code));
    }
    parts.remove("lib").unwrap();
    parts
}

/// Where `name` stands in code as a word that no path leads to, and what follows it.
fn after<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(name).filter_map(move |(at, _)| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        (!code[..at].ends_with(is_part)).then(|| &code[at + name.len()..])
    })
}

/// The first names of what follows `::`: one, or those in braces.
fn firsts(rest: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let Some(list) = rest.strip_prefix('{') else {
        return vec![word(rest)];
    };
    let mut depth = 0;
    let names = list.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0 || depth < 0
    });
    names
        .map(word)
        .take_while(|name| !name.is_empty())
        .collect()
}

/// Which modules of ours code uses: `a`, and each `a::b`.
fn ours(code: &str, own: &str) -> Names {
    let mut names = Names::new();
    for rest in after(code, "crate::") {
        assert!(
            !rest.starts_with('{'),
            "one `use` for each module, please: {rest:.60}"
        );
        for module in firsts(rest).into_iter().filter(|module| module != own) {
            let inner = rest[module.len()..].strip_prefix("::").unwrap_or_default();
            names.extend(
                firsts(inner)
                    .iter()
                    .map(|inner| format!("{module}::{inner}")),
            );
            names.insert(module);
        }
    }
    names
}

/// Which libraries code uses, what of the standard library reaches outside, and whether it asks a clock.
fn others(code: &str, libraries: &Names) -> Names {
    let used = |name: &String| after(code, &format!("{name}::")).next().is_some();
    let mut names: Names = libraries
        .iter()
        .filter(|name| used(name))
        .cloned()
        .collect();
    for rest in after(code, "std::") {
        let modules = firsts(rest).into_iter();
        let outside = modules.filter(|module| OUTSIDE.contains(&module.as_str()));
        names.extend(outside.map(|module| format!("std::{module}")));
    }
    if code.contains("::now()") || code.contains("Instant::now") {
        names.insert("now()".to_owned());
    }
    names
}

fn libraries() -> Names {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let names = manifest
        .get("dependencies")
        .unwrap()
        .as_table()
        .unwrap()
        .keys();
    names.map(|name| name.replace('-', "_")).collect()
}

#[test]
fn every_part_uses_what_its_row_of_the_table_says_and_nothing_else() {
    let (table, parts, libraries) = (table(), parts(), libraries());
    let rows: Names = table.keys().cloned().collect();
    assert_eq!(
        rows,
        parts.keys().cloned().collect::<Names>(),
        "rows of the table, and parts"
    );
    let mut faults = Vec::new();
    for (part, files) in &parts {
        let mut used = [Names::new(), Names::new()];
        let may = &table[part];
        for (file, code) in files {
            let uses = [ours(code, part), others(code, &libraries)];
            for ((allowed, uses), used) in may.iter().zip(uses).zip(&mut used) {
                let listed = quoted(allowed);
                // A row may name a module, or only some of what is in it.
                let is_covered = |name: &String| match name.split_once("::") {
                    Some(("std", _)) | None => {
                        listed.contains(name)
                            || listed.iter().any(|one| {
                                one.split_once("::")
                                    .is_some_and(|(module, _)| module == name)
                            })
                    }
                    Some((module, _)) => listed.contains(module) || listed.contains(name),
                };
                let strangers = uses
                    .iter()
                    .filter(|name| allowed != EVERYTHING && !is_covered(name));
                faults.extend(strangers.map(|name| format!("{file} uses {name}")));
                used.extend(uses);
            }
        }
        for (allowed, used) in may.iter().zip(used) {
            let unused = quoted(allowed)
                .into_iter()
                .filter(|name| !used.contains(name));
            faults.extend(
                unused.map(|name| format!("the row of {part} has {name}, which it does not use")),
            );
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_library_is_used() {
    let libraries = libraries();
    let used: Names = product_files()
        .iter()
        .flat_map(|file| others(&product_lines(&read(file)).join("\n"), &libraries))
        .collect();
    let idle: Vec<&String> = libraries.difference(&used).collect();
    assert!(idle.is_empty(), "{idle:?}");
}

#[test]
fn no_path_leads_around_the_table() {
    for file in product_files() {
        let code = product_lines(&read(&file)).join("\n");
        // As many `super` as the file lies deep lead where `crate` does.
        let to_the_top = "super::".repeat(file.trim_end_matches("/mod.rs").matches('/').count());
        assert!(
            !code.contains(&to_the_top),
            "{file}: write `crate::` for {to_the_top}"
        );
        assert!(
            after(&code, "std::").all(|rest| !rest.starts_with('{')),
            "{file}: one `use` for each module, please"
        );
    }
}

#[test]
fn only_apply_sends_changes() {
    let sends = |code: &str| {
        code.contains("PatchKind")
            || code.contains(".patch(")
            || code.contains(".create(&")
            || code.contains(".create(event")
    };
    let senders: Vec<String> = product_files()
        .into_iter()
        .filter(|file| !file.starts_with("src/kubeapi/"))
        .filter(|file| sends(&product_lines(&read(file)).join("\n")))
        .collect();
    assert_eq!(senders, ["src/apply/mod.rs"]);
}

#[test]
fn what_reads_does_not_write_and_the_wire_knows_no_labels() {
    // Each way to write: of the standard library, of nix, and our own.
    let writes = [
        "fs::write",
        "fs::remove",
        "fs::create",
        "fs::rename",
        "fs::set_permissions",
        "File::create",
        "OpenOptions",
        "durable",
        "fcntl",
        "unlink",
        "mkdir",
        "renameat",
        "symlink",
        "write_all",
    ];
    let silent: [(&str, &[&str]); 3] = [
        ("src/observe/", &writes),
        (
            "src/kubeapi/",
            &["topology.", "harvesterhci", "failure-domain"],
        ),
        ("src/apply/", &["sleep", "identify(", "decide::plan"]),
    ];
    for (folder, words) in silent {
        let files: Vec<String> = product_files()
            .into_iter()
            .filter(|file| file.starts_with(folder))
            .collect();
        assert!(!files.is_empty(), "{folder} holds no code");
        for file in files {
            let code = product_lines(&read(&file)).join("\n");
            for word in words {
                assert!(!code.contains(word), "{file}: {word}");
            }
        }
    }
}
