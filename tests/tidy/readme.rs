// SPDX-License-Identifier: Apache-2.0
//! README and pages are true: what they link to and name exists, and the configuration is accepted.

use std::collections::BTreeSet;
use std::fs;

use harvester_node_agent::config;
use harvester_node_agent::sys::root::Root;

use super::{files, read, top};

/// Returns what people read: README, pages, changelog and others, each as its path from the top and its text.
pub(super) fn documents() -> Vec<(String, String)> {
    let mut paths = files("packaging/docs/pages");
    let others = [
        "README.md",
        "packaging/CHANGELOG.md",
        ".github/CONTRIBUTING.md",
        ".github/SECURITY.md",
    ];
    paths.extend(others.map(str::to_owned));
    let paths = paths.into_iter();
    paths.map(|path| (path.clone(), read(&path))).collect()
}

/// Returns the code of a text: what is between backticks, and lines that are indented or begin with a prompt.
pub(super) fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let whole = line.strip_prefix("    ").or(line.strip_prefix("$ "));
        let parts = line.split('`').skip(1).step_by(2);
        let parts = parts.filter(move |_| whole.is_none());
        whole.into_iter().chain(parts)
    })
}

/// Returns the name of a heading in links.
fn anchor(heading: &str) -> String {
    let mut name = heading.trim_start_matches('#').trim().to_lowercase();
    name.retain(|c| c.is_alphanumeric() || "-_ ".contains(c));
    name.replace(' ', "-")
}

#[test]
fn each_link_and_each_path_leads_somewhere() {
    let folders = ["src/", "tests/", "packaging/", "systemd/", "cloud-init/"];
    let mut lost = Vec::new();
    for (path, text) in documents() {
        let headings = text.lines().filter(|line| line.starts_with('#'));
        let anchors: BTreeSet<String> = headings.map(anchor).collect();
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split(')').next());
        let links = links.filter(|link| !link.starts_with("https://"));
        let is_lost = |link: &&str| match link.strip_prefix('#') {
            Some(name) => !anchors.contains(name),
            None => !top().join(&path).with_file_name(link).exists(),
        };
        let named = code(&text).filter_map(|code| code.split_whitespace().next());
        let paths = named.filter(|name| folders.iter().any(|folder| name.starts_with(folder)));
        let gone = paths.filter(|path| !top().join(path).exists());
        let gone = gone.chain(links.filter(is_lost));
        lost.extend(gone.map(|name| format!("{path}: {name}")));
    }
    assert!(lost.is_empty(), "named and not there: {}", lost.join(", "));
}

#[test]
fn walkthroughs_and_failures_name_what_is_there() {
    let sources = ["src", "tests"].into_iter().flat_map(files);
    let bytes = sources.map(|path| fs::read(top().join(path)).unwrap());
    let text = String::from_utf8_lossy(&bytes.collect::<Vec<_>>().concat()).into_owned();
    let page = read("packaging/docs/pages/development.md");
    let sections = page.split("\n## ");
    let sections = sections.filter(|text| ["Walk", "Fail"].iter().any(|one| text.starts_with(one)));
    for name in sections
        .flat_map(code)
        .filter(|name| !name.contains(['/', ' ', '.']))
    {
        let name = name.split(['(', ':']).next().unwrap();
        assert!(text.contains(name), "no `{name}`");
    }
}

#[test]
fn the_readme_is_short_and_its_configuration_is_accepted_and_it_links_to_each_page() {
    let readme = read("README.md");
    let mut pages = files("packaging/docs/pages").into_iter();
    let missing = pages.find(|page| page.ends_with(".7.md") && !readme.contains(page));
    assert_eq!(missing, None, "not in README.md");
    assert!(readme.lines().count() <= 200 && readme.len() <= 16 * 1024);
    let mut blocks = readme.split("```");
    let text = blocks.find_map(|block| block.strip_prefix("toml\n"));
    let tree = tempfile::tempdir().unwrap();
    let folder = tree.path().join("etc/harvester-node-agent");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), text.unwrap()).unwrap();
    let loaded = config::load(&Root::new(tree.path()), None).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}
