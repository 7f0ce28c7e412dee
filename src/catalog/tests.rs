// SPDX-License-Identifier: Apache-2.0

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::*;

/// Returns each command of each code.
fn commands() -> impl Iterator<Item = (Code, &'static FixCommand)> {
    Code::ALL.iter().flat_map(|code| {
        let commands = code.entry().commands.iter();
        commands.map(|command| (*code, command))
    })
}

#[test]
fn every_code_has_all_its_parts_and_a_name_of_its_own() {
    let mut names = BTreeSet::new();
    for entry in Code::ALL.iter().map(|code| code.entry()) {
        assert!(names.insert(entry.code.as_str()), "{} twice", entry.code);
        let is_kebab = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        let mut bytes = entry.code.as_str().bytes();
        assert!(bytes.all(is_kebab), "{}", entry.code);
        assert_eq!(kebab(entry.reason), entry.code.as_str());
        let links = entry.code.links();
        let pages: BTreeSet<&str> = links.iter().copied().collect();
        let is_few = (1..=2).contains(&links.len()) && pages.len() == links.len();
        assert!(is_few, "{}: {links:?}", entry.code);
        let is_address = links.iter().all(|page| page.starts_with("https://"));
        assert!(is_address, "{}", entry.code);
        assert_eq!(Code::parse(entry.code.as_str()), Some(entry.code));
        assert!(is_fragment(entry.title), "{}: {}", entry.code, entry.title);
        assert!(!entry.fix.is_empty(), "{}", entry.code);
        // Those of `bake-check` have commands for what it found.
        let has_commands = entry.group == Group::Image || !entry.commands.is_empty();
        assert!(has_commands, "{}", entry.code);
        for text in entry.fix.iter().chain([&entry.impact]) {
            assert!(is_sentence(text), "{}: {text}", entry.code);
            // `explain` and the journal show a step without the observation.
            let is_reference = text.contains(" above") || text.contains(" below");
            assert!(!is_reference, "{}: {text}", entry.code);
        }
        // No command runs a script from the network.
        let commands = entry.commands.iter().map(|command| &*command.text);
        for text in commands.chain(entry.fix.iter().copied()) {
            let mut pipes = ["| bash", "| sh", "<(curl"].iter();
            let is_piped = pipes.any(|pipe| text.contains(pipe));
            assert!(!is_piped, "{}: {text}", entry.code);
        }
    }
}

/// Reports whether it is a title, with or without an observation behind it: one line without a final period that fits in a line of a
/// terminal, and does not start with an article.
fn is_fragment(text: &str) -> bool {
    let mut articles = ["the ", "a ", "an ", "this "].iter();
    let has_article = articles.any(|article| text.starts_with(article));
    (6..=90).contains(&text.len()) && !text.ends_with('.') && !text.contains('\n') && !has_article
}

fn is_sentence(text: &str) -> bool {
    let ends = text.ends_with(['.', '?']);
    (6..=290).contains(&text.len()) && ends && !text.contains('\n')
}

#[test]
fn what_is_wrong_with_one_api_explains_nothing_at_the_other() {
    let misnamed = |group| Finding::new(Code::ServerNotInCertificate, "other names").about(group);
    let distrusted = Finding::new(Code::GuestApiTlsError, "unknown issuer");
    for (group, is_left) in [(Group::HarvesterApi, true), (Group::Node, false)] {
        let left = split_consequences(vec![misnamed(group), distrusted.clone()]).0;
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
            let new = suppressed.iter().filter(|code| !causes.contains(code));
            let new: Vec<Code> = new.copied().collect();
            causes.extend(new);
            next += 1;
        }
    }
}

#[test]
fn each_command_is_where_its_program_can_do_it_and_its_names_can_be_filled_in_or_are_the_readers() {
    const NAMES: [&str; 6] = ["NODE", "VM", "NAMESPACE", "HOST", "SERVER", "NAME"];
    for (code, command) in commands() {
        let program = command.text.split(' ').next().unwrap();
        let can_do_it = match command.place {
            CommandPlace::Guest => program == "kubectl",
            CommandPlace::Harvester => ["kubectl", "ssh"].contains(&program),
            CommandPlace::Vm | CommandPlace::Image => !["kubectl", "scp", "ssh"].contains(&program),
        };
        assert!(can_do_it, "{code}: {}", command.text);
        let filled = command.filled(|_| Some("name"));
        let redirected = filled.replace("> /root/", "").replace("> rbac.yaml", "");
        assert!(!redirected.contains(['<', '>']), "{code}: {filled}");
        let is_in_word = |letter: char| letter.is_ascii_alphanumeric() || letter == ':';
        let mut words = filled.split(|letter| !is_in_word(letter));
        let bare = words.find(|word| NAMES.contains(word));
        assert_eq!(bare, None, "{code}: {}", command.text);
    }
}

#[test]
fn a_name_is_one_word_for_the_shell() {
    let command = FixCommand {
        place: CommandPlace::Vm,
        text: "grep -n server: <KUBECONFIG>".into(),
    };
    let filled = |path| command.filled(|name| (name == "<KUBECONFIG>").then_some(path));
    assert_eq!(filled("/a/b"), "grep -n server: /a/b");
    // Quoted for one shell, these would still be commands for the second one behind `ssh`.
    let url = "https://$(reboot):6443";
    for path in ["/a b/'c'", "/a;b", url, "/a\nb", "<NODE>"] {
        assert_eq!(filled(path), command.text, "{path}");
    }
    let own = FixCommand {
        place: CommandPlace::Vm,
        text: Cow::Owned("chmod 0600 '/etc/<SERVER>'".to_owned()),
    };
    assert_eq!(own.filled(|_| Some("x")), own.text);
    assert_eq!(command.filled(|_| None), command.text);
}

#[test]
fn no_command_for_a_directory_in_the_place_of_a_kubeconfig_takes_files_away() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("pki/file")).unwrap();
    let path = dir.path().join("pki");
    let here = Code::CredentialIsDirectory.entry().commands.iter();
    let here = here.filter(|command| command.text.ends_with("<KUBECONFIG>"));
    for command in here.filter(|command| command.place == CommandPlace::Vm) {
        let text = command.filled(|name| path.to_str().filter(|_| name == "<KUBECONFIG>"));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &text]).status().unwrap();
        assert!(path.join("file").exists(), "{text}");
    }
}

/// What a node wrote is copied and shown before an administrator of Harvester applies it.
#[test]
fn a_manifest_from_a_node_is_reviewed_before_it_is_applied() {
    let mut count = 0;
    for code in Code::ALL {
        let commands = code.entry().commands.iter();
        let commands: Vec<&str> = commands.map(|command| &*command.text).collect();
        let at = |part: &str| commands.iter().position(|text| text.contains(part));
        if let Some(applied) = at("kubectl apply") {
            let written = at(" > /root/rbac.yaml");
            let copy = "ssh <USER>@<NODE_ADDRESS> sudo cat /root/rbac.yaml > rbac.yaml";
            let reviewed = at(&format!("{copy} && kubectl diff -f rbac.yaml"));
            let is_in_order = written.is_some() && written < reviewed && reviewed < Some(applied);
            assert!(is_in_order, "{code}: {commands:#?}");
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}

/// A Node that is deleted while its service runs registers again immediately, or never.
#[test]
fn a_node_is_deleted_after_its_service_has_stopped_and_before_it_starts() {
    let words = REJOIN_COMMANDS
        .iter()
        .map(|one| one.text.splitn(3, ' ').take(2));
    let order = words.flatten().collect::<Vec<_>>().join(" ");
    let expected = "kubectl drain systemctl stop kubectl delete systemctl start";
    assert_eq!(order, expected);
    assert!(REJOIN_SERVERS.contains("Never delete the Node of a server"));
}

/// The codes whose texts name something that is drained, deleted, reset or recreated, and why that harms nothing.
const DESTRUCTIVE: &str = "
node-of-another-vm: the UUID of the Node proves that two VMs have one credential; the step says on which one
kubelet-credential-missing: the Secret is that of a node that no longer has the name, which the step has checked first
no-topology-source, vm-labels-missing, guest-agent-not-connected: a Node is drained before its VM restarts
guest-agent-channel-missing, stop-grace-too-short: a Node is drained before its VM restarts
macvlan-missing: a Node is drained before it reboots; the kubelet writes a file of its configuration again
not-live-migratable, not-migrated-at-maintenance: the host shuts the VM down, drained or not
capacity-stale: the kubelet writes these files again, and does not start with the old ones
pods-in-other-zone: the controllers create the pods again; the step says what to check
overlay-mtu-too-large: the controllers create the pods again, with another MTU
";

/// The user has not seen the evidence, so the steps for a verdict belong to its finding, which has seen it.
#[test]
fn no_entry_drains_or_deletes_without_evidence() {
    const HARMFUL: &str = "drain delete unfreeze rm reset uninstall recreate";
    let is_harmful = |word: &str| HARMFUL.split(' ').any(|harmful| harmful == word);
    let is_destructive = |text: &str| {
        let text = text.to_lowercase();
        let sentences = text.split(['.', ';']);
        let mut words = sentences
            .filter(|sentence| !sentence.contains("do not"))
            .flat_map(|sentence| sentence.split(|letter: char| !letter.is_ascii_alphanumeric()));
        words.any(is_harmful)
    };
    let rows = DESTRUCTIVE.lines().filter_map(|row| row.split_once(": "));
    let listed = rows.flat_map(|(codes, _)| codes.split(", "));
    let listed: Vec<Code> = listed.map(|code| Code::parse(code).unwrap()).collect();
    for code in Code::ALL {
        let entry = code.entry();
        let commands = entry.commands.iter().map(|command| &*command.text);
        let texts = commands.chain(entry.fix.iter().copied());
        let found: Vec<&str> = texts.filter(|text| is_destructive(text)).collect();
        let is_listed = listed.contains(code);
        assert_eq!(!found.is_empty(), is_listed, "{code}: {found:#?}");
        let mut commands = entry.commands.iter();
        let is_harmless = commands.all(|command| !is_destructive(&command.text));
        assert!(is_harmless, "{code}");
    }
}

/// Only the verbose status lists them.
#[test]
fn event_sources_are_listed_by_the_verbose_status() {
    use Code::{EventSourceUnavailable, WatchInterrupted, WatchUnavailable};
    for code in [EventSourceUnavailable, WatchUnavailable, WatchInterrupted] {
        let mut commands = code.entry().commands.iter();
        let is_listed = commands.any(|one| one.text == "harvester-node-agent status -v");
        assert!(is_listed, "{code}");
    }
}

/// The output on a copy of a VM must not advise to delete the Node of the original.
#[test]
fn no_finding_that_may_replace_the_node_is_shown_for_the_node_of_another_vm() {
    use Code::{HostnameDiffers, ProviderIdDiffers, ProviderIdNotHarvester};
    let suppressed = Code::NodeOfAnotherVm.entry().suppresses;
    for code in [HostnameDiffers, ProviderIdDiffers, ProviderIdNotHarvester] {
        assert!(suppressed.contains(&code), "{code}");
    }
}
