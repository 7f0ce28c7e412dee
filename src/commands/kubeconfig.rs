// SPDX-License-Identifier: Apache-2.0
//! `kubeconfig`: creates a Harvester kubeconfig from the Secret of a service account, which `rbac --create-account` prints.

use std::io::Read;
use std::path::PathBuf;

use base64::prelude::{BASE64_STANDARD, Engine};
use clap::Args;
use nix::unistd::Uid;
use reqwest::Url;
use serde_json::Value;
use time::UtcDateTime;
use zeroize::Zeroizing;

use super::answer::{Answer, Exit};
use super::options::outer_path;
use crate::access::kubeconfig::is_meant;
use crate::access::own_api::{is_loopback, is_own_api};
use crate::access::pem::authorities;
use crate::access::search::{Candidate, kubelet_candidates};
use crate::access::source::CredentialSource;
use crate::access::token::account;
use crate::access::trust::is_steered;
use crate::config;
use crate::decide::findings::reads::INVALID_SINCE;
use crate::facts::names::Namespace;
use crate::observe::distribution::read_distribution;
use crate::sys::atomic_file::{make_directory, write_secret};
use crate::sys::escape::{chain, one_line, shell_path};
use crate::sys::root::Root;

/// The text after the options in the help.
pub const EXAMPLES: &str = "\
Examples:
  Write the kubeconfig to a node, as an administrator of Harvester:
    kubectl -n NAMESPACE get secret NAME-token -o json | \\
      ssh USER@NODE sudo harvester-node-agent kubeconfig \\
      --server https://VIP:6443 --write KUBECONFIG
  Replace an expired one: copy it first, then the same with --replace
    install -m 0600 FILE /root/kubeconfig.$(date +%s)
  Print it, such as for the user data of cloud-init:
    harvester-node-agent kubeconfig --server https://VIP:6443 < secret.json

Exit status: 0 ok; 1 the Secret is invalid or the file cannot be written; 2 usage error.";

/// The maximum size of the Secret; etcd stores at most 1.5 MiB, and the Secret of a service account is below 8 KiB.
const SECRET_MAX: u64 = 1 << 20;

/// The maximum length of a displayed path, in characters.
const SHOWN_MAX: usize = 500;

/// What `kubeconfig` takes.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// URL of the Harvester API, such as https://VIP:6443
    #[arg(long, value_name = "URL", value_parser = server)]
    pub server: Url,
    /// File to write with mode 0600 instead of standard output
    #[arg(long, value_name = "FILE", value_parser = outer_path())]
    pub write: Option<PathBuf>,
    /// Replace FILE if it is another kubeconfig, but not the kubelet's or another of this cluster
    #[arg(long, requires = "write")]
    pub replace: bool,
}

/// The type of a Secret with the token of a service account.
const TYPE: &str = "kubernetes.io/service-account-token";

/// Returns a value of the data of a Secret, or why it is missing.
fn encoded<'s>(secret: &'s Value, key: &str) -> Result<&'s str, String> {
    let value = secret.get("data").and_then(|data| data.get(key)?.as_str());
    value.ok_or_else(|| {
        let why = match secret.get("type").and_then(Value::as_str) {
            Some(it) if it != TYPE => "its type is not kubernetes.io/service-account-token",
            _ => "Harvester adds it after the Secret is created, if the service account exists",
        };
        format!("the Secret has no `data.{key}`: {why}")
    })
}

/// Parses the URL of the API: not that of Rancher, which has a path, nor an example.
fn server(text: &str) -> Result<Url, String> {
    let invalid = || "not the URL of an API server, such as https://192.0.2.10:6443".to_owned();
    let url = Url::parse(text).map_err(|_| invalid())?;
    let host = url.host_str().unwrap_or_default();
    // The URL crate accepts characters that a shell interprets.
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    match (url.scheme(), host, url.path()) {
        _ if host.is_empty() || !host.bytes().all(is_name) => Err(invalid()),
        // `run` refuses a user: the error of the parser would show the password.
        _ if !url.username().is_empty() || url.password().is_some() || url.path().contains('@') => {
            Ok(url)
        }
        ("https", "vip", _) => Err("VIP is a placeholder for the address of Harvester".to_owned()),
        // `run` refuses a query and a fragment.
        ("https", _, "/")
            if url.port().is_none()
                && !text.contains(['?', '#'])
                && !text.trim_end_matches('/').ends_with(":443") =>
        {
            Err(format!(
                "without a port, this is usually Harvester's UI: write https://{host}:6443, or https://{host}:443 if its API is there"
            ))
        }
        ("https", _, "/") => Ok(url),
        ("https", _, path) => Err(format!(
            "{path} is the path of a proxy such as Rancher's, which has another CA than the Secret; the API of Harvester is https://VIP:6443"
        )),
        _ => Err(invalid()),
    }
}

/// Reads the Secret from `input`, and prints or writes the kubeconfig.
pub fn run(root: &Root, options: &Options, input: impl Read) -> Answer {
    let server = &options.server;
    let (host, port) = (server.host_str().unwrap_or_default(), server.port());
    let api = format!("https://{host}:{}", port.unwrap_or(6443));
    let usage = |why| Answer::stderr(format!("error: --server {why}\n"), Exit::Usage);
    if server.as_str() != format!("{}/", server.origin().ascii_serialization()) {
        return usage(format!("has more than a host and a port: write {api}"));
    }
    let mut kubelet = CredentialSource::default();
    kubelet.search(root, &kubelets(root));
    let guest = kubelet.credential();
    if let Some(evidence) = guest.and_then(|guest| is_own_api(server, &guest.server)) {
        return usage(format!("is the API of this guest cluster: {evidence}"));
    }
    let mut answer = match written(root, options, input) {
        Ok(text) => Answer::new(text.as_str(), Exit::Ok),
        Err(problem) => Answer::stderr(format!("error: {problem}\n"), Exit::Failed),
    };
    // A load balancer may have the API at port 443, and a tunnel on this node.
    if is_loopback(server) {
        answer.stderr += "warning: the server is the VM itself, rarely Harvester\n";
    } else if port.is_none() {
        answer.stderr +=
            "warning: port 443 is usually Harvester's UI, with another CA; its API is ";
        answer.stderr += &format!("{api}\n");
    }
    answer
}

/// Returns the kubeconfig, or writes it and returns what was written.
fn written(root: &Root, options: &Options, input: impl Read) -> Result<Zeroizing<String>, String> {
    let text = kubeconfig(&options.server, input)?;
    let Some(file) = &options.write else {
        return Ok(text);
    };
    let name = one_line(&file.to_string_lossy(), SHOWN_MAX).into_owned();
    if root.link_target(file).is_some() {
        let target = root.resolve(file);
        let target = one_line(&target.to_string_lossy(), SHOWN_MAX).into_owned();
        return Err(format!(
            "{name} is a symbolic link, which is neither followed nor replaced; its target is {target}"
        ));
    }
    let directory = file.parent().unwrap_or(file);
    // Of another user's directories, only root could create any.
    if Uid::effective().is_root() && is_steered(root, directory) {
        return Err(format!(
            "a symbolic link of another user leads to the directory of {name}"
        ));
    }
    match root.metadata(file) {
        Ok(found) if found.is_dir() => return Err(format!("{name} is a directory, not a file")),
        Ok(found) if !found.is_file() => return Err(format!("{name} is not a regular file")),
        _ => {}
    }
    let present = match root.read(file, SECRET_MAX) {
        Ok(present) => Zeroizing::new(present),
        Err(error) if error.is_absent() => Zeroizing::default(),
        // Its content would be lost.
        Err(error) => return Err(chain(&error)),
    };
    let is_other = !present.is_empty() && present.as_slice() != text.as_bytes();
    let of_kubelet = kubelets(root).into_iter().map(|kubelet| kubelet.path);
    let mut of_this_cluster = of_kubelet.chain(OF_THIS_CLUSTER.map(PathBuf::from));
    if of_this_cluster.any(|path| root.resolve(path) == root.resolve(file)) {
        let text = "is for another file of this cluster: check the path";
        return Err(format!("{name} {text}"));
    }
    if is_other && !is_meant(&present) {
        return Err(format!(
            "{name} is not a kubeconfig: check the path, or move the file away first"
        ));
    }
    if is_other && !options.replace {
        // A copy of `cp -p` has the mode of the file, which may be too open.
        let copied = shell_path(&root.join(file));
        return Err(format!(
            "{name} exists with other content, such as the credential of the cloud provider; to replace it, copy it \
             (`install -m 0600 {copied} /root/kubeconfig.$(date +%s)`) and add --replace"
        ));
    }
    make_directory(root, directory)
        .and_then(|()| write_secret(root, file, text.as_bytes()))
        .map_err(|error| chain(&error))?;
    Ok(format!("{name} written\n").into())
}

/// The other kubeconfigs that kubeadm, RKE2 and K3s create for their own components and for administrators, and their configuration: to
/// write one would break this cluster.
const OF_THIS_CLUSTER: [&str; 9] = [
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/super-admin.conf",
    "/etc/kubernetes/scheduler.conf",
    "/etc/kubernetes/controller-manager.conf",
    "/etc/kubernetes/bootstrap-kubelet.conf",
    "/etc/rancher/rke2/rke2.yaml",
    "/etc/rancher/rke2/config.yaml",
    "/etc/rancher/k3s/k3s.yaml",
    "/etc/rancher/k3s/config.yaml",
];

/// Returns the possible paths of the kubelet's kubeconfig, first the one that a setting names.
fn kubelets(root: &Root) -> Vec<Candidate> {
    let settings = config::load(root, None).map(|loaded| loaded.settings);
    let configured = settings.ok().and_then(|settings| settings.guest.kubeconfig);
    let (distributions, _) = read_distribution(root);
    [configured.as_deref(), None]
        .map(|one| kubelet_candidates(one, &distributions))
        .concat()
}

/// Returns the kubeconfig for a valid Secret.
fn kubeconfig(server: &Url, input: impl Read) -> Result<Zeroizing<String>, String> {
    let mut json = Zeroizing::new(Vec::new());
    input
        .take(SECRET_MAX + 1)
        .read_to_end(&mut json)
        .map_err(|error| format!("failed to read standard input: {error}"))?;
    if json.len() as u64 > SECRET_MAX {
        return Err("standard input is larger than 1 MiB: not one Secret".to_owned());
    }
    if json.is_empty() {
        return Err("standard input is empty: the command before the pipe failed".to_owned());
    }
    // The text of the error may contain the token.
    let secret: Value = serde_json::from_slice(&json).map_err(|error| {
        format!(
            "standard input, line {}: not a Secret in JSON (kubectl get secret NAME -o json)",
            error.line()
        )
    })?;
    if !secret.is_object() {
        return Err(
            "standard input is not a Secret in JSON (kubectl get secret NAME -o json)".to_owned(),
        );
    }
    let kind = secret.get("kind").and_then(Value::as_str);
    if let Some(kind) = kind.filter(|kind| *kind != "Secret") {
        let kind = one_line(kind, SHOWN_MAX);
        return Err(format!(
            "standard input is a {kind}, not one Secret: add the name of the Secret to `kubectl get secret`"
        ));
    }
    let metadata = secret.get("metadata");
    let since = metadata.and_then(|it| it.get("labels")?.get(INVALID_SINCE)?.as_str());
    if since.is_some_and(|since| !since.is_empty()) {
        return Err(format!(
            "the Secret has the label {INVALID_SINCE}: Kubernetes rejects its token, which was not used for a year. To make it valid again, run on Harvester: kubectl -n NAMESPACE label secret NAME {INVALID_SINCE}-"
        ));
    }
    let invalid = |key: &str, problem: &str| format!("`data.{key}` of the Secret {problem}");
    let decoded = |key: &str| {
        let bytes = BASE64_STANDARD.decode(encoded(&secret, key)?);
        bytes
            .map(Zeroizing::new)
            .map_err(|_| invalid(key, "is not base64"))
    };
    let (token, namespace) = (decoded("token")?, decoded("namespace")?);
    // Neither is valid with a replacement character.
    let [token, namespace] = [&token, &namespace].map(|bytes| String::from_utf8_lossy(bytes));
    // Another text may be a secret.
    let namespace = Namespace::parse(&namespace)
        .map_err(|_| invalid("namespace", "is not the name of a namespace"))?;
    let account = account(&token, UtcDateTime::now().unix_timestamp())
        .map_err(|problem| invalid("token", &problem))?;
    if account.namespace != namespace {
        let problem = format!("is `{namespace}`, but the token is of service account {account}");
        return Err(invalid("namespace", &problem));
    }
    authorities(&decoded("ca.crt")?).map_err(|problem| invalid("ca.crt", problem))?;
    Ok(Zeroizing::new(format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: harvester\n\
         clusters:\n- name: harvester\n  cluster:\n    server: {server:?}\n    certificate-authority-data: {authority:?}\n\
         users:\n- name: harvester\n  user:\n    token: {token:?}\n\
         contexts:\n- name: harvester\n  context:\n    cluster: harvester\n    user: harvester\n    namespace: {namespace:?}\n",
        server = server.as_str().trim_end_matches('/'),
        authority = encoded(&secret, "ca.crt")?,
        namespace = namespace.as_str(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::kubeconfig::load;
    use crate::access::testing::{Authority, harvester_kubeconfig, jwt, tree, write};

    const FILE: &str = "/etc/kubernetes/cloud-config";

    fn options(write: Option<&str>) -> Options {
        Options {
            server: server("https://192.0.2.10:6443").unwrap(),
            write: write.map(PathBuf::from),
            replace: false,
        }
    }

    /// The Secret as kubectl prints it, without one of its keys.
    fn secret(token: &str, authority: impl AsRef<[u8]>, without: &str) -> String {
        let mut data = serde_json::json!({
            "token": BASE64_STANDARD.encode(token),
            "ca.crt": BASE64_STANDARD.encode(authority),
            "namespace": BASE64_STANDARD.encode("vms"),
        });
        data.as_object_mut().unwrap().remove(without);
        serde_json::json!({"kind": "Secret", "data": data}).to_string()
    }

    fn token() -> String {
        jwt(r#"{"sub":"system:serviceaccount:vms:gc8"}"#)
    }

    #[test]
    fn what_it_writes_is_a_kubeconfig_that_the_agent_uses() {
        let (dir, root) = tree();
        // A comment of a bundle may have another encoding.
        let authority = [b"# caf\xe9\n", Authority::new("ca").pem().as_bytes()].concat();
        let secret = secret(&token(), authority, "");
        let answer = run(&root, &options(Some(FILE)), secret.as_bytes());
        assert_eq!(answer.stderr, "");
        let expected = format!("{FILE} written\n");
        assert_eq!((answer.text, answer.exit), (expected, Exit::Ok));
        let credential = load(&root, FILE.as_ref()).unwrap();
        assert_eq!(credential.server.as_str(), "https://192.0.2.10:6443/");
        assert_eq!(credential.namespace.as_ref().unwrap().as_str(), "vms");
        let path = dir.path().join(FILE.trim_start_matches('/'));
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);

        let printed = run(&root, &options(None), secret.as_bytes());
        let first = std::fs::read_to_string(&path).unwrap();
        assert_eq!(printed.text, first);

        let other = Options {
            server: server("https://192.0.2.11:6443").unwrap(),
            ..options(Some(FILE))
        };
        let answer = run(&root, &other, secret.as_bytes());
        assert_eq!((answer.text.as_str(), answer.exit), ("", Exit::Failed));
        let copy = format!("`install -m 0600 {} /root/", path.display());
        assert!(answer.stderr.contains(&copy), "{answer:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), first);
        let replacing = Options {
            replace: true,
            ..other
        };
        let answer = run(&root, &replacing, secret.as_bytes());
        assert_eq!((answer.stderr.as_str(), answer.exit), ("", Exit::Ok));
        let second = std::fs::read_to_string(&path).unwrap();
        assert_eq!(second, first.replace("192.0.2.10", "192.0.2.11"));
        // Such as /etc/fstab, in the place of the path that was meant.
        std::fs::write(&path, "UUID=1 / ext4\n").unwrap();
        let answer = run(&root, &replacing, secret.as_bytes());
        assert!(answer.stderr.contains("is not a kubeconfig"), "{answer:?}");
        assert_eq!(answer.exit, Exit::Failed);
        assert_eq!(std::fs::read(&path).unwrap(), b"UUID=1 / ext4\n");
        // One that was cut off is to be replaced.
        std::fs::write(&path, &second[..second.len() / 2]).unwrap();
        let answer = run(&root, &replacing, secret.as_bytes());
        assert_eq!(answer.exit, Exit::Ok, "{answer:?}");
        // Neither a file with the same content nor an empty one is lost.
        for present in [second.as_str(), ""] {
            std::fs::write(&path, present).unwrap();
            let replacing = Options {
                replace: false,
                ..replacing.clone()
            };
            let answer = run(&root, &replacing, secret.as_bytes());
            assert_eq!(answer.exit, Exit::Ok, "{answer:?}");
        }
    }

    #[test]
    fn a_kubeconfig_of_the_cluster_is_not_replaced_and_one_of_another_path_is_whatever_it_has() {
        let (_dir, root) = tree();
        let secret = secret(&token(), Authority::new("ca").pem(), "");
        let config = "[guest_cluster]\nkubeconfig = \"/etc/own\"\n";
        write(&root, "/etc/harvester-node-agent/config.toml", config);
        write(&root, "/etc/rancher/k3s/config.yaml", "data-dir: /data\n");
        write(&root, "/var/lib/rancher/k3s/agent/x", "");
        std::os::unix::fs::symlink("kubernetes", root.join("/etc/linked")).unwrap();
        for (file, present, expected) in [
            ("/etc/kubernetes/admin.conf", "kind: Config", Exit::Failed),
            // Absent files, too.
            ("/etc/kubernetes/kubelet.conf", "", Exit::Failed),
            ("/etc/rancher/rke2/config.yaml", "", Exit::Failed),
            (
                "/etc/kubernetes/bootstrap-kubelet.conf",
                "clusters:",
                Exit::Failed,
            ),
            ("/etc/linked/kubelet.conf", "apiVersion: v1", Exit::Failed),
            ("/etc/rancher/rke2/rke2.yaml", "clusters:", Exit::Failed),
            (
                "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
                "clusters:",
                Exit::Failed,
            ),
            ("/data/agent/kubelet.kubeconfig", "clusters:", Exit::Failed),
            ("/etc/own", "clusters:", Exit::Failed),
            (
                "/etc/kubernetes/other.conf",
                "clusters:\nclient-certificate: x",
                Exit::Ok,
            ),
            (
                "/data/etc/config-files/cloud-provider-config",
                "# no client-certificate\nusers:\nclusters:",
                Exit::Ok,
            ),
        ] {
            write(&root, file, present);
            let options = Options {
                replace: true,
                ..options(Some(file))
            };
            let answer = run(&root, &options, secret.as_bytes());
            assert_eq!(answer.exit, expected, "{file}: {answer:?}");
            let is_kept = std::fs::read_to_string(root.join(file)).unwrap() == present;
            assert_eq!(is_kept, expected == Exit::Failed, "{file}");
            let says = "is for another file of this cluster: check the path";
            assert_eq!(answer.stderr.contains(says), is_kept, "{answer:?}");
        }
    }

    #[test]
    fn a_directory_of_others_and_a_server_that_cannot_be_used_are_refused() {
        let (dir, root) = tree();
        let secret = secret(&token(), Authority::new("ca").pem(), "");
        let shared = dir.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&shared, mode).unwrap();
        let answer = run(&root, &options(Some("/shared/kc")), secret.as_bytes());
        assert!(
            answer.stderr.contains("writable by other users"),
            "{answer:?}"
        );
        if nix::unistd::geteuid().is_root() {
            let link = dir.path().join("link");
            std::os::unix::fs::symlink("target", &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(1234), None).unwrap();
            let answer = run(&root, &options(Some("/link/a/kc")), secret.as_bytes());
            assert!(answer.stderr.contains("of another user"), "{answer:?}");
            assert!(!dir.path().join("target").exists());
        } else {
            let test = &crate::testing::this_test();
            harvester_lab::skip(test, "only root can give a link away");
        }
        let kubelet = harvester_kubeconfig(&Authority::new("a"), "t");
        write(
            &root,
            "/etc/own",
            &kubelet.replace("192.0.2.10", "Own.test"),
        );
        let config = "[guest_cluster]\nkubeconfig = \"/etc/own\"\n";
        write(&root, "/etc/harvester-node-agent/config.toml", config);
        for (url, expected) in [
            ("https://own.test:6443", Exit::Usage),
            ("https://own.test:6444", Exit::Ok),
        ] {
            let options = Options {
                server: server(url).unwrap(),
                ..options(None)
            };
            let answer = run(&root, &options, secret.as_bytes());
            let says = "error: --server is the API of this guest cluster: the kubelet kubeconfig";
            assert_eq!(answer.exit, expected, "{answer:?}");
            assert_eq!(answer.stderr.starts_with(says), expected == Exit::Usage);
        }
    }

    #[test]
    fn a_directory_and_a_link_are_named_as_what_they_are() {
        let (dir, root) = tree();
        let secret = secret(&token(), Authority::new("ca").pem(), "");
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("gone", dir.path().join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        for (file, says) in [
            ("/a", "/a is a directory, not a file"),
            ("/socket", "/socket is not a regular file"),
            (
                "/link",
                "/link is a symbolic link, which is neither followed nor replaced; its target is /gone",
            ),
        ] {
            for replace in [false, true] {
                let options = Options {
                    replace,
                    ..options(Some(file))
                };
                let answer = run(&root, &options, secret.as_bytes());
                assert_eq!(answer.stderr, format!("error: {says}\n"));
            }
        }
    }

    #[test]
    fn an_invalid_secret_replaces_no_file_and_is_not_shown() {
        let (dir, root) = tree();
        let authority = Authority::new("ca").pem();
        let good = secret(&token(), &authority, "");
        run(&root, &options(Some(FILE)), good.as_bytes());
        let path = dir.path().join(FILE.trim_start_matches('/'));
        let before = std::fs::read_to_string(&path).unwrap();
        for (text, says) in [
            (String::new(), "standard input is empty"),
            ("CANARY".to_owned(), "line 1: not a Secret in JSON"),
            (
                r#"{"data": {"token": 1, "CANARY": 2}}"#.to_owned(),
                "has no `data.token`",
            ),
            (good.clone() + &" ".repeat(1 << 20), "larger than 1 MiB"),
            ("{}".to_owned(), "the Secret has no `data.token`: Harvester adds"),
            (
                r#"{"kind": "List", "items": [{"data": {"token": "CANARY"}}]}"#.to_owned(),
                "is a List, not one Secret: add the name",
            ),
            (
                r#"{"kind": "Secret", "type": "Opaque", "data": {"a": "CANARY"}}"#.to_owned(),
                "its type is not kubernetes.io/service-account-token",
            ),
            (
                good.replace(
                    r#""kind""#,
                    r#""metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2026-01-02"}},"kind""#,
                ),
                "the label kubernetes.io/legacy-token-invalid-since: Kubernetes rejects its token",
            ),
            (good.replace("Secret", "ConfigMap"), "is a ConfigMap, not"),
            (
                secret(&jwt(r#"{"exp":1700000000}"#), &authority, ""),
                "Secret has expired at 2023-11-14T22:13:20Z, by",
            ),
            (
                good.replace(&BASE64_STANDARD.encode("vms"), &BASE64_STANDARD.encode("CANARY")),
                "`data.namespace` of the Secret is not the name of a namespace",
            ),
            (
                good.replace(&BASE64_STANDARD.encode("vms"), &BASE64_STANDARD.encode("vms\nCANARY")),
                "`data.namespace` of the Secret is not the name of a namespace",
            ),
            (
                secret("CANARY", &authority, ""),
                "`data.token` of the Secret is not a token of a service account",
            ),
            (
                secret(&jwt(r#"{"sub":"CANARY"}"#), &authority, ""),
                "is not a token of a service account",
            ),
            (
                secret(
                    &jwt(r#"{"sub":"system:serviceaccount:other:gc8"}"#),
                    &authority,
                    "",
                ),
                "`data.namespace` of the Secret is `vms`, but the token is of service account other:gc8",
            ),
            (secret(&token(), &authority, "ca.crt"), "no `data.ca.crt`"),
            (
                secret("eyJ.CANARY", &authority, ""),
                "is a truncated JSON Web Token",
            ),
            (
                secret(&token(), "CANARY", ""),
                "`data.ca.crt` of the Secret has no certificate",
            ),
            (secret("CANARY\"\nserver: x", &authority, ""), "line break"),
            (
                r#"{"data": {"token": "CANARY!"}}"#.to_owned(),
                "is not base64",
            ),
        ] {
            let answer = run(&root, &options(Some(FILE)), text.as_bytes());
            assert_eq!((answer.exit, answer.text.as_str()), (Exit::Failed, ""));
            assert!(answer.stderr.contains(says), "{}", answer.stderr);
            assert!(!answer.stderr.contains("CANARY"), "{}", answer.stderr);
            assert_eq!(answer.stderr.lines().count(), 1);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    }

    #[test]
    fn what_is_no_api_server_is_refused() {
        for (text, says) in [
            ("http://192.0.2.10:6443", "not the URL"),
            ("192.0.2.10:6443", "not the URL"),
            ("https://VIP:6443", "placeholder"),
            ("http://@192.0.2.10:6443", "not the URL"),
            ("https://@vip:6443", "placeholder"),
            ("https://192.0.2.10", "without a port"),
            ("https://[fd00:443::1]", "without a port"),
            (
                "https://192.0.2.10/k8s/clusters/local",
                "/k8s/clusters/local is the path of a proxy such as Rancher's",
            ),
            ("https://$(reboot):6443", "not the URL"),
            ("https://a@$(reboot):6443", "not the URL"),
            ("", "not the URL"),
        ] {
            let error = server(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        let secret = secret(&token(), Authority::new("ca").pem(), "");
        for (url, says) in [
            (
                "https://192.0.2.10:443",
                "warning: port 443 is usually Harvester's UI, with another CA; its API is https://192.0.2.10:6443\n",
            ),
            (
                "https://127.0.0.1:6443",
                "warning: the server is the VM itself",
            ),
            (
                "https://localhost:6443",
                "warning: the server is the VM itself",
            ),
        ] {
            let options = Options {
                server: server(url).unwrap(),
                ..options(None)
            };
            let answer = run(&tree().1, &options, secret.as_bytes());
            assert!(answer.stderr.starts_with(says), "{answer:?}");
            assert_eq!(answer.exit, Exit::Ok);
        }
    }
}
