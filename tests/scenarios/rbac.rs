// SPDX-License-Identifier: Apache-2.0
//! The roles that `rbac` prints: enough for everything that the agent does, and nothing more.

use std::collections::BTreeSet;
use std::process::Stdio;

use base64::prelude::{BASE64_STANDARD, Engine};
use harvester_lab::admin::{Admin, paths};
use harvester_lab::harvester::{PodLabels, VmSpec};
use harvester_lab::process::{Agent, Signal};
use harvester_lab::server::RequestRecord;
use harvester_lab::world::{
    CloudState, HostAccess, Side, VM_NAME, World, WorldOptions, eventually,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::doctor_credentials::{HARVESTER, edit};
use crate::{
    BINARY, HOST, On, SOON, ZONE, agent, findings_become, label_becomes, on_both, serve, settles_on,
};

on_both!(
    the_printed_roles_allow_all_that_is_asked_and_nothing_of_them_is_unused,
    each_missing_permission_is_reported_or_has_a_fallback,
    roles_for_a_single_vm_are_enough_where_the_machine_goes_by_its_name;
    real:
    kubectl_applies_the_roles_once_and_takes_them_back,
    the_commands_of_the_findings_can_be_pasted,
    the_commands_for_a_new_kubeconfig_make_one_that_the_agent_can_use,
);

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The command with which an administrator of Harvester reads what root of the node wrote.
const REVIEW: &str =
    "ssh <USER>@<NODE_ADDRESS> sudo cat /root/rbac.yaml > rbac.yaml && kubectl diff -f rbac.yaml";

/// A request as a rule allows it: verb, group, resource.
type Right = (String, String, String);

/// A world in which the credential may do nothing, of a VM without annotations.
async fn without_rights(on: On) -> World {
    on.world(WorldOptions {
        vm: VmSpec::named(VM_NAME).created_by(None),
        access: HostAccess::Nothing,
        cloud: CloudState::Absent,
        ..WorldOptions::default()
    })
    .await
}

/// The objects that the command prints for the credential of the guest.
async fn printed(world: &World, args: &[&str]) -> Vec<Value> {
    let args = [&["rbac", "-ojson"], args].concat();
    let output = agent(world, &args).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let list: Value = serde_json::from_str(&output.stdout).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn rights(objects: &[Value]) -> BTreeSet<Right> {
    let list = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let rules = objects
        .iter()
        .filter_map(|object| object["rules"].as_array())
        .flatten();
    rules
        .flat_map(|rule| {
            let group = list(&rule["apiGroups"]).remove(0);
            let resource = list(&rule["resources"]).remove(0);
            list(&rule["verbs"])
                .into_iter()
                .map(move |verb| (verb, group.clone(), resource.clone()))
        })
        .collect()
}

/// Puts the objects on Harvester, replacing what is there.
async fn put(world: &World, objects: &[Value]) {
    let admin = world.harvester.admin();
    for object in objects {
        let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
        let collection = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{RBAC}/namespaces/{namespace}/{plural}"),
            None => format!("{RBAC}/{plural}"),
        };
        let path = format!(
            "{collection}/{}",
            object["metadata"]["name"].as_str().unwrap()
        );
        if admin.find(&path).await.unwrap().is_some() {
            admin.replace(&path, object).await.unwrap();
        } else {
            admin.create(&collection, object).await.unwrap();
        }
    }
}

/// Waits until the authoriser knows that the credential has exactly these of all rights.
async fn in_force(world: &World, all: &BTreeSet<Right>, granted: &BTreeSet<Right>) {
    let guest = Admin::with_token(&world.harvester_api.endpoint(), "lab-access", &world.token);
    let may = async |(verb, group, resource): &Right| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "namespace": if resource == "nodes" { "" } else { "default" },
                "name": if verb == "list" || !resource.starts_with("virtualmachine") { "" } else { VM_NAME },
                "verb": verb, "group": group, "resource": resource,
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        guest.create(path, &review).await.unwrap()["status"]["allowed"] == true
    };
    eventually(SOON, "the roles are in force", async || {
        for right in all {
            if may(right).await != granted.contains(right) {
                return false;
            }
        }
        true
    })
    .await;
}

/// Applies what the command prints and waits until it is in force.
async fn grant(world: &World, args: &[&str]) -> BTreeSet<Right> {
    let objects = printed(world, args).await;
    put(world, &objects).await;
    let rights = rights(&objects);
    in_force(world, &rights, &rights).await;
    rights
}

/// Ends the daemon, so that the next one may begin.
async fn end(mut daemon: Agent) {
    daemon.signal(Signal::SIGTERM);
    daemon.wait_exit(SOON).await;
}

/// What an API request asks for; `None` for what everybody may.
fn asked(request: &RequestRecord) -> Option<Right> {
    let parts: Vec<&str> = request.path.split('/').skip(1).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let resource = match rest {
        ["namespaces", "harvester-public", "configmaps", ..] => return None,
        // What `doctor` asks beside: releases, which everybody may know.
        ["settings", "server-version"] | ["version"] => return None,
        ["namespaces", _, resource, ..] | [resource, ..] => *resource,
        [] => return None,
    };
    (resource != "selfsubjectaccessreviews")
        .then(|| (request.verb.clone(), group.to_owned(), resource.to_owned()))
}

async fn the_printed_roles_allow_all_that_is_asked_and_nothing_of_them_is_unused(on: On) {
    let mut world = without_rights(on).await;
    let output = agent(&world, &["once"]).await;
    assert!(
        output.stderr.contains("[harvester-forbidden]"),
        "{}",
        output.stderr
    );
    let before = world.agent_requests(Side::Harvester).await.len();
    let granted = grant(&world, &[]).await;

    let daemon = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    settles_on(&world, "hv-b", &[]).await;
    end(daemon).await;
    // A host whose labels are gone: what the pod got when it was bound still tells.
    world.harvester = world
        .harvester
        .clone()
        .with_pod_labels(PodLabels::WithTopology);
    world.harvester.restart_vm(&world.vm, "hv-c").await.unwrap();
    let bare = [("topology.kubernetes.io/region", None), (ZONE, None)];
    world.harvester.relabel_host("hv-c", &bare).await.unwrap();
    let output = agent(&world, &["once"]).await;
    assert_eq!(
        world.node_label(ZONE).await.as_deref(),
        Some("rack-c"),
        "{}",
        output.stdout
    );
    // A stop is explained by the VM.
    world.harvester.begin_stop(&world.vm, true).await.unwrap();
    agent(&world, &["whoami"]).await;

    let requests = world.agent_requests(Side::Harvester).await;
    let refused: Vec<&RequestRecord> = requests[before..]
        .iter()
        .filter(|request| request.status == 403)
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let used: BTreeSet<Right> = requests[before..].iter().filter_map(asked).collect();
    assert_eq!(used, granted);
}

/// Where the agent says that a right is missing.
enum Says {
    /// In a finding, which quotes the server's refusal.
    Finding(&'static str),
    /// It has another way; `whoami` says what it may not do.
    OtherWay,
}

async fn each_missing_permission_is_reported_or_has_a_fallback(on: On) {
    let world = without_rights(on).await;
    let objects = printed(&world, &[]).await;
    let all = rights(&objects);
    put(&world, &objects).await;
    let table = [
        (
            "get",
            "virtualmachineinstances",
            Says::Finding("harvester-forbidden"),
        ),
        ("list", "virtualmachineinstances", Says::OtherWay),
        (
            "watch",
            "virtualmachineinstances",
            Says::Finding("watch-unavailable"),
        ),
        ("get", "virtualmachines", Says::OtherWay),
        (
            "get",
            "nodes",
            match on.labels_pods() {
                true => Says::OtherWay,
                false => Says::Finding("no-topology-source"),
            },
        ),
        ("list", "pods", Says::OtherWay),
        // Where the hosts tell nothing, nothing makes up for it.
        ("list", "pods", Says::Finding("no-topology-source")),
    ];
    let tried: BTreeSet<(&str, &str)> = table
        .iter()
        .map(|(verb, resource, _)| (*verb, *resource))
        .collect();
    assert_eq!(tried.len(), all.len());
    for (verb, resource, says) in table {
        let mut less = objects.clone();
        let rules = less
            .iter_mut()
            .filter_map(|object| object["rules"].as_array_mut())
            .flatten();
        for rule in rules.filter(|rule| rule["resources"][0] == resource) {
            rule["verbs"]
                .as_array_mut()
                .unwrap()
                .retain(|own| own != verb);
        }
        // A rule without verbs is no rule.
        for object in &mut less {
            if let Some(rules) = object["rules"].as_array_mut() {
                rules.retain(|rule| !rule["verbs"].as_array().unwrap().is_empty());
            }
        }
        put(&world, &less).await;
        let granted: BTreeSet<Right> = rights(&less);
        assert_eq!(granted.len(), all.len() - 1, "{verb} {resource}");
        in_force(&world, &all, &granted).await;

        if matches!(says, Says::OtherWay) {
            world.relabel_node("kubectl", &[(ZONE, None)]).await;
        }
        let daemon = serve(&world).await;
        match says {
            Says::Finding(code) => {
                findings_become(&world, &[code]).await;
                let text = told(&world.guest.status().unwrap(), code, "observed");
                let refusal = format!("cannot {verb} resource \"{resource}\"");
                assert!(text.contains(&refusal), "{text}");
            }
            Says::OtherWay => {
                label_becomes(&world, ZONE, "rack-a").await;
                findings_become(&world, &[]).await;
                if resource == "pods" {
                    let bare = [("topology.kubernetes.io/region", None), (ZONE, None)];
                    world.harvester.relabel_host("hv-a", &bare).await.unwrap();
                }
            }
        }
        end(daemon).await;
        let whoami = agent(&world, &["whoami", "-v"]).await.stdout;
        let whoami = crate::words(&whoami);
        let lines: Vec<&str> = whoami.split(" Permission ").collect();
        for (other, _, about) in &all {
            let is_missing = other == verb && about == resource;
            let answer = if is_missing {
                ": denied ("
            } else {
                ": allowed ("
            };
            let line = lines
                .iter()
                .find(|line| line.starts_with(&format!("{other} {about}")))
                .unwrap();
            assert!(line.contains(answer), "without {verb} {resource}: {line}");
        }
    }
}

async fn roles_for_a_single_vm_are_enough_where_the_machine_goes_by_its_name(on: On) {
    let world = without_rights(on).await;
    let other = world
        .harvester
        .create_vm(VmSpec::named("gc8-pool1-other"), "hv-b")
        .await
        .unwrap();
    grant(&world, &["--vm", VM_NAME]).await;
    let before = world.agent_requests(Side::Harvester).await.len();
    let daemon = serve(&world).await;
    label_becomes(&world, ZONE, "rack-a").await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    settles_on(&world, "hv-b", &[]).await;
    end(daemon).await;
    let requests = world.agent_requests(Side::Harvester).await;
    let refused = requests[before..]
        .iter()
        .filter(|request| request.status == 403);
    assert_eq!(
        refused
            .filter_map(asked)
            .map(|(verb, ..)| verb)
            .collect::<BTreeSet<_>>(),
        BTreeSet::from(["list".to_owned()]),
        "the search for doubles is all that is refused"
    );
    world
        .wait_for_access(&paths::vmi("default", &other.spec.name), false)
        .await;
    let whoami = crate::words(&agent(&world, &["whoami", "-v"]).await.stdout);
    for text in [
        "get virtualmachineinstances.kubevirt.io in the namespace of the VM: allowed",
        "list virtualmachineinstances.kubevirt.io in the namespace of the VM: denied",
        "watch virtualmachineinstances.kubevirt.io in the namespace of the VM: allowed",
    ] {
        assert!(whoami.contains(text), "{whoami}");
    }
}

/// `kubectl` as an administrator of the world's Harvester.
struct Kubectl {
    home: tempfile::TempDir,
}

impl Kubectl {
    fn new(world: &World) -> Self {
        let home = tempfile::tempdir().unwrap();
        let endpoint = world.harvester_api.endpoint();
        for (name, text) in [
            ("ca.crt", &endpoint.authority_pem),
            ("admin.crt", &endpoint.admin.certificate_pem),
            ("admin.key", &endpoint.admin.key_pem),
        ] {
            std::fs::write(home.path().join(name), text).unwrap();
        }
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": {
                "server": endpoint.url, "certificate-authority": home.path().join("ca.crt"),
            }}],
            "users": [{"name": "lab", "user": {
                "client-certificate": home.path().join("admin.crt"), "client-key": home.path().join("admin.key"),
            }}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        });
        std::fs::write(home.path().join("config"), config.to_string()).unwrap();
        Self { home }
    }

    /// The lines of standard output, sorted.
    async fn run(&self, args: &[&str], input: &str) -> Vec<String> {
        let text = self.print(args, input).await;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Standard output.
    async fn print(&self, args: &[&str], input: &str) -> String {
        let child = Command::new("kubectl")
            .args(args)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        assert!(
            child.is_ok(),
            "of Debian's package kubernetes-client: {child:?}"
        );
        let mut child = child.unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .await
            .unwrap();
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }
}

async fn kubectl_applies_the_roles_once_and_takes_them_back(on: On) {
    let world = without_rights(on).await;
    let kubectl = Kubectl::new(&world);
    let yaml = agent(&world, &["rbac"]).await.stdout;
    let lines = |deed: &str| -> Vec<String> {
        let kinds = ["clusterrole", "clusterrolebinding", "role", "rolebinding"];
        kinds
            .iter()
            .map(|kind| {
                format!("{kind}.rbac.authorization.k8s.io/harvester-node-agent:default:gc8 {deed}")
            })
            .collect()
    };
    let apply = ["apply", "-f", "-"];
    let dry = kubectl
        .run(&["apply", "--dry-run=server", "-f", "-"], &yaml)
        .await;
    assert_eq!(dry, lines("created (server dry run)"));
    assert_eq!(kubectl.run(&apply, &yaml).await, lines("created"));
    assert_eq!(kubectl.run(&apply, &yaml).await, lines("unchanged"));
    let all = rights(&printed(&world, &[]).await);
    in_force(&world, &all, &all).await;
    let _daemon = serve(&world).await;
    label_becomes(&world, ZONE, "rack-a").await;
    findings_become(&world, &[]).await;

    // JSON is the same; another account's are others; each goes away alone.
    let json = agent(&world, &["rbac", "-ojson"]).await.stdout;
    assert_eq!(kubectl.run(&apply, &json).await, lines("unchanged"));
    let other = agent(&world, &["rbac", "--subject", "default:gc9"])
        .await
        .stdout;
    assert_eq!(kubectl.run(&apply, &other).await.len(), 4);
    assert_eq!(kubectl.run(&apply, &yaml).await, lines("unchanged"));
    let kinds = "role,rolebinding,clusterrole,clusterrolebinding";
    let label = "app.kubernetes.io/name=harvester-node-agent";
    let list = ["get", kinds, "-A", "-l", label, "-o", "name"];
    assert_eq!(kubectl.run(&list, "").await.len(), 8);
    kubectl.run(&["delete", "-f", "-"], &yaml).await;
    assert_eq!(kubectl.run(&list, "").await.len(), 4);
    kubectl.run(&["delete", kinds, "-A", "-l", label], "").await;
    assert_eq!(kubectl.run(&list, "").await, Vec::<String>::new());
}

/// What a person types who follows a finding.
async fn the_commands_of_the_findings_can_be_pasted(on: On) {
    let world = without_rights(on).await;
    // Else the pod would be a source of its own.
    world.harvester.unlabel_pods(&world.vm).await.unwrap();
    let kubectl = Kubectl::new(&world);
    let all = rights(&printed(&world, &[]).await);
    for (code, sources) in [
        ("harvester-forbidden", "sources = [\"vmi-annotations\"]"),
        ("no-topology-source", ""),
    ] {
        agent(&world, &["once"]).await;
        let commands = commands(&world, code).await;
        let texts: Vec<&str> = commands.iter().map(|(_, text)| text.as_str()).collect();
        let [rbac, review, apply]: [&str; 3] = texts.try_into().unwrap();
        assert_eq!(rbac, "harvester-node-agent rbac > /root/rbac.yaml");
        assert_eq!((review, apply), (REVIEW, "kubectl apply -f rbac.yaml"));
        // The roles allow what the configuration asks for.
        let config = format!("[topology]\n{sources}\n");
        world.guest.agent_config("20-sources.toml", &config);
        let granted = rights(&printed(&world, &[]).await);
        let yaml = agent(&world, &["rbac"]).await.stdout;
        kubectl.run(&["apply", "-f", "-"], &yaml).await;
        in_force(&world, &all, &granted).await;
        world.guest.agent_config("20-sources.toml", "");
    }
    agent(&world, &["once"]).await;
    label_becomes(&world, ZONE, "rack-a").await;
}

/// The remedy for a token that Harvester rejects, as `doctor` prints it, up to a kubeconfig that works.
async fn the_commands_for_a_new_kubeconfig_make_one_that_the_agent_can_use(on: On) {
    let world = without_rights(on).await;
    let kubectl = Kubectl::new(&world);
    edit(&world, &world.token, "rejected");
    let mut commands = commands(&world, "harvester-unauthorized").await;
    // The cause comes first, the pods that use the same file last.
    let (_, cause) = commands.remove(0);
    assert!(cause.contains("legacy-token-invalid-since"), "{cause}");
    let (_, addons) = commands.pop().unwrap();
    assert!(addons.contains("harvester"), "{addons}");
    let (_, copy) = commands.remove(0);
    assert!(
        copy.starts_with("install -m 0600 /var/lib/rancher/"),
        "{copy}"
    );
    assert_eq!(commands.len(), 4, "{commands:?}");
    let ((_, rbac), (from, review)) = (&commands[0], &commands[1]);
    let ((_, apply), (place, write)) = (&commands[2], &commands[3]);
    // What is copied is what the command before it wrote and the one after it reads.
    assert_eq!(from, "harvester");
    assert!(rbac.ends_with(" > /root/rbac.yaml"), "{rbac}");
    assert_eq!((place.as_str(), review.as_str()), ("harvester", REVIEW));
    assert_eq!(apply, "kubectl apply -f rbac.yaml");

    let (rbac, _) = rbac.split_once(" > ").unwrap();
    let args: Vec<&str> = rbac.split(' ').skip(1).collect();
    let manifest = agent(&world, &args).await;
    assert_eq!(manifest.code, Some(0), "{}", manifest.stderr);
    kubectl.run(&["apply", "-f", "-"], &manifest.stdout).await;

    // What the controller manager does on a whole cluster.
    let admin = world.harvester.admin();
    let accounts = "/api/v1/namespaces/default/serviceaccounts/harvester-node-agent";
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = admin.create(&format!("{accounts}/token"), &request).await;
    let token = token.unwrap()["status"]["token"].clone();
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    let data = json!({"data": {
        "token": encode(token.as_str().unwrap()),
        "ca.crt": encode(&world.harvester_api.endpoint().authority_pem),
        "namespace": encode("default"),
    }});
    let secret = "/api/v1/namespaces/default/secrets/harvester-node-agent-token";
    admin.merge_patch(secret, &data).await.unwrap();

    // The part before the pipe runs beside kubectl, the rest in the shell of the login.
    let (get, write) = write.split_once(" | ").unwrap();
    let words: Vec<&str> = get.split(' ').skip(1).collect();
    let secret = kubectl.print(&words, "").await;
    let file = kubectl.home.path().join("secret.json");
    std::fs::write(&file, secret).unwrap();
    let login = "ssh <USER>@<NODE_ADDRESS> sudo harvester-node-agent";
    let expected =
        format!("{login} kubeconfig --server <HARVESTER_API> --write {HARVESTER} --replace");
    assert_eq!(write, expected, "a loopback address is not repeated");
    let server = world.harvester_api.endpoint().url;
    let write = write.replace("<HARVESTER_API>", &server);
    let written = Command::new(BINARY)
        .args(write.split(' ').skip(4))
        .arg("--root")
        .arg(world.guest.root())
        .stdin(std::fs::File::open(&file).unwrap())
        .output()
        .await
        .unwrap();
    let problem = String::from_utf8_lossy(&written.stderr);
    assert!(written.status.success(), "{problem}");
    let says = String::from_utf8_lossy(&written.stdout);
    assert_eq!(says, format!("{HARVESTER} written\n"));
    eventually(SOON, "a VM and a host that are known", async || {
        agent(&world, &["whoami"]).await.code == Some(0)
    })
    .await;
    let _daemon = serve(&world).await;
    label_becomes(&world, ZONE, "rack-a").await;
}

/// The commands that fix a finding, each after its place, as `doctor` prints them.
async fn commands(world: &World, code: &str) -> Vec<(String, String)> {
    let doctor = agent(world, &["doctor", "-ojson"]).await.stdout;
    let document: Value = serde_json::from_str(&doctor).unwrap();
    let groups = document["groups"].as_array().unwrap().iter();
    let mut findings = groups.flat_map(|group| group["findings"].as_array().unwrap());
    let finding = findings.find(|finding| finding["code"] == code);
    let commands = finding.unwrap()["commands"].as_array().unwrap();
    let field = |command: &Value, name: &str| command[name].as_str().unwrap().to_owned();
    commands
        .iter()
        .map(|command| (field(command, "runOn"), field(command, "text")))
        .collect()
}

/// A field of a finding in a status.
fn told(status: &Value, code: &str, field: &str) -> String {
    let mut findings = status["findings"].as_array().unwrap().iter();
    let finding = findings.find(|finding| finding["code"] == code);
    finding.unwrap()[field].as_str().unwrap().to_owned()
}
