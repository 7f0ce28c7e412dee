// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_code_has_all_its_parts_and_a_name_of_its_own() {
    let mut names = BTreeSet::new();
    for entry in Code::ALL.iter().map(|code| code.entry()) {
        assert!(names.insert(entry.name), "{} twice", entry.name);
        assert!(
            entry
                .name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
            "{}",
            entry.name
        );
        assert_eq!(Code::parse(entry.name), Some(entry.code));
        assert_eq!(entry.code.as_str(), entry.name);
        assert!(is_fragment(entry.title), "{}: {}", entry.name, entry.title);
        assert!(!entry.fix.is_empty(), "{}", entry.name);
        for text in entry.fix.iter().chain([&entry.impact]) {
            assert!(is_sentence(text), "{}: {text}", entry.name);
        }
        assert!(
            !entry.suppresses.contains(&entry.code),
            "{} suppresses itself",
            entry.name
        );
    }
}

/// Reports whether it is a title: one line without a final period that fits in a line of a terminal.
fn is_fragment(text: &str) -> bool {
    (6..=90).contains(&text.len()) && !text.ends_with('.') && !text.contains('\n')
}

fn is_sentence(text: &str) -> bool {
    let ends = text.ends_with(['.', '?']);
    (6..=290).contains(&text.len()) && ends && !text.contains('\n')
}

#[test]
fn no_command_runs_a_script_from_the_network() {
    for code in Code::ALL {
        let entry = code.entry();
        let commands = entry.commands.iter().map(|command| &*command.text);
        for text in commands.chain(entry.fix.iter().copied()) {
            let is_piped =
                text.contains("| bash") || text.contains("| sh") || text.contains("<(curl");
            assert!(!is_piped, "{code}: {text}");
        }
    }
}

#[test]
fn every_group_is_listed_once_and_in_order() {
    assert!(Group::ALL.is_sorted());
    for entry in Code::ALL.iter().map(|code| code.entry()) {
        assert!(Group::ALL.contains(&entry.group), "{}", entry.name);
    }
}

#[test]
fn every_code_has_a_page_to_read_on_and_no_page_twice() {
    for code in Code::ALL {
        let links = code.links();
        assert!(!links.is_empty(), "{code}");
        let pages: BTreeSet<&str> = links.iter().copied().collect();
        assert_eq!(pages.len(), links.len(), "{code}");
        assert!(
            pages.iter().all(|page| page.starts_with("https://")),
            "{code}"
        );
    }
}

#[test]
fn a_known_cause_suppresses_its_consequences() {
    let cause = Finding::new(Code::HarvesterUnreachable, "timeout");
    let consequence = Finding::new(Code::NoTopologySource, "no source");
    let other = Finding::new(Code::CredentialExposed, "0644");
    assert_eq!(
        without_consequences(&[consequence, cause.clone(), other.clone()]),
        [cause, other]
    );
}

#[test]
fn what_is_wrong_with_one_api_explains_nothing_at_the_other() {
    let misnamed = |group| Finding::new(Code::ServerNotInCertificate, "other names").about(group);
    let distrusted = Finding::new(Code::GuestApiTlsError, "unknown issuer");
    for (group, is_left) in [(Group::HarvesterApi, true), (Group::Node, false)] {
        let left = without_consequences(&[misnamed(group), distrusted.clone()]);
        assert_eq!(left.contains(&distrusted), is_left, "{group:?}");
    }
}

#[test]
fn no_finding_is_explained_by_its_own_consequence() {
    for code in Code::ALL {
        let mut causes = vec![*code];
        let mut next = 0;
        while let Some(cause) = causes.get(next) {
            let suppressed = cause.entry().suppresses;
            assert!(!suppressed.contains(code), "{code} through {cause}");
            let new: Vec<Code> = suppressed
                .iter()
                .copied()
                .filter(|code| !causes.contains(code))
                .collect();
            causes.extend(new);
            next += 1;
        }
    }
}

#[test]
fn every_name_in_a_command_can_be_filled_in_or_is_the_readers() {
    for code in Code::ALL {
        for command in code.entry().commands {
            let filled = command.filled(|_| Some("name"));
            assert!(
                !filled.replace("> /root/", "").contains(['<', '>']),
                "{code}: {filled}"
            );
            let capitals = filled
                .split(|character: char| !character.is_ascii_alphanumeric() && character != ':');
            let is_bare =
                |word: &&str| ["NODE", "VM", "NAMESPACE", "HOST", "SERVER", "NAME"].contains(word);
            let bare: Vec<&str> = capitals.filter(is_bare).collect();
            assert_eq!(bare, Vec::<&str>::new(), "{code}: {}", command.text);
        }
    }
}

#[test]
fn a_name_is_one_word_for_the_shell() {
    let command = FixCommand {
        place: CommandPlace::Vm,
        text: "grep -n server: <KUBECONFIG>".into(),
    };
    let filled = command.filled(|name| (name == CommandWord::Kubeconfig).then_some("/a b/'c'"));
    assert_eq!(filled, r"grep -n server: '/a b/'\''c'\'''");
    assert_eq!(command.filled(|_| None), command.text);
}

#[test]
fn each_command_stands_where_its_program_can_do_it() {
    for code in Code::ALL {
        for command in code.entry().commands {
            let program = command.text.split(' ').next().unwrap();
            let is_there = match command.place {
                CommandPlace::GuestCluster | CommandPlace::Harvester => program == "kubectl",
                CommandPlace::Vm | CommandPlace::Image => program != "kubectl",
            };
            assert!(is_there, "{code}: {}", command.text);
        }
    }
}
