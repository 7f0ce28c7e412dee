// SPDX-License-Identifier: Apache-2.0
//! The words of the field: README, pages and the help of each command have no phrase of [`PHRASES`].

use clap::{Command, CommandFactory};
use harvester_node_agent::commands::Arguments;

use super::readme::documents;

/// Phrases, and what to say instead: terms of the documentation of kubectl, systemd, KubeVirt and Prometheus, in US spelling.
const PHRASES: &str = "
has ended, have ended, ended at, ends at, ends soon, does not end: expired, expires
started again, starts again, ended with, ends with 0, ends with 1: restarted, exits with status
tried again, tries again, look again, looks again, asked again: retry
does not answer, did not answer, do not answer, says nothing, given up: unreachable, timed out
the answer, an answer, no answer, answers, answered, hears, heard: response, receives
refused, refuses, refuse, refusal, may not: forbidden, rejected, conflict, is not allowed to
asked for, is asked, not asked, not seen, unseen: requested, queried, skipped
a look, the look, each look, next look, looked at, looked for, looks at: reconcile, check, search
cannot see, is seen, noticed, notices, wakes: detected, triggers a reconcile
for want of, silences, silenced: skipped: depends on, suppresses
complaint, complaints, complains, fault, faults, faulty, illegal: finding, problem, error, invalid
mend, mends, mended, put right, set right: fix, correct
a sign, the sign, signs of, a move, the move, has moved, it moved, host before: hint, migration, previous host
tell, tells, told: show, report, provide
changes back, changed back, to and fro, fight, fights, rival, rivals: reverts, flaps, conflict, field manager
foreign, twin, twins, on purpose: not managed by the agent, deprecated beta label, intentionally
host name, host names: hostname (guest OS), name of the host (Harvester)
machine, machines, guest agent, authority, authorities: node, VM, qemu-guest-agent, CA certificate
our, ours, us, we, in step, yet to come: the agent, synchronized, in the future
labelled, labelling, licence, colour, behaviour, neighbour, honour, catalogue, centre, cancelled, whilst, artefact: US spelling
recognise, initialise, initialised, synchronise, authorised, serialise, normalise, organisation, analyse: US spelling
";

/// Where a word of [`PHRASES`] is the term of the field.
const STANDARD: &str = "connection refused, virtual machine, build machine, fault injection";

/// Returns the phrases of a text, each with what to say instead and what follows. Code is left out; it and marks end a phrase.
fn banned(text: &str) -> Vec<String> {
    const MARKS: &[char] = &['.', ',', ';', ':', '!', '?', '(', ')', '*', '"', '<', '>'];
    let prose: Vec<&str> = text.split('`').step_by(2).collect();
    let prose = prose.join(" | ").to_lowercase().replace(MARKS, " | ");
    let words: Vec<&str> = prose.split_whitespace().collect();
    let words = format!(" {} ", words.join(" "));
    let without = |words: String, term| words.replace(term, "|");
    let words = STANDARD.split(", ").fold(words, without);
    let rows = PHRASES.lines().filter_map(|row| row.split_once(": "));
    let phrases = rows.flat_map(|(phrases, say)| phrases.split(", ").map(move |one| (one, say)));
    let found = phrases.filter_map(|(phrase, say)| {
        let at = words.find(&format!(" {phrase} "))?;
        let here: String = words[at..].chars().take(60).collect();
        Some(format!("`{phrase}`, say: {say} (...{here}...)"))
    });
    found.collect()
}

/// Adds the help of a command and of those below it.
fn help(command: &mut Command, found: &mut Vec<(String, String)>) {
    let text = command.render_long_help().to_string();
    found.push((format!("{} --help", command.get_name()), text));
    for below in command.get_subcommands_mut() {
        help(below, found);
    }
}

/// What runs as it comes from the network was read by nobody.
#[test]
fn no_text_pipes_a_download_into_a_shell() {
    let folders = ["packaging", "cloud-init", "systemd"];
    let files = folders.into_iter().flat_map(super::files);
    let files = files.filter_map(|path| {
        Some((
            path.clone(),
            std::fs::read_to_string(super::top().join(path)).ok()?,
        ))
    });
    for (path, text) in documents().into_iter().chain(files) {
        for line in text
            .lines()
            .filter(|line| ["curl ", "wget "].iter().any(|one| line.contains(one)))
        {
            let shells = [
                "| sh", "| bash", "| sudo", "<(curl", "<(wget", "$(curl", "$(wget",
            ];
            assert!(
                !shells.iter().any(|shell| line.contains(shell)),
                "{path}: {line}"
            );
        }
    }
}

#[test]
fn no_text_has_a_word_of_our_own() {
    let planted = "Token\nhas Ended; a (foreign) label was refused, connection refused: `fault`";
    assert_eq!(banned(planted).len(), 3);
    let mut texts = documents();
    help(&mut Arguments::command(), &mut texts);
    assert!(texts.len() > 20, "{}", texts.len());
    let found = texts.iter().map(|(path, text)| (path, banned(text)));
    let found: Vec<_> = found.filter(|(_, found)| !found.is_empty()).collect();
    assert!(found.is_empty(), "{found:#?}");
}
