// SPDX-License-Identifier: Apache-2.0
//! Renders the reference pages of `packaging/docs/pages`, which are Markdown, as manual pages.
//!
//! A page is `NAME.SECTION.md` and begins with `# NAME - DESCRIPTION`. A heading of the second level becomes a section, one of
//! the third a subsection. A row of a table becomes an entry whose tag is the first cell: manual pages have no columns that
//! wrap. The page of the configuration file gets its keys from the shipped defaults.

use std::error::Error;
use std::fs;
use std::path::Path;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use roff::{Inline, Roff, bold, italic, roman};

use crate::configuration;

/// Where the sources are, from this crate's directory.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pages");

/// Returns each page as its file name below the output directory and its text.
///
/// # Errors
///
/// Fails if a file cannot be read, is not named `NAME.SECTION.md`, or does not begin with its name and description.
pub(crate) fn all(date: &str) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(Path::new(SOURCES))? {
        let path = entry?.path();
        let file = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let Some((name, section)) = page_name(file) else {
            continue;
        };
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = text.replace(configuration::MARK, &configuration::keys());
        let page =
            render(name, section, date, &text).map_err(|error| format!("{file}: {error}"))?;
        pages.push((format!("man/{name}.{section}"), page));
    }
    pages.sort();
    Ok(pages)
}

/// Splits `NAME.SECTION.md`; a file without a section is not a manual page.
fn page_name(file: &str) -> Option<(&str, &str)> {
    let (name, section) = file.strip_suffix(".md")?.rsplit_once('.')?;
    (section.len() == 1 && section.bytes().all(|byte| byte.is_ascii_digit()))
        .then_some((name, section))
}

/// Renders one page.
fn render(name: &str, section: &str, date: &str, markdown: &str) -> Result<String, String> {
    let (title, body) = markdown.split_once('\n').unwrap_or((markdown, ""));
    let description = title
        .strip_prefix(&format!("# {name} - "))
        .ok_or_else(|| format!("the first line is not `# {name} - DESCRIPTION`"))?;
    let mut roff = Roff::new();
    let source = "harvester-node-agent";
    roff.control("TH", [name, section, date, source, "Harvester node agent"]);
    let mut roff = layout(roff);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {description}"))]);
    Ok(append(roff, body).to_roff())
}

/// Disables hyphenation and justification, because users copy commands and paths from a page.
pub(crate) fn layout(mut roff: Roff) -> Roff {
    roff.control("nh", []);
    roff.control("ad", ["l"]);
    roff
}

/// Appends Markdown to a page.
pub(crate) fn append(roff: Roff, markdown: &str) -> Roff {
    let mut page = Page {
        roff,
        ..Page::default()
    };
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.event(&event);
    }
    page.roff
}

/// A page while it is written.
#[derive(Default)]
struct Page {
    roff: Roff,
    /// The text of the block that is being read.
    line: Vec<Inline>,
    /// Whether text is emphasized.
    is_italic: bool,
    /// The address of the link that is being read.
    link: Option<String>,
    /// The numbers of the lists around the current item; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// The first paragraph of an item follows its mark.
    is_item_start: bool,
    /// The cells of the current table's first row.
    header: Vec<Vec<Inline>>,
    /// The cells of the current row.
    cells: Vec<Vec<Inline>>,
}

impl Page {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(*tag),
            Event::Text(text) if self.is_italic => self.line.push(italic(text.to_string())),
            Event::Text(text) => self.line.push(roman(text.to_string())),
            Event::Code(text) => self.line.push(bold(text.to_string())),
            Event::SoftBreak | Event::HardBreak => self.line.push(roman(" ")),
            _ => {}
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Paragraph if self.is_item_start => self.is_item_start = false,
            Tag::Paragraph => {
                let request = if self.lists.is_empty() { "PP" } else { "IP" };
                self.roff.control(request, []);
            }
            Tag::CodeBlock(_) => {
                self.flush();
                self.roff.control("RS", ["4"]);
                self.roff.control("nf", []);
            }
            Tag::List(first) => {
                self.flush();
                self.lists.push(*first);
            }
            Tag::Item => {
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let mark = format!("{number}.");
                        *number += 1;
                        mark
                    }
                    _ => "\u{2022}".to_owned(),
                };
                self.roff.control("IP", [mark.as_str(), "3"]);
                self.is_item_start = true;
            }
            Tag::Emphasis | Tag::Strong => self.is_italic = true,
            Tag::Link { dest_url, .. } => self.link = Some(dest_url.to_string()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => {
                let title = plain(&std::mem::take(&mut self.line));
                let (request, title) = match level {
                    HeadingLevel::H1 | HeadingLevel::H2 => ("SH", title.to_uppercase()),
                    _ => ("SS", title),
                };
                self.roff.control(request, [title.as_str()]);
            }
            TagEnd::Paragraph => self.flush(),
            TagEnd::Item => {
                self.flush();
                // An item of a list without blank lines has no paragraph.
                self.is_item_start = false;
            }
            TagEnd::CodeBlock => {
                for line in plain(&std::mem::take(&mut self.line)).lines() {
                    self.roff.text([roman(line)]);
                }
                self.roff.control("fi", []);
                self.roff.control("RE", []);
            }
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::Emphasis | TagEnd::Strong => self.is_italic = false,
            TagEnd::Link => {
                let link = self.link.take().unwrap_or_default();
                if link.starts_with("https://") {
                    self.line.push(roman(format!(" ({link})")));
                }
            }
            TagEnd::TableCell => self.cells.push(std::mem::take(&mut self.line)),
            TagEnd::TableHead => self.header = std::mem::take(&mut self.cells),
            TagEnd::TableRow => self.row(),
            _ => {}
        }
    }

    /// Writes one row of a table: the first cell as the tag, the others below it, with their column's name where there are several.
    fn row(&mut self) {
        let row = std::mem::take(&mut self.cells);
        let mut cells = row.into_iter().zip(self.header.clone());
        let Some((tag, _)) = cells.next() else { return };
        self.roff.control("TP", []);
        self.roff.text(tag);
        let cells: Vec<_> = cells.filter(|(cell, _)| !plain(cell).is_empty()).collect();
        let is_named = cells.len() > 1;
        for (index, (mut cell, column)) in cells.into_iter().enumerate() {
            if index > 0 {
                self.roff.control("br", []);
            }
            let column = plain(&column);
            if is_named && !column.is_empty() {
                cell.insert(0, roman(format!("{column}: ")));
            }
            self.roff.text(cell);
        }
    }

    fn flush(&mut self) {
        if !self.line.is_empty() {
            self.roff.text(std::mem::take(&mut self.line));
        }
    }
}

/// Returns text without its fonts.
fn plain(line: &[Inline]) -> String {
    line.iter()
        .map(|part| match part {
            Inline::Roman(text) | Inline::Bold(text) | Inline::Italic(text) => text.as_str(),
            Inline::LineBreak => " ",
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_paragraphs_code_lists_and_tables_become_requests() {
        let text = "# page - what it is\n\n## Usage\n\nRun `x` *now*\nor later.\n\n    x --root DIR\n\n1. one\n2. two\n\nAfter.\n\n### More\n\n\
                    | key | default | effect |\n|---|---|---|\n| `a` | 1 | does |\n";
        let page = render("page", "7", "2026-01-01", text).unwrap();
        for part in [
            ".TH page 7 2026-01-01 harvester-node-agent \"Harvester node agent\"\n",
            ".SH NAME\npage \\- what it is",
            ".SH USAGE\n.PP\nRun \\fBx\\fR \\fInow\\fR or later.",
            ".nf\nx \\-\\-root DIR\n.fi",
            ".IP 1. 3\none",
            ".IP 2. 3\ntwo\n.PP\nAfter.",
            ".SS More",
            ".TP\n\\fBa\\fR\ndefault: 1\n.br\neffect: does",
        ] {
            assert!(page.contains(part), "{part}\n---\n{page}");
        }
    }

    #[test]
    fn a_page_begins_with_its_name_and_description() {
        render("page", "7", "", "# other - x\n").unwrap_err();
        assert_eq!(page_name("a-b.7.md"), Some(("a-b", "7")));
        assert_eq!(page_name("a-b.toml.5.md"), Some(("a-b.toml", "5")));
        assert_eq!(page_name("development.md"), None);
    }

    #[test]
    fn every_page_in_the_directory_renders() {
        assert!(!all("2026-01-01").unwrap().is_empty());
    }
}
