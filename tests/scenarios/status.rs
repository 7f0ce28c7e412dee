// SPDX-License-Identifier: Apache-2.0
//! `status --wait`, the fields of the JSON documents, `config show --changed` and `config check`.

use std::collections::BTreeSet;

use harvester_lab::faults::{Fault, Matcher};
use harvester_lab::process::run_once;
use harvester_lab::world::{World, WorldOptions, eventually};
use harvester_node_agent::facts::trigger::Trigger;
use serde_json::Value;

use crate::{
    BINARY, HOST, SOON, TOPOLOGY, ZONE, agent, condition_becomes, lab, label_becomes, serve,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_wait_returns_when_the_labels_of_an_agent_that_starts_later_are_in_sync() {
    let world = World::lab(WorldOptions::default()).await;
    let root = world.guest.root().to_owned();
    let args = ["status", "--wait", "60s", "-o", "json"];
    let waiting = tokio::spawn(async move { run_once(BINARY, &root, &args, SOON).await });
    let _agent = serve(&world).await;
    let output = waiting.await.unwrap();
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    let status: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(status["labels"]["state"], "synced", "{status:#}");
    // What it says is so.
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let again = agent(&world, &["status", "--wait"]).await;
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_wait_returns_early_with_an_error_that_needs_a_fix() {
    let world = World::lab(WorldOptions::default()).await;
    let server = lab(&world.harvester_api);
    server.faults().inject(
        Matcher::path("virtualmachineinstances"),
        Fault::forbidden("no role"),
    );
    let _agent = serve(&world).await;
    let output = agent(&world, &["status", "--wait", "50s"]).await;
    assert_eq!(output.code, Some(1), "{}{}", output.stdout, output.stderr);
    assert!(!output.stderr.contains("timed out"), "{}", output.stderr);
    // The state is the reason of the condition, so that it contradicts nothing that is shown beside it.
    let said = crate::words(&output.stdout);
    let state = "; labels harvester-forbidden, host unknown";
    assert!(said.contains(state), "{said}");
    condition_becomes(&world, TOPOLOGY, "Unknown", "HarvesterForbidden").await;
    let status = world.guest.status().unwrap();
    let state = &status["labels"]["state"];
    assert_eq!(state, "harvester-forbidden", "{status:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_wait_without_an_agent_exits_with_75_when_the_time_is_over() {
    let world = World::lab(WorldOptions::default()).await;
    let output = agent(&world, &["status", "--wait=500ms"]).await;
    assert_eq!(output.code, Some(75));
    let text = "error: timed out after 500ms: no status of the agent can be read; check the service: systemctl status \
                harvester-node-agent\n";
    assert!(output.stderr.ends_with(text), "{}", output.stderr);
}

/// The names of all fields of a document. Keys of labels are no names of fields.
fn fields(document: &Value, names: &mut Vec<String>) {
    match document {
        Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
        Value::Object(object) => {
            for (name, value) in object {
                names.push(name.clone());
                if name != "owned" {
                    fields(value, names);
                }
            }
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_field_of_the_status_is_in_lower_camel_case_and_on_its_page() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/packaging/docs/pages/harvester-node-agent-output.7.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    // `credentials.harvester` and `findings[]` are two names and one.
    let quoted = page.split('`').skip(1).step_by(2);
    let documented: BTreeSet<&str> = quoted
        .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()))
        .collect();
    let world = World::lab(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    // The status is written after the Node.
    eventually(SOON, "the migration is in the status", || async {
        let output = agent(&world, &["status", "-ojson"]).await;
        output.stdout.contains("\"lastMigration\"")
    })
    .await;
    let mut names = Vec::new();
    for command in [
        &["status", "-ojson"][..],
        &["whoami", "-ojson"],
        &["once", "--dry-run", "-ojson"],
    ] {
        let output = agent(&world, command).await;
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        fields(&document, &mut names);
    }
    let mut others = Vec::new();
    // An image with something to find.
    let output = agent(&world, &["bake-check", "-ojson"]).await;
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    fields(&document, &mut others);
    let section = page.split_once("\n### bake-check\n").unwrap().1;
    let section = section.split("\n### ").next().unwrap();
    for name in others {
        assert!(
            section.contains(&format!("`{name}`")) || section.contains(&format!("`{name}[]`")),
            "{name}"
        );
        names.push(name);
    }
    for name in [
        "runningSystem",
        "eventSources",
        "lastMigration",
        "expirationTime",
        "dryRun",
        "allowed",
    ] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    for name in names {
        let is_camel = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        assert!(is_camel, "{name}");
        assert!(documented.contains(&*name), "{name} is not on the page");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_source_has_one_name_and_says_its_state_once() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/packaging/docs/pages/harvester-node-agent-triggers.7.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let names = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names: Vec<&str> = names
        .filter_map(|line| line.split(" | ").next())
        .flat_map(|cell| cell.split('`'))
        .collect();
    let world = World::lab(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    assert_eq!(agent(&world, &["status", "--wait"]).await.code, Some(0));
    let status = world.guest.status().unwrap();
    let sources = status["eventSources"].as_array().unwrap();
    assert!(sources.len() >= 6, "{status:#}");
    for source in sources {
        let name = source["name"].as_str().unwrap();
        assert!(names.contains(&name), "{name} is not on the page");
        let detail = source["detail"].as_str().unwrap();
        for state in ["active", "inactive", "live", "not live"] {
            assert!(!detail.starts_with(state), "{name}: {detail}");
        }
    }
    let shown = agent(&world, &["status", "-v"]).await.stdout;
    assert!(shown.contains("hostname inactive: "), "{shown}");
    // A command that does not listen knows each source of this machine.
    let shown = agent(&world, &["whoami", "-ojson"]).await.stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let of_machine = sources.iter().map(|source| &source["name"]);
    let of_machine = of_machine.filter(|name| *name != "vmi" && *name != "node");
    let probed = shown["eventSources"].as_array().unwrap();
    let probed = probed.iter().map(|source| &source["name"]);
    assert!(probed.eq(of_machine), "{shown:#}");
    // A hint has the name of the event source that it is from.
    for hint in [Trigger::Link, Trigger::Port] {
        assert!(hint.is_migration_hint());
        let name = hint.as_str();
        assert!(
            sources.iter().any(|source| source["name"] == name),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn config_show_changed_prints_only_what_differs_and_config_check_counts_the_files() {
    let world = World::lab(WorldOptions::default()).await;
    let run = async |args: &[&str]| {
        let output = agent(&world, args).await;
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    };
    let of_lab = "/etc/harvester-node-agent/config.d/00-lab.toml";
    world.guest.remove(of_lab);
    assert_eq!(run(&["config", "show", "--changed"]).await, "");
    assert_eq!(
        run(&["config", "check"]).await,
        "configuration OK (no files, defaults only)\n"
    );
    let guest = &world.guest;
    guest.agent_config(
        "10-a.toml",
        "[topology]\non_change = \"hold\"\nremove_stale = false\n",
    );
    guest.agent_config("20-b.toml", "log.level = \"debug\"\n");
    assert_eq!(
        run(&["config", "check"]).await,
        "configuration OK (2 files)\n"
    );
    let changed = run(&["config", "show", "--changed"]).await;
    let keys: Vec<&str> = changed
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(keys, ["log.level", "topology.on_change"], "{changed}");
    assert!(
        changed.lines().next().unwrap().ends_with("20-b.toml:1"),
        "{changed}"
    );
    let json = run(&["config", "show", "--changed", "-ojson"]).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 2, "{json:#}");
    let all = run(&["config", "show"]).await;
    assert!(all.lines().count() > 20, "{all}");
}
