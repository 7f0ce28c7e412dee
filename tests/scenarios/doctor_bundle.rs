// SPDX-License-Identifier: Apache-2.0
//! The support archive: it holds what a supporter needs, and no secret of any file or record that the agent reads.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use harvester_lab::world::{World, WorldOptions};
use serde_json::json;

use crate::{BINARY, On, on_both};

on_both!(
    the_archive_reports_what_a_supporter_needs,
    no_secret_of_any_file_or_record_is_in_the_archive,
    a_file_that_is_there_is_never_written,
    an_archive_can_be_printed_and_a_journal_that_hangs_is_said,
);

const HARVESTER: &str = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";
const KEY: &str = "/var/lib/rancher/rke2/agent/client-kubelet.key";

/// Made anew for this file: a word that nothing else has.
const CANARY: &str = "CANARY";

/// A world, a place for files, and a journalctl that prints what it is told to.
struct Scene {
    world: World,
    dir: tempfile::TempDir,
}

impl Scene {
    async fn new(on: On, records: &str) -> Self {
        let world = on.world(WorldOptions::default()).await;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("records"), records).unwrap();
        let program = dir.path().join("journalctl");
        let script = format!(
            "#!/bin/sh\necho \"$@\" > '{0}/arguments'\ncat '{0}/records'\n",
            dir.path().display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { world, dir }
    }

    async fn doctor(&self, file: &Path) -> Output {
        let mut command = Command::new(BINARY);
        command
            .args(["doctor", "--bundle"])
            .arg(file)
            .arg("--root")
            .arg(self.world.guest.root())
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", self.dir.path().display()),
            );
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }

    /// The archive, its texts by name.
    async fn bundle(&self) -> (Output, Vec<(String, String)>) {
        let file = self.dir.path().join("doctor.tar");
        let output = self.doctor(&file).await;
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let unpacked = self.dir.path().join("unpacked");
        std::fs::create_dir(&unpacked).unwrap();
        let tar = Command::new("tar")
            .arg("-xf")
            .arg(&file)
            .arg("-C")
            .arg(&unpacked)
            .output()
            .unwrap();
        assert!(tar.status.success(), "{tar:?}");
        let mut texts = Vec::new();
        let mut tops = std::fs::read_dir(&unpacked).unwrap();
        let top = tops.next().unwrap().unwrap().file_name();
        let top = top.to_str().unwrap();
        let host = self.world.guest.read("/proc/sys/kernel/hostname").unwrap();
        assert!(
            top.starts_with(&format!("doctor-{}-2", host.trim())) && tops.next().is_none(),
            "{top}"
        );
        read_all(&unpacked.join(top), Path::new(""), &mut texts);
        (output, texts)
    }
}

fn read_all(top: &Path, inside: &Path, texts: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(top.join(inside)).unwrap() {
        let entry = entry.unwrap();
        let inside = inside.join(entry.file_name());
        if entry.path().is_dir() {
            read_all(top, &inside, texts);
        } else {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            texts.push((inside.to_str().unwrap().to_owned(), text));
        }
    }
}

/// The unit of the agent.
const UNIT: &str = "harvester-node-agent.service";

async fn the_archive_reports_what_a_supporter_needs(on: On) {
    let record = json!({
        "MESSAGE": "hello from the journal", "PRIORITY": "6", "_SYSTEMD_UNIT": UNIT, "_CMDLINE": "not this",
    });
    let ended = json!({"MESSAGE": "Main process exited", "_PID": "1", "UNIT": UNIT, "_SYSTEMD_UNIT": "init.scope"});
    let scene = Scene::new(on, &format!("{record}\n{ended}\n")).await;
    let guest = &scene.world.guest;
    guest.write(
        "/etc/harvester-node-agent/config.d/50-mine.toml",
        "[topology]\non_change = \"hold\"\n",
    );
    let (output, texts) = scene.bundle().await;
    let text = |name: &str| {
        let found = texts.iter().find(|(found, _)| found == name);
        assert!(found.is_some(), "no {name} in {texts:?}");
        found.unwrap().1.as_str()
    };
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("placement"));
    let document: serde_json::Value = serde_json::from_str(text("doctor.json")).unwrap();
    assert_eq!(document["kind"], "Diagnosis");
    let place = "host hv-a, region eu-1, zone rack-a";
    assert!(document["groups"].to_string().contains(place));
    assert!(
        text("config.toml").contains("topology.on_change")
            && text("config.toml").contains("\"hold\"")
    );
    assert_eq!(
        text("journal.jsonl"),
        "{\"MESSAGE\":\"hello from the journal\",\"PRIORITY\":\"6\"}\n\
         {\"MESSAGE\":\"Main process exited\",\"_PID\":\"1\"}\n"
    );
    // No agent runs here, so there is no status; that is said and no failure.
    let missing = text("status.json.missing");
    assert!(
        missing.starts_with("failed to read the status"),
        "{missing}"
    );
    assert_eq!(texts.len(), 4, "{texts:?}");
    let arguments = std::fs::read_to_string(scene.dir.path().join("arguments")).unwrap();
    let tree = scene.world.guest.root().display().to_string();
    assert!(
        arguments.contains(&tree) && arguments.contains("--lines 200"),
        "{arguments}"
    );
    // Anybody may send records in our name.
    assert!(
        arguments.contains(&format!("_SYSTEMD_UNIT={UNIT}")),
        "{arguments}"
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("wrote ") && said.contains("doctor.tar"),
        "{said}"
    );
}

/// Every file of the tree that holds a secret, and what of it must not be anywhere.
fn plant(world: &World) -> Vec<String> {
    let guest = &world.guest;
    let random = "kJ8vQ2mZ7xW4nB9cR5tY1pL6sD3fG0hA";
    let mut secrets = vec![
        world.token.clone(),
        world.token.rsplit('.').next().unwrap().to_owned(),
        guest.read(KEY).unwrap().lines().nth(1).unwrap().to_owned(),
        guest.read(HARVESTER).unwrap(),
    ];
    // The configuration of the distribution, with secrets that it really has there.
    let node_token = format!(
        "K10{}::server:{CANARY}rke2{random}",
        "0a1b2c3d4e5f".repeat(5)
    );
    guest.write_secret(
        "/etc/rancher/rke2/config.yaml.d/60-secrets.yaml",
        format!("token: {node_token}\nagent-token: {CANARY}agent{random}\netcd-s3-secret-key: {CANARY}s3{random}\n"),
    );
    secrets.push(node_token);
    guest.write_secret(
        "/etc/default/rke2-agent",
        format!("RKE2_TOKEN={CANARY}env{random}\nHTTPS_PROXY=http://u:{CANARY}pw@proxy:1\n"),
    );
    guest.write(
        "/etc/harvester-node-agent/config.d/50-mine.toml",
        format!("# password = \"{CANARY}comment\"\n"),
    );
    guest.write_secret(
        "/var/lib/cloud/instance/user-data.txt",
        format!("#cloud-config\npassword: {CANARY}user{random}\n"),
    );
    guest.write(
        "/etc/systemd/system/harvester-node-agent.service.d/proxy.conf",
        format!(
            "[Service]\nEnvironment=HTTPS_PROXY=http://u:{CANARY}proxy@proxy:3128\nEnvironment=\"X={CANARY}x\" \"Y={CANARY}y\" \\\n  Z={CANARY}z\n"
        ),
    );
    guest.write(
        "/usr/lib/systemd/system/harvester-node-agent.service",
        format!("[Service]\nExecStart=/usr/bin/harvester-node-agent run\nSetCredential=mine:{CANARY}set\n"),
    );
    // What a past agent may have written, were it not as careful.
    let status = json!({"kind": "Status", "findings": [
        {"code": "harvester-unauthorized", "observed": format!("Authorization: Bearer {}", world.token), "firstObservedTime": "2026-01-01T00:00:00Z"},
    ], "clientKeyData": BASE64_STANDARD.encode(guest.read(KEY).unwrap())});
    guest.write("/run/harvester-node-agent/status.json", status.to_string());
    secrets.push(random.to_owned());
    secrets
}

async fn no_secret_of_any_file_or_record_is_in_the_archive(on: On) {
    let scene = Scene::new(on, "").await;
    let secrets = plant(&scene.world);
    let (token, key) = (&scene.world.token, scene.world.guest.read(KEY).unwrap());
    let encoded = BASE64_STANDARD.encode(format!("user:{token}"));
    let messages = [
        format!("refused: {token}"),
        format!("Authorization: Basic {encoded}"),
        format!(
            "panicked at 'kubeconfig {{\"client-key-data\":\"{}\"}}'",
            BASE64_STANDARD.encode(&key)
        ),
        key.clone(),
        key.replace('\n', "\\n"),
        format!("AWS_ACCESS_KEY_ID=AKIA{CANARY}7EXAMPLE1 AWS_SECRET_ACCESS_KEY={CANARY}aws"),
        format!("token-abcde:{CANARY}rancher"),
        format!("HTTPS_PROXY=u:{CANARY}pw@proxy:3128 http://u:{CANARY}/pw@proxy"),
        format!("rke2 server --token {CANARY}option"),
        key.replace('\n', "\r\n"),
        format!("password is in {{\"password\": \"{CANARY} two words\"}}"),
        json!({"nested": json!({"token": format!("{CANARY}nested")}).to_string()}).to_string(),
    ];
    let records = messages.iter().map(|message| {
        let bytes = json!({"MESSAGE": message.as_bytes(), "HNA_FINDING": "hostname-differs"});
        let text = json!({"MESSAGE": message, "HNA_FIX": message, "_CMDLINE": format!("{CANARY}cmdline"), "X": CANARY});
        // The agent prints none of this; in its name, and not from its unit, any process may.
        let other = json!({"MESSAGE": message, "SYSLOG_IDENTIFIER": "harvester-node-agent", "_UID": "0", "_SYSTEMD_UNIT": "other.service"});
        let ours = json!({"MESSAGE": "reconciled", "_SYSTEMD_UNIT": UNIT, "_CMDLINE": message, "X": message});
        format!("{text}\n{bytes}\n{other}\n{ours}\n")
    });
    let records: String = records.collect();
    std::fs::write(scene.dir.path().join("records"), records).unwrap();
    let (output, texts) = scene.bundle().await;
    let archive = std::fs::read(scene.dir.path().join("doctor.tar")).unwrap();
    let archive = String::from_utf8_lossy(&archive).into_owned();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8(printed).unwrap();
    for secret in &secrets {
        let escaped = json!(secret).to_string();
        let forms = [
            secret.clone(),
            escaped.trim_matches('"').to_owned(),
            secret.replace('/', "\\/"),
            BASE64_STANDARD.encode(secret),
            BASE64_URL_SAFE_NO_PAD.encode(secret),
        ];
        for form in forms {
            assert!(!archive.contains(&form), "{form} is in the archive");
            assert!(!printed.contains(&form), "{form} was printed");
        }
    }
    for (name, text) in &texts {
        let line = text
            .lines()
            .find(|line| line.contains(CANARY) || line.contains("PRIVATE KEY"));
        assert_eq!(line, None, "{name}");
    }
    // The records of the unit are there, without what they hide.
    let journal = texts.iter().find(|(name, _)| name == "journal.jsonl");
    let (_, journal) = journal.unwrap();
    assert_eq!(journal.lines().count(), messages.len());
    let is_plain = |line: &str| line == "{\"MESSAGE\":\"reconciled\"}";
    assert!(journal.lines().all(is_plain), "{journal}");
}

async fn a_file_that_is_there_is_never_written(on: On) {
    let scene = Scene::new(on, "").await;
    let file = scene.dir.path().join("mine");
    std::fs::write(&file, "mine").unwrap();
    let output = scene.doctor(&file).await;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("exists") && said.contains("mine"), "{said}");
    assert!(!output.stdout.is_empty());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

async fn an_archive_can_be_printed_and_a_journal_that_hangs_is_said(on: On) {
    let scene = Scene::new(on, "").await;
    let program = scene.dir.path().join("journalctl");
    std::fs::write(&program, "#!/bin/sh\nexec sleep 60\n").unwrap();
    let output = scene.doctor(Path::new("-")).await;
    let archive = scene.dir.path().join("printed.tar");
    std::fs::write(&archive, &output.stdout).unwrap();
    let tar = Command::new("tar")
        .args(["--wildcards", "-xOf"])
        .arg(&archive)
        .arg("*/journal.jsonl.missing")
        .output()
        .unwrap();
    let missing = String::from_utf8(tar.stdout).unwrap();
    assert_eq!(missing, "journalctl timed out after 5 s\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("1 warning.") && said.contains("ok   placement"),
        "{said}"
    );
    assert!(!Path::new("-").exists());

    // What it complains of is told.
    std::fs::write(
        &program,
        "#!/bin/sh\necho 'insufficient permissions' >&2\nexit 1\n",
    )
    .unwrap();
    let (_, texts) = scene.bundle().await;
    let missing = texts
        .iter()
        .find(|(name, _)| name == "journal.jsonl.missing");
    let (_, missing) = missing.unwrap();
    assert_eq!(
        missing,
        "journalctl printed nothing: insufficient permissions\n"
    );
}
