// SPDX-License-Identifier: Apache-2.0

use super::*;
use std::os::unix::fs::PermissionsExt;

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

/// The commands of a finding, without the directory of the tree.
fn commands(dir: &tempfile::TempDir, finding: &Finding) -> Vec<String> {
    let commands = finding.commands().iter();
    let within = |text: &str| text.replace(dir.path().to_str().unwrap(), "");
    commands.map(|command| within(&command.text)).collect()
}

/// The finding with this code, and its commands.
fn found(dir: &tempfile::TempDir, code: Code) -> Option<(Finding, Vec<String>)> {
    let mut findings = check(&Root::new(dir.path()), None, false).into_iter();
    let finding = findings.find(|finding| finding.code == code)?;
    let commands = commands(dir, &finding);
    Some((finding, commands))
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
    let named = check(&Root::new(dir.path()), Some(only), false);
    let mut named = named.iter();
    let named = named.find(|one| one.code == Code::ImageConfigInvalid);
    assert_eq!(
        commands(&dir, named.unwrap()),
        ["harvester-node-agent --root= --config='/the other.toml' config check"]
    );
    let findings = check(&Root::new(dir.path()), None, false);
    let mut findings = findings.iter();
    let found = findings.find(|one| one.code == Code::ImageConfigInvalid);
    let seen = &found.unwrap().seen;
    assert!(seen.starts_with(file) && seen.ends_with(" and 12 more"));
    assert!(findings.all(|one| one.code != Code::ImageConfigInvalid));
}

#[test]
fn where_another_user_can_put_a_link_on_a_running_system_no_command_removes_anything() {
    let dir = tree(&[
        ("/home/a/.ssh/id_rsa", "x"),
        ("/srv/token", "x"),
        ("/srv/a/token", "x"),
        ("/root/.ssh/id_rsa", "x"),
        ("/var/log/journal/x", "x"),
        (
            "/etc/rancher/k3s/config.yaml",
            "token-file: /etc/a/b/token\nagent-token-file: /srv/a/token\n",
        ),
    ]);
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, dir.path().join(at)).unwrap();
    link("/home/a", "etc/a");
    link("/srv", "home/a/b");
    // As for another owner. rsyslog may write to the one of logs.
    for (place, mode) in [
        ("home/a", 0o777),
        ("srv/a", 0o777),
        ("var/log", 0o775),
        ("root", 0o755),
        ("root/.ssh", 0o755),
    ] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(dir.path().join(place), mode).unwrap();
    }
    let found = |is_live| -> Vec<_> {
        let findings = check(&Root::new(dir.path()), None, is_live).into_iter();
        let codes = [
            Code::ImageLogs,
            Code::ImageClusterToken,
            Code::ImageSshPrivateKey,
        ];
        let findings = findings.filter(|one| codes.contains(&one.code));
        findings
            .map(|one| (one.seen.clone(), commands(&dir, &one).join("; ")))
            .collect()
    };
    let said = |seen: &str, command: &str| (seen.to_owned(), command.to_owned());
    let logs = said("/var/log/journal/x", "rm -rf /var/log/journal/x");
    let (tokens, key) = ("/srv/a/token, /srv/token", "/home/a/.ssh/id_rsa");
    let running = [
        logs.clone(),
        said(tokens, ""),
        said("/root/.ssh/id_rsa", "rm -rf /root/.ssh/id_rsa"),
        said(key, ""),
    ];
    assert_eq!(found(true), running);
    let image = [
        logs,
        said(tokens, "rm -rf /srv/a/token /srv/token"),
        said(
            "/home/a/.ssh/id_rsa, /root/.ssh/id_rsa",
            "rm -rf /home/a/.ssh/id_rsa /root/.ssh/id_rsa",
        ),
    ];
    assert_eq!(found(false), image);
}

#[test]
fn what_is_not_checked_is_said() {
    let dir = tree(&[("/home/a/.kube/config.z", "x")]);
    let below = dir.path().join("home/a/.kube");
    let empty = |number| std::fs::write(below.join(format!("config.{number}")), "").unwrap();
    (1..PATHS_MAX).for_each(empty);
    let code = Code::ImageUnreadable;
    assert_eq!(found(&dir, code), None);
    assert_ne!(found(&dir, Code::ImageAdminKubeconfig), None);
    empty(PATHS_MAX);
    let (finding, commands) = found(&dir, code).unwrap();
    let seen = "more than 10000 paths match /home/*/.kube/config.*";
    assert_eq!((finding.seen.as_str(), finding.fix()), (seen, vec![MANY]));
    assert_eq!(commands, [""; 0]);
}

#[test]
fn what_a_user_linked_into_the_home_directory_is_removed_by_no_command() {
    let dir = tree(&[
        ("/etc/passwd", "c:x:998:998::/var/lib/c:/usr/sbin/nologin\n"),
        ("/var/home/a/.ssh/id_rsa", "x"),
        ("/usr/lib/x/id_rsa", "x"),
        ("/var/home/b/x", "x"),
        ("/var/lib/c/x", "x"),
    ]);
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, dir.path().join(at)).unwrap();
    link("var/home", "home");
    link("/usr/lib/x", "var/home/b/.ssh");
    link("/usr/lib/x", "var/lib/c/.ssh");
    let findings = check(&Root::new(dir.path()), None, false);
    let keys = findings
        .iter()
        .filter(|one| one.code == Code::ImageSshPrivateKey);
    let keys: Vec<_> = keys
        .map(|one| (one.seen.as_str(), one.commands().len()))
        .collect();
    let linked = "/home/b/.ssh/id_rsa (a link to /usr/lib/x/id_rsa), /var/lib/c/.ssh/id_rsa (a link to /usr/lib/x/id_rsa)";
    assert_eq!(keys, [("/var/home/a/.ssh/id_rsa", 1), (linked, 0)]);
}
