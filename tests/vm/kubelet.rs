// SPDX-License-Identifier: Apache-2.0
//! What makes a machine a node: containerd and a real kubelet with systemd, as kubeadm sets them up, a static pod, and the gate.

use std::path::PathBuf;

use base64::Engine;
use harvester_lab::kubernetes::Kubernetes;
use harvester_lab::real::{Kubelet, RealApi};
use harvester_lab::world::World;
use serde_json::json;

use crate::seed::{Seed, as_seen_by_guests};

/// The name of the static pod, without that of the Node.
pub const POD: &str = "beacon";

/// The certificate and the key of the kubelet.
pub const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// The only image, which `tests/vm/bake` makes.
const IMAGE: &str = "registry.local/busybox:1";

const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";

const SERVICE: &str = r#"[Unit]
Description=kubelet
Wants=containerd.service
After=containerd.service
RequiresMountsFor=/opt/node
[Service]
EnvironmentFile=/var/lib/kubelet/kubeadm-flags.env
ExecStart=/opt/node/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
"#;

/// The programs of a version, or why there is none.
pub fn program(version: Kubernetes) -> Result<PathBuf, String> {
    RealApi::binary(version)?;
    Kubelet::binary(version)
}

/// The newest version of which there are the programs.
pub fn newest() -> Option<Kubernetes> {
    let available = |version: &Kubernetes| program(*version).is_ok();
    Kubernetes::ALL.into_iter().rev().find(available)
}

/// Makes the machine, which installs its agent, a node of `version` from the first boot on.
pub fn add_to(seed: Seed, world: &World, version: Kubernetes) -> Seed {
    let program = program(version).expect("the scenario was chosen");
    let run = |script: &str| json!(["sh", "-c", script]);
    let flags = match version {
        Kubernetes::V1_20 => {
            format!("--container-runtime=remote --container-runtime-endpoint={CONTAINERD}")
        }
        // In the configuration file.
        Kubernetes::V1_36 => String::new(),
    };
    seed.carrying(&program)
        .with_harvester(&world.guest)
        .with_file("/etc/kubernetes/bootstrap-kubelet.conf", &bootstrap(world))
        .with_file("/etc/systemd/system/kubelet.service", SERVICE)
        .with_file("/var/lib/kubelet/config.yaml", &configuration(version))
        .with_file(
            "/var/lib/kubelet/kubeadm-flags.env",
            &format!("KUBELET_KUBEADM_ARGS={flags}\n"),
        )
        .with_file("/etc/containerd/config.toml", &containerd())
        // The tree of the image has none, and containerd copies it for a pod.
        .with_file("/etc/hosts", "127.0.0.1 localhost\n")
        // Pods on the network of the machine need no plugin, but a Node is not ready without a network.
        .with_file(
            "/etc/cni/net.d/10-none.conflist",
            &json!({"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "none"}]})
                .to_string(),
        )
        .with_file(
            &format!("/etc/kubernetes/manifests/{POD}.yaml"),
            &pod().to_string(),
        )
        .with_file(
            "/etc/harvester-node-agent/config.d/10-registration.toml",
            "[registration]\nnode_labels = true\n",
        )
        .running(run("systemctl enable --now containerd"))
        .running(run("ctr --namespace k8s.io images import /opt/busybox.tar"))
        // The package is installed in the background. Seldom asked: a question takes as long as the pause where a processor is emulated.
        .running(run(
            "until systemctl enable harvester-node-agent-gate kubelet; do sleep 5; done; \
             while systemctl is-active install-harvester-node-agent; do sleep 5; done; systemctl start --no-block kubelet",
        ))
}

/// What the kubelet gets its first certificate with, as from `kubeadm join`.
fn bootstrap(world: &World) -> String {
    let api = world.guest_api.endpoint();
    let encode = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    let identity = world
        .guest_api
        .client_identity("bootstrap", &["system:masters"]);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubernetes", "cluster": {
            "server": as_seen_by_guests(&api.url),
            "certificate-authority-data": encode(&api.authority_pem),
        }}],
        "users": [{"name": "bootstrap", "user": {
            "client-certificate-data": encode(&identity.certificate_pem),
            "client-key-data": encode(&identity.key_pem),
        }}],
        "contexts": [{"name": "bootstrap", "context": {"cluster": "kubernetes", "user": "bootstrap"}}],
        "current-context": "bootstrap",
    })
    .to_string()
}

/// The configuration of the kubelet as kubeadm leaves it, for an emulated machine with a small disk.
fn configuration(version: Kubernetes) -> String {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "rotateCertificates": true,
        "staticPodPath": "/etc/kubernetes/manifests",
        "runtimeRequestTimeout": "5m",
        "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
        "imageGCHighThresholdPercent": 100,
    });
    if version >= Kubernetes::V1_36 {
        config["containerRuntimeEndpoint"] = json!(CONTAINERD);
    }
    config.to_string()
}

fn containerd() -> String {
    let runtime = "plugins.\"io.containerd.grpc.v1.cri\"";
    format!(
        "version = 2\n[{runtime}]\nsandbox_image = \"{IMAGE}\"\n\
         [{runtime}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
         [{runtime}.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
    )
}

fn pod() -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": "default"},
        "spec": {
            "hostNetwork": true,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": POD, "image": IMAGE, "imagePullPolicy": "Never"}],
        },
    })
}
