// SPDX-License-Identifier: Apache-2.0
//! Everything that can be wrong with the two credentials, the servers' certificates, the clock and the image: each made once,
//! and what `doctor` says of it. What is wrong is named, and nothing else is an error.

use std::os::unix::fs::{PermissionsExt, chown};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use harvester_lab::bus::{Bus, Systemd, Unit};
use harvester_lab::faults::{Fault, Matcher, ServerCertificate};
use harvester_lab::guest::Distribution;
use harvester_lab::pki::{Authority, Validity};
use harvester_lab::server::User;
use harvester_lab::world::{ACCOUNT, AGENT, NAMESPACE, World, WorldOptions};
use serde_json::Value;

use crate::{On, agent, lab, on_both};

on_both!(
    a_healthy_machine_has_nothing_to_hide,
    a_token_of_rancher_is_reported_where_it_is_refused,
    a_credential_that_is_no_file_is_reported,
    a_path_that_rke2_names_in_vain_is_reported,
    a_credential_that_another_user_can_change_is_reported,
    a_token_of_another_namespace_is_reported,
    a_machine_with_the_id_of_its_image_is_reported,
    a_unit_that_is_not_enabled_is_reported,
);

pub(crate) const HARVESTER: &str = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";
const DAY: i64 = 86_400;

/// What `doctor` found.
struct Diagnosis(Value);

impl Diagnosis {
    async fn of(world: &World) -> Self {
        let output = agent(world, &["doctor", "-o", "json"]).await;
        let secret = world.token.rsplit('.').next().unwrap();
        assert!(!output.stdout.contains(secret), "{}", output.stdout);
        let document = serde_json::from_str(&output.stdout);
        assert!(document.is_ok(), "{}{}", output.stdout, output.stderr);
        Self(document.unwrap())
    }

    fn findings(&self) -> impl Iterator<Item = &Value> {
        let groups = self.0["groups"].as_array().unwrap();
        groups
            .iter()
            .flat_map(|group| group["findings"].as_array().unwrap())
    }

    /// The consequences that are not shown, each with its cause.
    fn suppressed(&self) -> Vec<(&str, &str)> {
        let groups = self.0["groups"].as_array().unwrap().iter();
        let all = groups.flat_map(|group| group["suppressed"].as_array().unwrap());
        all.map(|one| {
            (
                one["code"].as_str().unwrap(),
                one["suppressedBy"].as_str().unwrap(),
            )
        })
        .collect()
    }

    fn seen(&self, code: &str) -> Option<&str> {
        let mut findings = self.findings();
        let finding = findings.find(|finding| finding["code"] == code)?;
        finding["observed"].as_str()
    }

    fn errors(&self) -> Vec<&str> {
        let errors = self
            .findings()
            .filter(|finding| finding["severity"] == "error");
        errors
            .map(|finding| finding["code"].as_str().unwrap())
            .collect()
    }

    /// What was seen of the one error that there is.
    fn only(&self, code: &str) -> &str {
        assert_eq!(self.errors(), [code], "{:#}", self.0);
        self.seen(code).unwrap()
    }

    /// What was seen of a warning or notice, where nothing is an error.
    fn warned(&self, code: &str) -> &str {
        assert_eq!(self.errors(), [""; 0], "{:#}", self.0);
        assert!(self.seen(code).is_some(), "no {code}: {:#}", self.0);
        self.seen(code).unwrap()
    }
}

/// The kubeconfig for Harvester, with one text in place of another.
pub(crate) fn edit(world: &World, old: &str, new: &str) {
    let text = world.guest.read(HARVESTER).unwrap();
    assert!(text.contains(old), "{old}");
    world.guest.write_secret(HARVESTER, text.replace(old, new));
}

async fn a_healthy_machine_has_nothing_to_hide(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let diagnosis = Diagnosis::of(&world).await;
    for code in [
        "rancher-token-in-use",
        "credential-writable-by-others",
        "credential-not-at-named-path",
        "credential-expires",
        "clock-drift",
        "clock-not-synchronized",
        "identity-from-image",
        "agent-not-enabled",
    ] {
        assert_eq!(diagnosis.seen(code), None);
    }
    assert_eq!(diagnosis.errors(), [""; 0]);
    let gaps = diagnosis.0["groups"].to_string();
    assert!(
        !gaps.contains("the server's certificate and clock"),
        "{gaps}"
    );
}

async fn a_token_of_rancher_is_reported_where_it_is_refused(on: On) {
    let world = on.world(WorldOptions::default()).await;
    edit(&world, &world.token, "kubeconfig-u-abcde:CANARYCANARY");
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.only("rancher-token-rejected");
    assert!(seen.contains("`kubeconfig-u-abcde`"), "{seen}");
    assert!(!diagnosis.0.to_string().contains("CANARY"));
}

async fn a_credential_that_is_no_file_is_reported(on: On) {
    let world = on.world(WorldOptions::default()).await;
    world.guest.write_secret(HARVESTER, "");
    let diagnosis = Diagnosis::of(&world).await;
    assert!(diagnosis.only("credential-is-empty").contains(HARVESTER));
    assert_eq!(whoami_says(&world).await, ["credential-is-empty"]);
    world.guest.remove(HARVESTER);
    std::fs::create_dir(world.guest.path(HARVESTER)).unwrap();
    let diagnosis = Diagnosis::of(&world).await;
    assert!(
        diagnosis
            .only("credential-is-directory")
            .contains(HARVESTER)
    );
    assert_eq!(whoami_says(&world).await, ["credential-is-directory"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_that_names_no_file_is_the_cause_and_no_outage() {
    let world = World::lab(WorldOptions::default()).await;
    let setting = "[harvester]\nkubeconfig = \"/etc/mine\"\n";
    world.guest.agent_config("10-mine.toml", setting);
    let away = Fault::answer(503, "text/plain", "away");
    lab(&world.guest_api).faults().inject(Matcher::any(), away);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.only("harvester-credential-missing");
    let end = "; there is a file at /var/lib/rancher/rke2/etc/config-files/cloud-provider-config (`cloud-provider-config` in \
        /etc/rancher/rke2/config.yaml.d/50-rancher.yaml), which is not searched because of the setting";
    assert!(seen.ends_with(end), "{seen}");
    let mut findings = diagnosis.findings();
    let missing = findings
        .find(|one| one["code"] == "harvester-credential-missing")
        .unwrap();
    let first = &missing["commands"][0]["text"];
    assert_eq!(first, "harvester-node-agent config show");
    assert_eq!(agent(&world, &["whoami"]).await.code, Some(1));
    world.guest.agent_config("10-mine.toml", "");
    assert_eq!(agent(&world, &["whoami"]).await.code, Some(75));
}

/// Returns the codes of the errors that `whoami` finds: each state has one name.
async fn whoami_says(world: &World) -> Vec<String> {
    let output = agent(world, &["whoami", "-ojson"]).await;
    let status: Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = status["findings"].as_array().unwrap().iter();
    let errors = findings.filter(|finding| finding["severity"] == "error");
    errors
        .map(|finding| finding["code"].as_str().unwrap().to_owned())
        .collect()
}

async fn a_path_that_rke2_names_in_vain_is_reported(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let text = world.guest.read(HARVESTER).unwrap();
    world.guest.remove(HARVESTER);
    world
        .guest
        .write_secret("/etc/kubernetes/cloud-config", text);
    let config = "/etc/rancher/rke2/config.yaml.d/99-mine.yaml";
    let named = "cloud-provider-name: harvester\ncloud-provider-config: /etc/cloud/nowhere\n";
    world.guest.write(config, named);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.warned("credential-not-at-named-path");
    assert!(
        seen.contains(config) && seen.contains("/etc/cloud/nowhere"),
        "{seen}"
    );
}

async fn a_credential_that_another_user_can_change_is_reported(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let path = world.guest.path(HARVESTER);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o660)).unwrap();
    let diagnosis = Diagnosis::of(&world).await;
    assert!(
        diagnosis
            .warned("credential-writable-by-others")
            .contains("mode 0660")
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    if !nix::unistd::geteuid().is_root() {
        let test = "a_credential_that_another_user_can_change_is_reported";
        return harvester_lab::skip(test, "chown needs root");
    }
    chown(&path, Some(1234), None).unwrap();
    let diagnosis = Diagnosis::of(&world).await;
    assert!(
        diagnosis
            .warned("credential-writable-by-others")
            .contains("UID 1234")
    );
}

async fn a_token_of_another_namespace_is_reported(on: On) {
    let world = on.world(WorldOptions::default()).await;
    edit(&world, "namespace: \"default\"", "namespace: \"team-b\"");
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.only("credential-namespace-differs");
    assert!(
        seen.contains("default") && seen.contains("team-b"),
        "{seen}"
    );
}

async fn a_machine_with_the_id_of_its_image_is_reported(on: On) {
    let world = on.world(WorldOptions::default()).await;
    world
        .guest
        .write("/var/lib/cloud/instance/sem/config_ssh", "");
    let opened = |path: &str| std::fs::File::open(world.guest.path(path)).unwrap();
    let id = opened("/etc/machine-id");
    let before = |days| time::OffsetDateTime::now_utc() - time::Duration::days(days);
    let (began, built) = (before(1), before(30));
    // The Node registered after the first boot.
    let note = opened("/var/lib/cloud/instance/sem/config_ssh");
    note.set_modified(began.into()).unwrap();
    assert_eq!(
        Diagnosis::of(&world).await.seen("identity-from-image"),
        None
    );
    id.set_modified(built.into()).unwrap();
    let diagnosis = Diagnosis::of(&world).await;
    assert!(
        diagnosis
            .warned("identity-from-image")
            .contains("/etc/machine-id")
    );
}

async fn a_unit_that_is_not_enabled_is_reported(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let unit = "harvester-node-agent.service";
    let bus = Bus::start(&world.guest).await;
    let systemd = Systemd::start(&bus, &[]).await;
    for (file_state, load, is_reported) in [
        ("disabled", "loaded", true),
        ("masked", "masked", true),
        ("enabled", "loaded", false),
    ] {
        let on_disk = Unit {
            load,
            file_state,
            in_memory: false,
            ..Unit::stopped()
        };
        systemd.set(unit, on_disk).await;
        let diagnosis = Diagnosis::of(&world).await;
        let seen = diagnosis.seen("agent-not-enabled");
        assert_eq!(seen.is_some(), is_reported, "{file_state}");
        assert!(seen.is_none_or(|seen| seen.contains(unit)), "{seen:?}");
    }
}

/// A date so many seconds from now, as servers write it.
fn date(ahead: i64) -> String {
    let now = time::OffsetDateTime::now_utc() + time::Duration::seconds(ahead);
    let format = time::format_description::well_known::Rfc2822;
    now.format(&format).unwrap().replace("+0000", "GMT")
}

/// Lets Harvester's server answer as if it were so many days later there.
fn set_server_clock(world: &World, days: i64) {
    let header = Fault::Header("date".to_owned(), date(days * DAY));
    let all = Matcher::any().user_agent(AGENT);
    lab(&world.harvester_api).faults().inject(all, header);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_clock_is_distinguished_from_an_expired_certificate() {
    // A certificate that is not valid yet proves no wrong clock: nothing has verified its server.
    let world = World::lab(WorldOptions::default()).await;
    lab(&world.harvester_api).present(ServerCertificate::NotYetValid);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.only("harvester-tls-error");
    assert!(seen.contains("is not yet valid until"), "{seen}");
    // An expired one is reported with its time, and no clock is.
    let world = World::lab(WorldOptions::default()).await;
    lab(&world.harvester_api).present(ServerCertificate::Expired);
    let diagnosis = Diagnosis::of(&world).await;
    diagnosis.only("harvester-tls-error");
    assert!(
        diagnosis
            .seen("credential-expires")
            .unwrap()
            .contains(" expired at")
    );
    // What is valid here and expired at the server shows that one of the clocks is wrong.
    let world = World::lab(WorldOptions::default()).await;
    set_server_clock(&world, 500);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.only("clock-skew");
    assert!(seen.contains("the Harvester API"), "{seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_differ_are_a_warning_while_everything_is_valid_by_both() {
    let world = World::lab(WorldOptions::default()).await;
    set_server_clock(&world, 2);
    let diagnosis = Diagnosis::of(&world).await;
    assert!(
        diagnosis
            .warned("clock-drift")
            .contains("the Harvester API")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_under_another_name_is_reported_with_its_names() {
    let world = World::lab(WorldOptions::default()).await;
    lab(&world.harvester_api).present(ServerCertificate::OtherName);
    let diagnosis = Diagnosis::of(&world).await;
    diagnosis.only("server-not-in-certificate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_is_another_one_is_a_matter_of_trust_alone() {
    let world = World::lab(WorldOptions::default()).await;
    lab(&world.harvester_api).present(ServerCertificate::OtherAuthority);
    Diagnosis::of(&world).await.only("harvester-tls-error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_to_a_server_that_is_not_trusted() {
    let world = World::lab(WorldOptions::default()).await;
    let server = lab(&world.harvester_api);
    server.present(ServerCertificate::OtherAuthority);
    server.clear_requests();
    Diagnosis::of(&world).await.only("harvester-tls-error");
    assert!(server.requests_of(AGENT).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_account_at_rancher_is_reported() {
    let world = World::lab(WorldOptions::default()).await;
    let url = world.harvester_api.endpoint().url;
    edit(&world, &url, &format!("{url}/k8s/clusters/c-m-abcde"));
    let unauthorized = Matcher::path("/k8s/clusters/").user_agent(AGENT);
    lab(&world.harvester_api)
        .faults()
        .inject(unauthorized, Fault::unauthorized());
    Diagnosis::of(&world).await.only("server-is-rancher");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_of_tokens_and_certificates_are_reported_in_time() {
    let world = World::lab(WorldOptions::default()).await;
    let user = format!("system:node:{}", world.node_name());
    let soon = Validity::from_now(time::Duration::hours(5 * 24 + 12));
    let authority = lab(&world.guest_api).authority();
    let identity = authority.client_identity_with(&user, &["system:nodes"], soon);
    world
        .guest
        .rotate_kubelet_certificate(Distribution::Rke2, &identity);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.warned("credential-expires");
    assert!(seen.contains("in 5 days"), "{seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_has_ended_is_the_one_error() {
    let world = World::lab(WorldOptions::default()).await;
    let part = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
    let claims =
        format!(r#"{{"sub":"system:serviceaccount:{NAMESPACE}:{ACCOUNT}","exp":1795000000}}"#);
    let ended = format!(
        "{}.{}.c2ln",
        part(r#"{"alg":"lab"}"#.to_owned()),
        part(claims)
    );
    edit(&world, &world.token, &ended);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.only("harvester-credential-expired");
    assert!(seen.contains("expired at 2026-11-18T11:06:40Z"), "{seen}");
    // Consequences are listed, whether the round or the examination found them.
    let suppressed = diagnosis.suppressed();
    assert!(
        suppressed.contains(&("harvester-unauthorized", "harvester-credential-expired")),
        "{suppressed:?}"
    );
    // One that the server takes has not ended: one of the two clocks is wrong.
    let user = User::service_account(NAMESPACE, ACCOUNT);
    lab(&world.harvester_api).add_token(&ended, user);
    let diagnosis = Diagnosis::of(&world).await;
    assert!(diagnosis.warned("clock-drift").contains("accepts it"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_the_kubelet_that_has_ended_is_the_one_error() {
    let world = World::lab(WorldOptions::default()).await;
    let user = format!("system:node:{}", world.node_name());
    let authority = lab(&world.guest_api).authority();
    let ended = authority.client_identity_with(&user, &["system:nodes"], Validity::expired());
    world
        .guest
        .rotate_kubelet_certificate(Distribution::Rke2, &ended);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.only("kubelet-credential-expired");
    assert!(
        seen.contains("kubelet.kubeconfig: kubelet client certificate expired at"),
        "{seen}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_is_lost_on_the_way_is_no_missing_role() {
    let world = World::lab(WorldOptions::default()).await;
    let nobody = Fault::forbidden(
        "virtualmachineinstances.kubevirt.io is forbidden: User \"system:anonymous\" cannot list resource",
    );
    let all = Matcher::path("/apis/kubevirt.io/").user_agent(AGENT);
    lab(&world.harvester_api).faults().inject(all, nobody);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.only("harvester-unauthorized");
    assert!(seen.contains("did not reach the server"), "{seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxys_page_is_no_proof_that_the_node_is_gone() {
    let world = World::lab(WorldOptions::default()).await;
    let nodes = Matcher::path("/api/v1/nodes/").user_agent(AGENT);
    let page = Fault::html(404);
    lab(&world.guest_api).faults().inject(nodes, page);
    let diagnosis = Diagnosis::of(&world).await;
    diagnosis.only("guest-api-bad-response");
    assert_eq!(diagnosis.seen("node-missing"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_ends_is_reported_with_its_file() {
    let world = World::lab(WorldOptions::default()).await;
    let file = "/var/lib/rancher/rke2/agent/server-ca.crt";
    let soon = Validity::from_now(time::Duration::hours(9 * 24 + 12));
    let old = Authority::with_validity("old-ca", soon).pem();
    let both = world.guest.read(file).unwrap() + &old;
    world.guest.write(file, both);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.warned("credential-expires");
    assert!(
        seen.contains("CA old-ca expires at") && seen.contains("in 9 days"),
        "{seen}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_rancher_that_works_is_a_warning() {
    let world = World::lab(WorldOptions::default()).await;
    let token = "kubeconfig-u-abcde:CANARYCANARY";
    lab(&world.harvester_api).add_token(token, User::service_account(NAMESPACE, ACCOUNT));
    edit(&world, &world.token, token);
    let diagnosis = Diagnosis::of(&world).await;
    let seen = diagnosis.warned("rancher-token-in-use");
    assert!(seen.contains("`kubeconfig-u-abcde`"), "{seen}");
    assert!(!diagnosis.0.to_string().contains("CANARY"));
}
