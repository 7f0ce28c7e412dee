// SPDX-License-Identifier: Apache-2.0
//! A finding as every report shows it: one form in JSON and one as text.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::relative::relative;
use super::text::{SHOWN_MAX, Text, unique};
use crate::catalog::{Code, Entry, Finding, FixCommand, Group, PLACEHOLDERS, Severity};
use crate::sys::escape::one_line;

/// A finding, complete in itself: with the texts of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The code, for `explain`.
    pub code: Code,
    /// `error`, `warning` or `notice`.
    pub severity: Severity,
    /// The group: two findings of one code may be about different APIs.
    pub group: Group,
    /// The title.
    pub title: String,
    /// The observation, on which object; missing in an entry of the catalog.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub observed: String,
    /// The impact.
    pub impact: String,
    /// The steps of the fix.
    pub fix: Vec<String>,
    /// Commands to paste, in their order.
    #[serde(default)]
    pub commands: Vec<FixCommand>,
    /// The time of the first observation, RFC 3339; missing if only a single run observed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_observed_time: Option<String>,
    /// Pages about it.
    #[serde(default)]
    pub links: Vec<String>,
}

impl Problem {
    /// Creates a problem from a finding. `word` returns what stands for a placeholder in its steps and commands, if it is known.
    pub fn new<'a>(finding: &Finding, word: impl Fn(&str) -> Option<&'a str>) -> Self {
        let commands = finding.commands().iter().map(|command| FixCommand {
            place: command.place,
            text: Cow::Owned(command.filled(&word)),
        });
        Self {
            group: finding.group(),
            observed: finding.seen.clone(),
            fix: finding.steps_filled(&word),
            commands: commands.collect(),
            ..Self::of(finding.code.entry())
        }
    }

    /// Creates a problem from an entry of the catalog.
    pub fn of(entry: &Entry) -> Self {
        Self {
            code: entry.code,
            severity: entry.severity,
            group: entry.group,
            title: entry.title.to_owned(),
            observed: String::new(),
            impact: entry.impact.to_owned(),
            fix: entry.fix.iter().map(|step| (*step).to_owned()).collect(),
            commands: entry.commands.to_vec(),
            first_observed_time: None,
            links: entry.code.links().into_iter().map(str::to_owned).collect(),
        }
    }

    /// Returns the problem as one line.
    pub fn line(&self) -> String {
        let (severity, code) = (self.severity.as_str(), self.code);
        let observed = one_line(&self.observed, SHOWN_MAX);
        format!("{severity}: {}: {observed} [{code}]", self.title)
    }

    /// Appends problems with the same code as one. Unless all details are shown, a notice takes one line: `explain` has the rest.
    pub fn write(same: &[&Self], out: &mut Text) {
        let Some(first) = same.first() else { return };
        out.title(first.severity, &first.title, first.code.as_str());
        if first.severity == Severity::Notice && !out.show.verbose {
            return;
        }
        let observed = unique(same.iter().map(|one| one.observed.as_str()));
        let since = same
            .iter()
            .filter_map(|one| one.first_observed_time.as_deref());
        let since = since.min().map(|since| relative(out.show.now, since));
        let since = since.map(|since| format!(" (first observed {since})"));
        let mut rest = ("Observed", since.unwrap_or_default());
        for seen in observed.iter().filter(|seen| !seen.is_empty()) {
            let (name, since) = std::mem::take(&mut rest);
            out.item(name, &format!("{seen}{since}"));
        }
        out.item("Impact", &first.impact);
        let steps = unique(same.iter().flat_map(|one| &one.fix));
        out.steps("Fix", &steps);
        let commands = unique(same.iter().flat_map(|one| &one.commands));
        Self::write_commands(&steps, &commands, out);
    }

    /// Appends the commands below the place where they run, and what to put in the place of unknown words of these and of the steps.
    fn write_commands(steps: &[&String], commands: &[&FixCommand], out: &mut Text) {
        let mut place = None;
        for command in commands {
            let is_new = place.replace(command.place) != Some(command.place);
            // Not in one paste with the command that shows the difference.
            let is_after = command.text.starts_with("kubectl apply");
            let condition = if is_after { ", if that is right" } else { "" };
            if is_new || is_after {
                out.command("", &format!("# {}{condition}", command.place.title()));
            }
            out.command("", &command.text);
        }
        let is_shown = |word: &str| {
            steps.iter().any(|step| step.contains(word))
                || commands.iter().any(|command| command.text.contains(word))
        };
        let words = PLACEHOLDERS
            .iter()
            .filter(|(word, meaning)| !meaning.is_empty() && is_shown(word));
        let words = words.map(|(word, meaning)| format!("{word} = {meaning}"));
        let words: Vec<String> = words.collect();
        if !words.is_empty() {
            out.item("", &format!("Replace {}", words.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: Code, seen: &str) -> Problem {
        let word = |word: &str| (word == "<NODE>").then_some("n1");
        Problem::new(&Finding::new(code, seen), word)
    }

    #[test]
    fn every_problem_survives_json_with_its_commands() {
        for code in Code::ALL {
            let problem = found(*code, "this on that");
            let json = serde_json::to_string(&problem).unwrap();
            let read: Problem = serde_json::from_str(&json).unwrap();
            assert_eq!(read, problem, "{json}");
            let mut commands = problem.commands.iter();
            assert!(commands.all(|one| !one.text.contains("<NODE>")), "{json}");
        }
    }
}
