// SPDX-License-Identifier: Apache-2.0
//! `explain`: prints the catalog entries of findings.

use clap::Args;
use serde_json::{Value, json};

use super::answer::{Answer, Exit, Output, with};
use super::process::Process;
use crate::catalog::{Code, Entry, Group};
use crate::config::closest;
use crate::decide::label_state;
use crate::decide::name_match::Verdict;
use crate::report::problem::Problem;
use crate::report::text::{Show, Text};
use crate::sys::escape::json_text;

/// The maximum number of suggestions.
const SUGGESTIONS: usize = 3;

/// The text after the options in the help.
pub const EXIT_STATUS: &str = "Exit status: 0 ok; 2 unknown code, or usage error.";

/// What `explain` takes.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Codes of findings, such as hostname-differs; lists all codes if none is given
    #[arg(value_name = "CODE")]
    pub codes: Vec<String>,
    /// Explain every finding
    #[arg(long, conflicts_with = "codes")]
    pub all: bool,
}

/// Explains the findings with these names, or lists all.
pub fn run(process: &Process, options: &Options) -> Answer {
    let (output, show) = (process.output, process.show_now());
    let names = &options.codes;
    if names.is_empty() && !options.all {
        return Answer::new(list(output, show), Exit::Ok);
    }
    let (mut explained, mut stderr) = (Vec::new(), String::new());
    if options.all {
        explained.extend(all());
    }
    for name in names {
        match all().find(|entry| is_same(entry.code.as_str(), name)) {
            Some(entry) => explained.push(entry),
            None => stderr.push_str(&unknown(name)),
        }
    }
    let text = match output {
        _ if explained.is_empty() => String::new(),
        Output::Json => values(explained.into_iter()),
        Output::Text => {
            // The catalog has no other details.
            let mut out = Text::new(Show {
                verbose: true,
                ..show
            });
            for (index, entry) in explained.into_iter().enumerate() {
                if index > 0 {
                    out.blank();
                }
                write(entry, &mut out);
            }
            out.finish()
        }
    };
    let exit = match stderr.as_str() {
        "" => Exit::Ok,
        _ => Exit::Usage,
    };
    Answer { text, stderr, exit }
}

/// Converts a name to the form in the catalog, without the characters that are copied with it.
fn plain(name: &str) -> String {
    let name = name.trim_matches(|character: char| !character.is_ascii_alphabetic());
    name.to_ascii_lowercase().replace('_', "-")
}

/// Reports whether a name is that of a code or a state, with `-` or `_` between the words, or as the reason of a condition or Event.
fn is_same(code: &str, name: &str) -> bool {
    let squashed = |name: &str| plain(name).replace('-', "");
    squashed(code) == squashed(name)
}

fn unknown(name: &str) -> String {
    let labels = label_state::all().into_iter().map(|state| state.name());
    let verdicts = Verdict::ALL
        .iter()
        .map(|verdict| verdict.as_str().to_owned());
    let mut states = labels.chain(verdicts);
    if states.any(|state| is_same(&state, name)) {
        return format!(
            "error: `{}` is a state and no finding; man 7 harvester-node-agent-states describes it\n",
            name.escape_debug()
        );
    }
    let plain = plain(name);
    let names = || all().map(|entry| entry.code.as_str());
    let parts = names().filter(|code| plain.len() > 2 && code.contains(&plain));
    let mut near: Vec<&str> = parts.take(SUGGESTIONS).collect();
    if near.is_empty() {
        near.extend(closest(&plain, names()));
    }
    let near: Vec<String> = near.iter().map(|code| format!("`{code}`")).collect();
    let hint = match near.as_slice() {
        [] => "; `harvester-node-agent explain` lists all".to_owned(),
        near => format!("; did you mean {}?", near.join(" or ")),
    };
    format!(
        "error: no finding has the code `{}`{hint}\n",
        name.escape_debug()
    )
}

fn all() -> impl Iterator<Item = &'static Entry> {
    Code::ALL.iter().map(|code| code.entry())
}

fn write(entry: &'static Entry, out: &mut Text) {
    let problem = Problem::of(entry);
    Problem::write(&[&problem], out);
    if !entry.suppresses.is_empty() {
        let codes = entry.suppresses.iter().map(|code| code.as_str());
        out.item("Hides", &codes.collect::<Vec<_>>().join(", "));
    }
    for (index, link) in problem.links.iter().enumerate() {
        out.item(if index == 0 { "See" } else { "" }, link);
    }
    out.item("Group", entry.group.title());
}

fn value(entry: &'static Entry) -> Value {
    let value = json!(Problem::of(entry));
    with(value, "suppresses", json!(entry.suppresses))
}

/// Lists all codes with their titles, by group.
fn list(output: Output, show: Show) -> String {
    if output == Output::Json {
        return values(all());
    }
    let mut out = Text::new(show);
    for group in Group::ALL {
        out.put("", &format!("{}:", group.title()));
        for entry in all().filter(|entry| entry.group == *group) {
            let (name, severity) = (entry.code.as_str(), entry.severity.as_str());
            out.put(&format!("  {name:<30} {severity:<8} "), entry.title);
        }
        out.blank();
    }
    out.put("", "Explain one: harvester-node-agent explain CODE");
    out.finish()
}

fn values(explained: impl Iterator<Item = &'static Entry>) -> String {
    let values: Vec<Value> = explained.map(value).collect();
    json_text(&json!(values))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::text::TermStyle;
    use crate::sys::root::Root;

    fn explain(name: &str) -> Answer {
        let codes = vec![name.to_owned()];
        run(&process(80), &Options { codes, all: false })
    }

    fn process(width: usize) -> Process {
        Process {
            term: TermStyle {
                width,
                ..TermStyle::PLAIN
            },
            ..Process::plain(Root::new("/"))
        }
    }

    /// Returns the words of a text without its line breaks.
    pub(crate) fn words(text: &str) -> String {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ")
    }

    #[test]
    fn every_code_is_explained() {
        for code in Code::ALL {
            let answer = explain(code.as_str());
            assert_eq!(answer.exit, Exit::Ok);
            let entry = code.entry();
            let shown = words(&answer.text);
            let parts = [entry.group.title(), entry.title, entry.impact];
            for part in parts.iter().chain(entry.fix) {
                assert!(shown.contains(part), "{}", answer.text);
            }
            assert!(shown.contains(&format!("[{code}]")), "{}", answer.text);
            for command in entry.commands {
                let heading = format!("\n            # {}\n", command.place.title());
                assert!(answer.text.contains(&heading), "{}", answer.text);
                let line = format!("\n            {}\n", command.text);
                assert!(answer.text.contains(&line), "{}", answer.text);
            }
            for link in code.links() {
                let mut lines = answer.text.lines();
                assert!(lines.any(|line| line.get(12..) == Some(link)), "{link}");
            }
        }
    }

    #[test]
    fn no_line_but_a_command_or_a_link_is_wider_than_the_terminal() {
        let (codes, all) = (Vec::new(), true);
        let all = Options { codes, all };
        for width in [40, 80, 120] {
            let text = run(&process(width), &all).text;
            let wide = text.lines().filter(|line| line.chars().count() > width);
            let is_command = |line: &&str| {
                let mut commands = Code::ALL.iter().flat_map(|code| code.entry().commands);
                commands.any(|command| command.text == line.trim())
            };
            let link = |line: &str| line.trim_start_matches("  See").trim().to_owned();
            // Below a place that is cut, its rest would be a command.
            let is_place = |line: &&str| line.trim().starts_with("# ") && width < 80;
            let wide = wide.filter(|line| link(line).contains(' '));
            let wide = wide.filter(|line| !is_command(line) && !is_place(line));
            assert_eq!(wide.collect::<Vec<_>>(), [""; 0], "{width}");
        }
    }

    #[test]
    fn the_list_has_every_code_once_below_its_group() {
        let list = run(&process(80), &Options::default()).text;
        for code in Code::ALL {
            let line = format!("\n  {code} ");
            assert_eq!(list.matches(&line).count(), 1, "{code}");
        }
        for group in Group::ALL {
            assert!(list.contains(&format!("{}:\n", group.title())));
        }
    }

    #[test]
    fn an_unknown_code_is_escaped() {
        let hostile = explain("\u{1b}[31m").stderr;
        assert!(!hostile.contains('\u{1b}'), "{hostile}");
    }
}
