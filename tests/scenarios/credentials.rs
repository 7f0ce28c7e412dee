// SPDX-License-Identifier: Apache-2.0
//! Credentials that come late, change, break, or lead to the wrong place; and that no output ever shows.

use std::path::Path;

use harvester_lab::guest::{Distribution, KubeconfigForm};
use harvester_lab::pki::Validity;
use harvester_lab::server::User;
use harvester_lab::world::{ACCOUNT, Api, CloudState, NAMESPACE, World, WorldOptions, eventually};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    HOST, On, SOON, TOPOLOGY, ZONE, agent, condition_becomes, findings_become, lab, label_becomes,
    on_both, serve, settles_on,
};

on_both!(
    every_distribution_and_every_form_of_kubeconfig_works,
    credentials_that_come_late_are_picked_up,
    a_certificate_that_comes_after_its_kubeconfig_is_picked_up,
    a_rotated_kubelet_certificate_is_used,
    a_half_written_kubeconfig_keeps_the_old_one,
    the_guests_own_api_is_refused_as_harvester,
    the_guests_own_api_at_another_address_is_known_by_what_is_in_it,
    a_token_is_never_seen,
);

const HARVESTER: &str = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";

/// The mount point of the directory of a service account, in the kubeconfig from the packages.
const ACCOUNT_DIRECTORY: &str = "/run/harvester-account";

async fn every_distribution_and_every_form_of_kubeconfig_works(on: On) {
    for (distribution, form) in [
        (Distribution::Rke2, KubeconfigForm::AddOnScript),
        (Distribution::K3s, KubeconfigForm::HarvesterApi),
        (Distribution::Kubeadm, KubeconfigForm::HarvesterApi),
    ] {
        let world = on
            .world(WorldOptions {
                distribution,
                form,
                cloud: CloudState::Absent,
                ..WorldOptions::default()
            })
            .await;
        let output = agent(&world, &["once"]).await;
        assert_eq!(
            output.code,
            Some(0),
            "{distribution:?}: {}{}",
            output.stdout,
            output.stderr
        );
        assert_eq!(
            world.node_label(ZONE).await.as_deref(),
            Some("rack-a"),
            "{distribution:?}"
        );
    }
}

async fn credentials_that_come_late_are_picked_up(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let kubeconfig = Distribution::Rke2.kubeconfig();
    let texts = [HARVESTER, kubeconfig].map(|path| (path, world.guest.read(path).unwrap()));
    for (path, _) in &texts {
        world.guest.remove(path);
    }
    let mut agent = serve(&world).await;
    agent
        .wait_line(
            |line| line.text.contains("[kubelet-credential-missing]"),
            SOON,
        )
        .await;
    for (path, text) in &texts {
        world.guest.write_secret(path, text);
    }
    label_becomes(&world, HOST, "hv-a").await;
    findings_become(&world, &[]).await;
}

async fn a_certificate_that_comes_after_its_kubeconfig_is_picked_up(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let certificate = "/var/lib/rancher/rke2/agent/client-kubelet.crt";
    let text = world.guest.read(certificate).unwrap();
    world.guest.remove(certificate);
    let _agent = serve(&world).await;
    findings_become(&world, &["kubelet-credential-invalid"]).await;
    world.guest.write_secret(certificate, &text);
    label_becomes(&world, HOST, "hv-a").await;
    findings_become(&world, &[]).await;
}

async fn a_rotated_kubelet_certificate_is_used(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let user = format!("system:node:{}", world.node_name());
    let authority = match &world.guest_api {
        Api::Lab(server) => server.authority(),
        Api::Real(api) => api.authority(),
    };
    let validity = Validity::from_now(time::Duration::days(200));
    let identity = authority.client_identity_with(&user, &["system:nodes"], validity);
    let expires =
        || world.guest.status().unwrap()["credentials"]["kubelet"]["expirationTime"].clone();
    let before = expires();
    world
        .guest
        .rotate_kubelet_certificate(Distribution::Rke2, &identity);
    let is_new = || async { expires() != before };
    eventually(SOON, "the new certificate in the status", is_new).await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    settles_on(&world, "hv-b", &[]).await;
}

/// The directory of a service account, as the kubelet writes it: a new directory, and one rename that makes all files those of it.
fn share_account(world: &World, version: &str, token: &str) {
    let authority = world.harvester_api.endpoint().authority_pem;
    for (file, text) in [
        ("token", token),
        ("ca.crt", &authority),
        ("namespace", NAMESPACE),
    ] {
        let path = format!("{ACCOUNT_DIRECTORY}/{version}/{file}");
        world.guest.write_secret(&path, text);
        let link = format!("{ACCOUNT_DIRECTORY}/{file}");
        world.guest.flip_link(&link, &format!("..data/{file}"));
    }
    let link = format!("{ACCOUNT_DIRECTORY}/..data");
    world.guest.flip_link(&link, version);
}

/// The kubeconfig from the packages, with the address of Harvester.
fn account_kubeconfig(world: &World) -> String {
    let text = include_str!("../../packaging/kubevirt/service-account-kubeconfig.yaml");
    let url = world.harvester_api.endpoint().url;
    let whole = text.replace("server: https://VIP:6443", &format!("server: {url}"));
    assert_ne!(whole, text);
    whole
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_directory_of_a_service_account_is_a_credential_whose_token_is_rotated() {
    let world = World::lab(WorldOptions::default()).await;
    world.guest.remove(HARVESTER);
    share_account(&world, "..1", &world.token);
    let kubeconfig = "/etc/harvester-node-agent/harvester.kubeconfig";
    let text = account_kubeconfig(&world);
    world.guest.write_secret(kubeconfig, text);
    let toml = format!("[harvester]\nkubeconfig = \"{kubeconfig}\"\n");
    world.guest.agent_config("50-account.toml", &toml);
    let _agent = serve(&world).await;
    label_becomes(&world, HOST, "hv-a").await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let server = lab(&world.harvester_api);
    let mut old = world.token.clone();
    for (version, host) in [("..2", "hv-b"), ("..3", "hv-c")] {
        // The same claims with another signature of the same length.
        let (claims, signature) = world.token.rsplit_once('.').unwrap();
        let new = format!("{claims}.{}{}", host.replace('-', "A"), &signature[4..]);
        server.add_token(&new, User::service_account(NAMESPACE, ACCOUNT));
        share_account(&world, version, &new);
        // A watch that is open would go on with the old token.
        server.remove_token(&old);
        server.drop_connections();
        let is_back = || async { world.harvester.vmi(&world.vm).await.is_ok() };
        eventually(SOON, "the lab has another connection", is_back).await;
        world.migrate(host).await;
        settles_on(&world, host, &[]).await;
        old = new;
    }
}

async fn a_half_written_kubeconfig_keeps_the_old_one(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let _agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let text = world.guest.read(HARVESTER).unwrap();
    world.guest.write_half(HARVESTER, &text);
    findings_become(&world, &["credential-reload-failed"]).await;
    world.migrate("hv-b").await;
    label_becomes(&world, ZONE, "rack-b").await;
    world.guest.write_secret(HARVESTER, &text);
    findings_become(&world, &[]).await;
}

async fn the_guests_own_api_is_refused_as_harvester(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let text = world.guest.read(HARVESTER).unwrap();
    let own = text.replace(
        &world.harvester_api.endpoint().url,
        &world.guest_api.endpoint().url,
    );
    assert_ne!(own, text);
    world.guest.write_secret(HARVESTER, own);
    let output = agent(&world, &["once"]).await;
    assert!(
        output.stderr.contains("[harvester-is-own-api]"),
        "{}",
        output.stderr
    );
    assert!(
        world
            .agent_writes()
            .await
            .iter()
            .all(|write| write.body["metadata"]["labels"].is_null())
    );
}

async fn the_guests_own_api_at_another_address_is_known_by_what_is_in_it(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let [own, other] = [&world.guest_api, &world.harvester_api].map(Api::endpoint);
    // Behind a load balancer, and with one more authority: nothing in the files says that it is the same cluster.
    let balancer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let balanced = format!("https://{}", balancer.local_addr().unwrap());
    let behind = own.url.trim_start_matches("https://").to_owned();
    let balancing = tokio::spawn(async move {
        while let Ok((mut client, _)) = balancer.accept().await {
            let behind = behind.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(behind).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    let authorities = "/etc/harvester-node-agent/authorities.crt";
    let both = format!("{}{}", own.authority_pem, other.authority_pem);
    world.guest.write(authorities, both);
    let directory = "/var/lib/rancher/rke2/agent";
    let kubelet = world
        .guest
        .read(&format!("{directory}/kubelet.kubeconfig"))
        .unwrap();
    let server = |line: &str| line.contains("server: https://").then(|| line.to_owned());
    let named = kubelet.lines().find_map(server).unwrap();
    let text = kubelet
        .replace(&named, &format!("    server: {balanced}"))
        .replace(&format!("{directory}/server-ca.crt"), authorities);
    world.guest.write_secret(HARVESTER, text);
    let output = agent(&world, &["once"]).await;
    balancing.abort();
    let said = &output.stderr;
    assert!(said.contains("[harvester-is-own-api]"), "{said}");
    assert!(said.contains("has the same UID there"), "{said}");
}

async fn a_token_is_never_seen(on: On) {
    let world = on.world(WorldOptions::default()).await;
    let mut agent = serve(&world).await;
    condition_becomes(&world, TOPOLOGY, "True", "Synced").await;
    let text = world.guest.read(HARVESTER).unwrap();
    world.guest.write_half(HARVESTER, &text);
    findings_become(&world, &["credential-reload-failed"]).await;
    let mut outputs = vec![
        agent.transcript(),
        std::fs::read_to_string(format!("/proc/{}/cmdline", agent.pid())).unwrap(),
    ];
    for args in [
        ["status", "-ojson"],
        ["whoami", "-ojson"],
        ["config", "show"],
    ] {
        let output = crate::agent(&world, &args).await;
        outputs.push(output.stdout + &output.stderr);
    }
    outputs.extend(left_behind(&world));
    let secret = world.token.rsplit('.').next().unwrap();
    assert!(secret.len() >= 8, "{secret}");
    for output in outputs {
        assert!(
            !output.contains(secret),
            "the token's signature is in:\n{output}"
        );
    }
    assert!(agent.exited().is_none());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", agent.pid())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
}

/// Every file that the agent wrote.
fn left_behind(world: &World) -> Vec<String> {
    let mut texts = Vec::new();
    for directory in ["/run/harvester-node-agent", "/var/lib/harvester-node-agent"] {
        let entries = std::fs::read_dir(world.guest.path(directory)).unwrap();
        texts.extend(
            entries
                .map(|entry| std::fs::read_to_string(Path::new(&entry.unwrap().path())).unwrap()),
        );
    }
    texts
}
