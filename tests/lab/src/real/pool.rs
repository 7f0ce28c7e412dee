// SPDX-License-Identifier: Apache-2.0
//! Servers that are used again: a start costs several seconds of a processor, emptying one a few requests.
//!
//! A pool is a directory with a FIFO, and a directory for each server. Servers live as long as a process holds the FIFO open for
//! writing: `tests/run` for the tests of all processes, whose pool is named by `HNA_SERVERS`, or else this process. Who locks the
//! file `lock` of a server has the server, until it drops the lease or dies.

use std::fs::{self, File, OpenOptions};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{RealApi, RealOptions};
use crate::admin::ApiError;
use crate::guard::{self, Guard};
use crate::harvester::HOST_NODES;
use crate::pki::{Authority, Identity};
use crate::world::AGENT;

/// The FIFO of a pool.
const OWNER: &str = "owner";

/// What is known about a server that runs.
const RECORD: &str = "server.json";

/// There while a server is in use, and afterwards if its user failed: it may hold unknown objects.
const IN_USE: &str = "in-use";

/// A server of the pool in the hands of one user. Dropping it gives the server back.
#[derive(Debug)]
pub struct Lease {
    api: Box<RealApi>,
    _lock: File,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_file(self.api.dir.join(IN_USE));
        }
    }
}

impl Deref for Lease {
    type Target = RealApi;

    fn deref(&self) -> &RealApi {
        &self.api
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut RealApi {
        &mut self.api
    }
}

/// What another process needs to use a server.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    port: u16,
    binary: PathBuf,
    arguments: Vec<String>,
    authority: Identity,
    admin: Identity,
    server: i32,
    etcd: i32,
}

impl RealApi {
    /// A server of this name and options that holds no object of a scenario: one that was given back, else a new one.
    ///
    /// # Panics
    /// With the end of its log, when a new one does not become ready.
    pub async fn borrow(name: &str, options: RealOptions) -> Lease {
        let pool = pool();
        let kind = format!("{name} {options:?}");
        let kind = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, kind.as_bytes());
        let mut number = 0;
        let (dir, lock) = loop {
            let dir = pool.join(format!("{name}-{kind}-{number}"));
            fs::create_dir_all(&dir).expect("the pool is writable");
            let lock = File::create(dir.join("lock")).expect("the pool is writable");
            if lock.try_lock().is_ok() {
                break (dir, lock);
            }
            number += 1;
        };
        let files = dir.join("files");
        let api = match Self::attached(&files, &options).await {
            Some(api) => api,
            None => Self::start(name, &options, &files).await,
        };
        File::create(files.join(IN_USE)).expect("the pool is writable");
        Lease {
            api: Box::new(api),
            _lock: lock,
        }
    }

    /// The server that runs in a directory, emptied. One that was stopped, crashed, or whose user failed is ended.
    async fn attached(files: &Path, options: &RealOptions) -> Option<Self> {
        let record = fs::read(files.join(RECORD)).ok()?;
        let record: Record = serde_json::from_slice(&record).ok()?;
        let authority = &record.authority;
        let mut api = Self {
            options: options.clone(),
            audit_start: 0,
            authority: Authority::from_pem(&authority.certificate_pem, &authority.key_pem),
            admin: record.admin,
            port: record.port,
            arguments: record.arguments,
            binary: record.binary,
            server: record.server,
            etcd: record.etcd,
            dir: files.to_owned(),
        };
        if !files.join(IN_USE).exists() && api.empty().await.is_ok() {
            return Some(api);
        }
        guard::end(record.server);
        guard::end(record.etcd);
        None
    }

    async fn start(name: &str, options: &RealOptions, files: &Path) -> Self {
        let mut failures = String::new();
        // A free port may be taken by another process before its server listens.
        for _ in 0..3 {
            let _ = fs::remove_dir_all(files);
            fs::create_dir(files).expect("the pool is writable");
            match Self::try_start(name, options, files).await {
                Ok(api) => return api,
                Err(failure) => failures.push_str(&failure),
            }
        }
        panic!("the API server `{name}` did not become ready:\n{failures}");
    }

    /// Leaves what others need to use the server.
    pub(super) fn record(&self) -> std::io::Result<()> {
        let record = Record {
            port: self.port,
            binary: self.binary.clone(),
            arguments: self.arguments.clone(),
            authority: Identity {
                certificate_pem: self.authority.pem(),
                key_pem: self.authority.key_pem(),
            },
            admin: self.admin.clone(),
            server: self.server,
            etcd: self.etcd,
        };
        fs::write(self.dir.join(RECORD), serde_json::to_vec(&record)?)
    }

    /// Deletes what scenarios make, and begins a new log.
    async fn empty(&mut self) -> Result<(), ApiError> {
        let admin = self.admin();
        for collection in [
            "/apis/kubevirt.io/v1/virtualmachines",
            "/apis/kubevirt.io/v1/virtualmachineinstances",
            "/api/v1/pods",
            "/apis/events.k8s.io/v1/events",
            "/api/v1/nodes",
            "/apis/storage.k8s.io/v1/csinodes",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            "/api/v1/namespaces/harvester-public/configmaps",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "/apis/rbac.authorization.k8s.io/v1/rolebindings",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/roles",
        ] {
            let objects = match admin.list(collection).await {
                Ok(objects) => objects,
                // Not a Harvester.
                Err(ApiError::Status { code: 404, .. }) => continue,
                Err(error) => return Err(error),
            };
            for object in objects {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let is_of_a_scenario = name.starts_with(HOST_NODES) || name.starts_with(AGENT);
                if collection.contains("rbac.authorization") && !is_of_a_scenario {
                    continue;
                }
                let (base, resource) = collection.rsplit_once('/').unwrap_or_default();
                let path = match object["metadata"]["namespace"].as_str() {
                    Some(namespace) if !base.contains("/namespaces/") => {
                        format!("{base}/namespaces/{namespace}/{resource}/{name}")
                    }
                    _ => format!("{collection}/{name}"),
                };
                // A guest that a scenario left while it shut down.
                if object["metadata"]["finalizers"].is_array() {
                    let released = json!({"metadata": {"finalizers": null}});
                    admin.merge_patch(&path, &released).await?;
                }
                admin.delete_if_present(&path).await?;
            }
        }
        // What is still on its way into the log belongs to the past.
        self.audit_start = self.audit_log("lab-end").await.len();
        Ok(())
    }
}

/// The FIFO of the pool in which a server has its files.
pub(super) fn owner_of(files: &Path) -> PathBuf {
    let pool = files.ancestors().nth(2);
    pool.expect("a server lies in a pool").join(OWNER)
}

/// The directory of `HNA_SERVERS`, else one that ends with this process.
fn pool() -> PathBuf {
    static OWN: OnceLock<(PathBuf, File, Guard)> = OnceLock::new();
    if let Some(dir) = std::env::var_os("HNA_SERVERS") {
        return PathBuf::from(dir);
    }
    let own = OWN.get_or_init(|| {
        let dir = super::directory("pool").keep();
        let owner = dir.join(OWNER);
        mkfifo(&owner, Mode::S_IRWXU).expect("the directory is writable");
        let mut options = OpenOptions::new();
        let owner = options.read(true).write(true).open(owner);
        let remover = Guard::start(&Command::new("true"), &dir.join("log"), Some(&dir));
        (dir, owner.expect("a FIFO opens for both"), remover)
    });
    own.0.clone()
}
