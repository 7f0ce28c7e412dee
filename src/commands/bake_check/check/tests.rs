// SPDX-License-Identifier: Apache-2.0

use super::*;

/// A tree with these files.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

/// The finding with this code, and its commands without the directory of the tree.
fn found(dir: &tempfile::TempDir, code: Code) -> Option<(Finding, Vec<String>)> {
    let mut findings = check(&Root::new(dir.path()), None, dir.path()).into_iter();
    let finding = findings.find(|finding| finding.code == code)?;
    let commands = finding.commands().iter();
    let within = |text: &str| text.replace(dir.path().to_str().unwrap(), "");
    let commands = commands.map(|command| within(&command.text)).collect();
    Some((finding, commands))
}

#[test]
fn names_that_any_machine_may_have_pass() {
    for (name, passes) in [
        ("", true),
        ("localhost", true),
        ("localhost.localdomain", true),
        ("debian", true),
        ("ubuntu", false),
        ("worker-1", false),
        ("# managed by puppet\nlocalhost", true),
        ("# managed by puppet\nworker-1", false),
        ("# worker-1", true),
        ("node-????-????", true),
        ("web-$", true),
    ] {
        let dir = tree(&[(HOSTNAME, name), ("/etc/os-release", "ID=debian\n")]);
        let found = found(&dir, Code::ImageHostname);
        assert_eq!(found.is_none(), passes, "{name}");
        let commands = found.map(|(_, commands)| commands);
        assert!(commands.is_none_or(|commands| commands == ["truncate -s 0 /etc/hostname"]));
    }
}

#[test]
fn a_machine_id_is_anything_but_nothing_and_uninitialized() {
    for (text, passes) in [
        ("", true),
        ("uninitialized", true),
        ("7d1a", false),
        ("x", false),
    ] {
        let dir = tree(&[("/etc/machine-id", text)]);
        let found = found(&dir, Code::ImageMachineId);
        assert_eq!(found.is_none(), passes, "{text}");
    }
}

/// dbus-daemon rejects an empty ID; systemd initializes an empty machine-id.
#[test]
fn only_the_machine_id_of_dbus_is_removed_and_not_emptied() {
    for (path, command) in [
        ("/etc/machine-id", "truncate -s 0 /etc/machine-id"),
        (
            "/var/lib/dbus/machine-id",
            "rm -rf /var/lib/dbus/machine-id",
        ),
    ] {
        let dir = tree(&[(path, "7d1a")]);
        let (_, commands) = found(&dir, Code::ImageMachineId).unwrap();
        assert_eq!(commands, [command]);
    }
}

#[test]
fn a_service_has_one_finding_at_most_and_that_is_the_first_in_its_way() {
    let unit = ("/usr/lib/systemd/system/harvester-node-agent.service", "x");
    let wants = (
        "/etc/systemd/system/multi-user.target.wants/harvester-node-agent.service",
        "",
    );
    let mask = ("/etc/systemd/system/harvester-node-agent.service", "");
    let program = (unit::PROGRAM, "x");
    for (files, expected) in [
        (&[program, unit, wants][..], None),
        (&[program, unit], Some(Code::ImageAgentNotEnabled)),
        (&[program, unit, mask], Some(Code::ImageAgentMasked)),
        (&[program], Some(Code::ImageAgentMissing)),
        (&[unit, mask], Some(Code::ImageAgentMissing)),
    ] {
        let dir = tree(files);
        // The unit is enabled by a link.
        let link = dir.path().join(wants.0.trim_start_matches('/'));
        if std::fs::remove_file(&link).is_ok() {
            std::os::unix::fs::symlink(unit.0, link).unwrap();
        }
        let findings = check(&Root::new(dir.path()), None, dir.path()).into_iter();
        let codes = findings.map(|finding| finding.code);
        let is_ours = |code: &Code| {
            [
                Code::ImageAgentMissing,
                Code::ImageAgentMasked,
                Code::ImageAgentNotEnabled,
            ]
            .contains(code)
        };
        let codes: Vec<Code> = codes.filter(is_ours).collect();
        assert_eq!(codes, Vec::from_iter(expected), "{files:?}");
    }
}

#[test]
fn no_more_than_a_few_of_many_things_are_named_and_all_are_removed() {
    let paths: Vec<String> = (10..30)
        .map(|number| format!("/var/log/journal/{number}"))
        .collect();
    let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "x")).collect();
    let dir = tree(&files);
    let (finding, commands) = found(&dir, Code::ImageLogs).unwrap();
    assert!(
        finding.seen.ends_with("/var/log/journal/17 and 12 more"),
        "{}",
        finding.seen
    );
    assert_eq!(commands, [format!("rm -rf {}", paths.join(" "))]);
}

#[test]
fn an_invalid_configuration_is_one_problem() {
    let file = "/etc/harvester-node-agent/config.toml";
    let text: String = (0..20).map(|number| format!("k{number} = 1\n")).collect();
    let dir = tree(&[(file, &text), ("/the other.toml", "x = 1\n")]);
    let only = Path::new("/the other.toml");
    let named = check(&Root::new(dir.path()), Some(only), Path::new("/image"));
    let mut named = named.iter();
    let named = named.find(|one| one.code == Code::ImageConfigInvalid);
    assert_eq!(
        named.unwrap().commands()[0].text,
        "harvester-node-agent --root=/image --config='/the other.toml' config check"
    );
    let findings = check(&Root::new(dir.path()), None, dir.path());
    let mut findings = findings.iter();
    let found = findings.find(|one| one.code == Code::ImageConfigInvalid);
    let seen = &found.unwrap().seen;
    assert!(seen.starts_with(file) && seen.ends_with(" and 12 more"));
    assert!(findings.all(|one| one.code != Code::ImageConfigInvalid));
}

#[test]
fn a_setting_is_removed_by_hand_and_only_once() {
    let config = "/etc/rancher/k3s/config.yaml";
    let dir = tree(&[
        (
            config,
            "token: K10\nagent-token+: [K10, K11]\nnode-name: w-1\n",
        ),
        (
            "/etc/harvester-node-agent/config.toml",
            "[harvester]\nvm = \"w-1\"\n",
        ),
    ]);
    let steps: Vec<String> = check(&Root::new(dir.path()), None, dir.path())
        .iter()
        .filter(|finding| finding.commands().is_empty())
        .flat_map(|finding| finding.fix())
        .filter(|step| step.starts_with("Remove `"))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        steps,
        [
            "Remove `harvester.vm` from /etc/harvester-node-agent/config.toml line 2.",
            "Remove `node-name` from /etc/rancher/k3s/config.yaml.",
            "Remove `token` from /etc/rancher/k3s/config.yaml.",
            "Remove `agent-token+` from /etc/rancher/k3s/config.yaml.",
        ]
    );
}
