// SPDX-License-Identifier: Apache-2.0
//! The page of the findings is written from the catalog.

use harvester_node_agent::catalog::{Code, Group};

const FILE: &str = "packaging/docs/pages/harvester-node-agent-findings.7.md";

/// The first rows of each table.
const HEADER: &str = "| finding | severity | problem |\n|---|---|---|\n";

/// Returns the page.
fn page() -> String {
    let mut text = String::from(
        "# harvester-node-agent-findings - every problem that the agent reports\n\n\
         <!-- Generated from src/catalog/entries.rs: WRITE_EXPECTED=1 cargo test --test tidy findings:: -->\n\n\
         ## Description\n\n\
         Each finding has a code, which does not change after the first release. `harvester-node-agent explain CODE` prints its page with the commands that fix it and \
         where to run them; `harvester-node-agent doctor` shows the findings of this node.\n",
    );
    for group in Group::ALL {
        let codes = Code::ALL.iter().map(|code| code.entry());
        let entries: Vec<_> = codes.filter(|entry| entry.group == *group).collect();
        if entries.is_empty() {
            continue;
        }
        let title = capitalized(group.title());
        text.push_str(&format!("\n## {title}\n\n{HEADER}"));
        for entry in entries {
            let (name, severity, title) =
                (entry.code.as_str(), entry.severity.as_str(), entry.title);
            text.push_str(&format!("| `{name}` | {severity} | {title} |\n"));
        }
    }
    text.push_str(
        "\n## See also\n\n`harvester-node-agent-explain`(1), `harvester-node-agent-doctor`(1)\n",
    );
    text
}

/// Returns a heading with a capital, unless it begins with the name of a program.
fn capitalized(text: &str) -> String {
    if text.contains('-') {
        return text.to_owned();
    }
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

#[test]
fn the_page_in_the_tree_is_the_catalogs() {
    harvester_lab::expected::is_expected(FILE, &page(), str::to_owned);
}
