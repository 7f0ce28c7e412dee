// SPDX-License-Identifier: Apache-2.0
//! A real kube-apiserver on a real etcd, for the same scenarios that run on the lab's own server.
//!
//! The program of a version is found through `KUBEBUILDER_ASSETS`, as by other projects that test against a control plane; here it
//! may name several directories, with `:` between them. Else it is in `target`, where `tests/lab/kubernetes` puts it. Both children
//! belong to a pool, and end with it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::admin::{Admin, ApiError, paths};
use crate::guard;
use crate::kubernetes::Kubernetes;
use crate::pki::{Authority, Identity};
use crate::server::RequestRecord;
use crate::world::{SOON, found};
use crate::{Endpoint, SERVER_NAMES};

mod assets;
mod audit;
mod install;
mod kubelet;
mod pool;
mod signer;

use audit::{audit_policy, parse_audit};
pub use kubelet::{FLAGS_FILE, Kubelet};
pub use pool::Lease;
use pool::owner_of;
pub use signer::Signer;

/// A start takes two seconds on an idle machine and has been seen to take twenty beside a compiler.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// Between two looks at something that is not there yet.
const POLL: Duration = Duration::from_millis(50);

/// A bearer token that the server accepts from its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticToken {
    /// The token.
    pub token: String,
    /// The user that it stands for, for example `system:serviceaccount:default:gc8`.
    pub user: String,
    /// The groups of that user.
    pub groups: Vec<String>,
}

impl StaticToken {
    /// A service account's token.
    #[must_use]
    pub fn service_account(token: &str, namespace: &str, name: &str) -> Self {
        Self {
            token: token.to_owned(),
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
        }
    }
}

/// What may differ between two real API servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealOptions {
    /// The version.
    pub version: Kubernetes,
    /// Whether etcd is the one on the path, though another is beside the API server.
    pub etcd_on_path: bool,
    /// Tokens beside the administrator's certificate.
    pub tokens: Vec<StaticToken>,
    /// More flags of kube-apiserver; the last of two equal ones counts.
    pub flags: Vec<String>,
}

impl RealOptions {
    /// A server of a version, with nothing special.
    #[must_use]
    pub fn of(version: Kubernetes) -> Self {
        Self {
            version,
            etcd_on_path: false,
            tokens: Vec::new(),
            flags: Vec::new(),
        }
    }
}

/// A real API server with its own etcd, of a pool.
#[derive(Debug)]
pub struct RealApi {
    options: RealOptions,
    /// Length of the audit log when the present user began.
    audit_start: usize,
    authority: Authority,
    admin: Identity,
    port: u16,
    arguments: Vec<String>,
    binary: PathBuf,
    /// Process groups.
    server: i32,
    etcd: i32,
    /// Where both have their files.
    dir: PathBuf,
}

impl RealApi {
    /// The program, or where it was looked for, for a test that is skipped without it.
    pub fn binary(version: Kubernetes) -> Result<PathBuf, String> {
        assets::find("kube-apiserver", version)
    }

    /// Whether real servers of a version can run here. Says so when they cannot, for a test that returns then.
    #[must_use]
    pub fn available(version: Kubernetes, test: &str) -> bool {
        match Self::binary(version) {
            Ok(_) => true,
            Err(why) => {
                crate::skip(test, why);
                false
            }
        }
    }

    /// Starts etcd and kube-apiserver, and waits until the latter is ready.
    async fn try_start(name: &str, options: &RealOptions, dir: &Path) -> Result<Self, String> {
        let binary = Self::binary(options.version)?;
        let path = |file: &str| dir.join(file).display().to_string();
        let write = |file: &str, text: &str| {
            std::fs::write(dir.join(file), text).expect("the directory is writable");
            path(file)
        };
        let authority = Authority::new(&format!("{name}-ca"));
        let admin = authority.client_identity("lab-admin", &["system:masters"]);
        let serving = authority.server_identity(&SERVER_NAMES);
        // A key pair of service accounts is any key pair; the serving one is at hand, its public half as a certificate.
        let certificate = write("server.crt", &serving.certificate_pem);
        let key = write("server.key", &serving.key_pem);
        let tokens: String = options.tokens.iter().map(token_line).collect();

        let etcd_url = format!("http://127.0.0.1:{}", free_port());
        let port = free_port();
        // Newer etcd wants its own peer URL among those of the cluster, so it has to be known before.
        let peer_url = format!("http://127.0.0.1:{}", free_port());
        let etcd = match options.etcd_on_path {
            true => PathBuf::from("etcd"),
            false => sibling(&binary, "etcd"),
        };
        let mut etcd = Command::new(etcd);
        etcd.args(["--name", "lab", "--data-dir", &path("etcd")])
            .args(["--listen-client-urls", &etcd_url])
            .args(["--advertise-client-urls", &etcd_url])
            .args(["--listen-peer-urls", &peer_url])
            .args(["--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("lab={peer_url}")])
            .args(["--unsafe-no-fsync", "--log-level", "error"]);
        let etcd = guard::start_owned(&etcd, &dir.join("etcd.log"), &owner_of(dir));

        let mut arguments: Vec<String> = [
            ("etcd-servers", etcd_url.as_str()),
            ("bind-address", "127.0.0.1"),
            ("advertise-address", "127.0.0.1"),
            ("secure-port", &port.to_string()),
            ("tls-cert-file", certificate.as_str()),
            ("tls-private-key-file", &key),
            ("client-ca-file", &write("ca.crt", &authority.pem())),
            ("token-auth-file", &write("tokens.csv", &tokens)),
            ("service-account-key-file", &certificate),
            ("service-account-signing-key-file", &key),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc.cluster.local",
            ),
            ("authorization-mode", "Node,RBAC"),
            ("enable-admission-plugins", "NodeRestriction"),
            ("disable-admission-plugins", "ServiceAccount"),
            ("service-cluster-ip-range", "10.0.0.0/24"),
            (
                "audit-policy-file",
                &write("audit.json", &audit_policy().to_string()),
            ),
            ("audit-log-path", &path("audit.log")),
            ("cert-dir", &path("certificates")),
        ]
        .iter()
        .map(|(flag, value)| format!("--{flag}={value}"))
        .collect();
        arguments.extend(options.flags.iter().cloned());

        let mut api = Self {
            options: options.clone(),
            audit_start: 0,
            authority,
            admin,
            port,
            arguments,
            binary,
            server: 0,
            etcd,
            dir: dir.to_owned(),
        };
        match api.start_server().await {
            Ok(()) => Ok(api),
            Err(failure) => {
                guard::end(api.etcd);
                Err(failure)
            }
        }
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> Kubernetes {
        self.options.version
    }

    /// Ends the server and leaves etcd running: an API that is away.
    pub fn stop_server(&self) {
        guard::end(self.server);
    }

    /// Starts the server on its port with the data of etcd.
    pub async fn start_server(&mut self) -> Result<(), String> {
        let mut command = Command::new(&self.binary);
        command.args(&self.arguments);
        let log = self.dir.join("kube-apiserver.log");
        self.server = guard::start_owned(&command, &log, &owner_of(&self.dir));
        let admin = self.admin();
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            // `/readyz` answers text, which this client takes for a failure of its own; any other word is "not yet".
            match admin.get("/readyz").await {
                Err(ApiError::Transport(text)) if text.contains("not JSON") => break,
                _ => {}
            }
            if guard::has_ended(self.server) || Instant::now() > deadline {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                self.stop_server();
                return Err(lines[lines.len().saturating_sub(30)..].join("\n"));
            }
            tokio::time::sleep(POLL).await;
        }
        self.record().map_err(|error| error.to_string())
    }

    /// How to reach it.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            url: format!("https://127.0.0.1:{}", self.port),
            authority_pem: self.authority.pem(),
            admin: self.admin.clone(),
        }
    }

    /// Signs the server's certificate and those of clients.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// A client as its administrator.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(&self.endpoint())
    }

    /// Every request so far of clients whose User-Agent begins with `user_agent_prefix`, oldest first.
    pub async fn requests_of(&self, user_agent_prefix: &str) -> Vec<RequestRecord> {
        let log = self.audit_log("lab-marker").await;
        parse_audit(
            log.get(self.audit_start..).unwrap_or_default(),
            user_agent_prefix,
        )
    }

    /// The log with everything in it that has been answered so far: it is written after the answer, so a request of our
    /// own is sent and waited for.
    async fn audit_log(&self, marker: &str) -> String {
        let marker = format!("{marker}-{}", uuid::Uuid::new_v4());
        let marking = Admin::named(&self.endpoint(), &marker);
        marking
            .get(&paths::core("default", "configmaps"))
            .await
            .expect("the server of which the log is asked runs");
        let path = self.dir.join("audit.log");
        // Less than all would be a count that is too small.
        let what = format!("{marker} is in the audit log");
        found(SOON, &what, async || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let marked = text.rfind(&marker);
            let is_whole = marked.is_some_and(|at| text[at..].contains('\n'));
            is_whole.then_some(text)
        })
        .await
    }
}

/// A directory in memory where there is one: etcd writes much, and nothing of it is worth a disk.
fn directory(name: &str) -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    let prefix = format!("harvester-lab-{name}-");
    builder.prefix(&prefix);
    builder
        .tempdir_in("/dev/shm")
        .or_else(|_| builder.tempdir())
        .expect("a directory for the server's files")
}

/// `etcd` beside the server, as envtest keeps it, else the one on the path.
fn sibling(binary: &Path, name: &str) -> PathBuf {
    let beside = binary.with_file_name(name);
    if beside.is_file() {
        beside
    } else {
        PathBuf::from(name)
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("there is a free port")
        .port()
}

fn token_line(token: &StaticToken) -> String {
    let groups = token.groups.join(",");
    format!(
        "{},{},{},\"{groups}\"\n",
        token.token, token.user, token.user
    )
}
