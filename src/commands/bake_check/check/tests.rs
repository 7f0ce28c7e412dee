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
    // No command names the rest.
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path().join("var/log/journal"), open).unwrap();
    let findings = check(&Root::new(dir.path()), None, true);
    let mut findings = findings.iter();
    let finding = findings.find(|one| one.code == Code::ImageLogs).unwrap();
    let found = (finding.seen.as_str(), finding.commands(), finding.fix());
    assert_eq!(found, (paths.join(", ").as_str(), &[][..], vec![BY_HAND]));
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
        ("/var/log/syslog", "x"),
        ("/var/lib/x", ""),
        ("/data/journal/x", "x"),
        ("/data/dbus/machine-id", "x"),
        (
            "/etc/rancher/rke2/config.yaml.d/90-harvester-node-agent.yaml",
            "node-label: [topology.kubernetes.io/zone=a]\n",
        ),
        (
            "/etc/rancher/k3s/config.yaml",
            "token-file: /etc/a/b/token\nagent-token-file: /srv/a/token\n",
        ),
    ]);
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, dir.path().join(at)).unwrap();
    link("/home/a", "etc/a");
    link("/srv", "home/a/b");
    link("/data/journal", "var/log/journal");
    link("/data/dbus", "var/lib/dbus");
    // As for another owner. rsyslog may write to the one of logs.
    for (place, mode) in [
        ("home/a", 0o777),
        ("srv/a", 0o777),
        ("data", 0o777),
        ("etc/rancher/rke2/config.yaml.d", 0o777),
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
            Code::ImageMachineId,
            Code::ImageRegistrationDropIn,
            Code::ImageTopologyLabel,
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
    let id = "/data/dbus/machine-id";
    let drop_in = "/etc/rancher/rke2/config.yaml.d/90-harvester-node-agent.yaml";
    let (tokens, key) = ("/srv/a/token, /srv/token", "/home/a/.ssh/id_rsa");
    let running = [
        said(id, ""),
        said(drop_in, ""),
        said("/var/log/syslog", "rm -rf /var/log/syslog"),
        said("/data/journal/x", ""),
        said(tokens, ""),
        said("/root/.ssh/id_rsa", "rm -rf /root/.ssh/id_rsa"),
        said(key, ""),
    ];
    assert_eq!(found(true), running);
    let image = [
        said(&format!("{id} contains an ID"), &format!("rm -rf {id}")),
        said(drop_in, &format!("rm -rf {drop_in}")),
        said(
            "/data/journal/x, /var/log/syslog",
            "rm -rf /data/journal/x /var/log/syslog",
        ),
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
    let dir = tree(&[
        ("/home/a/.ssh/authorized_keys.z", "x"),
        ("/var/x", ""),
        ("/etc/passwd", "b:x:1:1::/var/b:\n\n:::::\nx:x\n"),
    ]);
    let to_a = |link: &str| std::os::unix::fs::symlink("/home/a", dir.path().join(link)).unwrap();
    to_a("var/b");
    to_a("var/c");
    let below = dir.path().join("home/a/.ssh");
    let empty = |number| {
        std::fs::write(below.join(format!("authorized_keys{number}")), "").unwrap();
    };
    (1..PATHS_MAX).for_each(empty);
    let is = |expected: &[&str]| {
        let findings = check(&Root::new(dir.path()), None, false);
        let findings = findings.iter();
        let findings: Vec<_> = findings
            .filter(|one| one.code == Code::ImageUnreadable)
            .map(|one| (one.seen.as_str(), one.fix(), one.commands().len()))
            .collect();
        let expected = expected.iter().map(|seen| (*seen, vec![MANY], 0));
        assert_eq!(findings, expected.collect::<Vec<_>>());
    };
    is(&[]);
    assert_ne!(found(&dir, Code::ImageSshAuthorizedKeys), None);
    let passwd = |text: &str| std::fs::write(dir.path().join("etc/passwd"), text).unwrap();
    // All home directories count together.
    passwd(":::::/var/b:\n:::::/var/c:\n");
    let in_homes = "more than 10000 paths match ~/.ssh/authorized_keys*";
    is(&[in_homes]);
    // That of root is one of them.
    let home = |number: usize| format!(":::::/srv/{number}:\n:::::/srv//{number}/.:\n");
    passwd(&(1..HOMES_MAX).map(home).collect::<String>());
    is(&[]);
    passwd(&(0..HOMES_MAX).map(home).collect::<String>());
    is(&["/etc/passwd names more than 1000 home directories"]);
    passwd("");
    empty(PATHS_MAX);
    is(&["more than 10000 paths match /home/*/.ssh/authorized_keys*"]);
}

#[test]
fn what_a_user_linked_into_the_home_directory_is_removed_by_no_command() {
    let dir = tree(&[
        (
            "/etc/passwd",
            "c:x:998:998::/var/lib/c:/usr/sbin/nologin\nd:x:1001:1001::/home/b/d:\n",
        ),
        (
            "/etc/harvester-node-agent/config.toml",
            "[harvester]\nkubeconfig = \"/var/lib/c/.ssh/config\"\n",
        ),
        ("/usr/lib/x/config", "x"),
        ("/usr/lib/y/.ssh/id_rsa", "x"),
        ("/var/home/a/.ssh/id_rsa", "x"),
        ("/usr/lib/x/id_rsa", "x"),
        ("/var/home/b/x", "x"),
        ("/var/lib/c/x", "x"),
        ("/etc/.ssh/id_rsa", "x"),
        ("/var/roothome/.ssh/id_rsa", "x"),
    ]);
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, dir.path().join(at)).unwrap();
    link("var/home", "home");
    link("var/roothome", "root");
    link("/etc", "var/home/e");
    link("/usr/lib/x", "var/home/b/.ssh");
    link("/usr/lib/x", "var/lib/c/.ssh");
    link("/usr/lib/y", "var/home/b/d");
    let findings = check(&Root::new(dir.path()), None, false);
    let mut configured = findings.iter();
    let configured = configured.find(|one| one.code == Code::ImageHarvesterCredential);
    let seen = "/var/lib/c/.ssh/config (a link to /usr/lib/x/config)";
    let configured = configured.map(|one| (one.seen.as_str(), one.commands().len()));
    assert_eq!(configured, Some((seen, 0)));
    let keys = findings
        .iter()
        .filter(|one| one.code == Code::ImageSshPrivateKey);
    let keys: Vec<_> = keys
        .map(|one| (one.seen.as_str(), one.commands().len()))
        .collect();
    let linked = [
        "/home/b/.ssh/id_rsa (a link to /usr/lib/x/id_rsa)",
        "/home/b/d/.ssh/id_rsa (a link to /usr/lib/y/.ssh/id_rsa)",
        "/home/e/.ssh/id_rsa (a link to /etc/.ssh/id_rsa)",
        "/var/lib/c/.ssh/id_rsa (a link to /usr/lib/x/id_rsa)",
    ];
    let linked = linked.join(", ");
    let inside = "/var/home/a/.ssh/id_rsa, /var/roothome/.ssh/id_rsa";
    assert_eq!(keys, [(inside, 1), (&linked, 0)]);
}

/// With each path resolved alone, this takes many minutes.
#[test]
fn each_of_hundreds_of_nested_directories_is_resolved_once() {
    let homes: Vec<String> = (1..=500).map(|depth| "/a".repeat(depth)).collect();
    let passwd: String = homes.iter().map(|home| format!(":::::{home}:\n")).collect();
    let keys = homes.iter().map(|home| format!("{home}/.ssh/id_rsa"));
    let keys: Vec<String> = keys.collect();
    let mut files: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "x")).collect();
    files.push(("/etc/passwd", &passwd));
    let dir = tree(&files);
    let (_, commands) = found(&dir, Code::ImageSshPrivateKey).unwrap();
    let mut removed: Vec<&str> = commands[0].split(' ').skip(2).collect();
    removed.sort_by_key(|path| path.len());
    assert_eq!(removed, keys);
}
