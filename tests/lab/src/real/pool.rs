// SPDX-License-Identifier: Apache-2.0
//! Servers that are used again: a start costs several seconds of a processor, emptying one a few requests.

use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

use serde_json::json;

use super::{RealApi, RealOptions};
use crate::admin::ApiError;
use crate::harvester::HOST_NODES;
use crate::world::AGENT;

/// Servers that were given back.
static POOL: Mutex<Vec<RealApi>> = Mutex::new(Vec::new());

/// A server of the pool in the hands of one user. Dropping it gives the server back.
#[derive(Debug)]
pub struct Lease {
    api: Option<Box<RealApi>>,
}

impl Deref for Lease {
    type Target = RealApi;

    fn deref(&self) -> &RealApi {
        self.api
            .as_ref()
            .expect("a lease has its server until it is dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut RealApi {
        self.api
            .as_mut()
            .expect("a lease has its server until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // One that somebody stopped, or that crashed, is of no use.
        if let Some(mut api) = self.api.take()
            && api
                .server
                .as_mut()
                .is_some_and(|server| !server.has_ended())
            && let Ok(mut pool) = POOL.lock()
        {
            pool.push(*api);
        }
    }
}

impl RealApi {
    /// A server of this name and options that holds no object of a scenario: one that was given back, else a new one.
    pub async fn borrow(name: &str, options: RealOptions) -> Lease {
        let pooled = {
            let mut pool = POOL.lock().unwrap();
            let index = pool
                .iter()
                .position(|api| api.name == name && api.options == options);
            index.map(|index| pool.swap_remove(index))
        };
        let api = match pooled {
            Some(mut api) => {
                api.empty()
                    .await
                    .expect("a server that was given back runs");
                api
            }
            None => Self::start(name, options).await,
        };
        Lease {
            api: Some(Box::new(api)),
        }
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
