// SPDX-License-Identifier: Apache-2.0
//! The pods on our Node that affect it. The kubelet's credential can list only the pods of this Node.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::node::seconds;
use super::{Gap, rke2_charts};
use crate::catalog::Group;
use crate::facts::release::Release;
use crate::facts::topology::LabelValue;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::sys::document::json::{
    Leading, container_image, container_name, container_statuses, containers, name, namespace,
    terminated_reason, terminated_time,
};

/// The image of Harvester's cloud provider, which runs on one Node of the cluster.
const CLOUD_PROVIDER: &str = "harvester-cloud-provider";

/// The image of Harvester's CSI driver, which runs on every Node.
const CSI_DRIVER: &str = "harvester-csi-driver";

/// The image of KubeVirt's own cloud provider.
const KUBEVIRT_CLOUD_PROVIDER: &str = "kubevirt-cloud-controller-manager";

/// The string in the names of all images of Calico and Canal.
const CALICO: &str = "calico";

/// The maximum number of containers of one pod.
const CONTAINERS_MAX: usize = 256;

/// The maximum number of kept images and restarts of one pod.
const KEPT_MAX: usize = 8;

/// The reason why a version is unknown on this Node.
const ELSEWHERE: &str = "it has no pod on this Node, and the kubelet credential cannot list pods of other Nodes; to find it: \
    kubectl -n kube-system get pods -o wide | grep harvester";

/// The pods of our Node, and the components that they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pods {
    /// The pods, each with its images.
    pub here: Fact<Vec<Pod>>,
    /// Harvester's cloud provider. Absent if there is no sign of it.
    pub cloud_provider: Fact<Component>,
    /// Harvester's CSI driver. Absent if it is not installed.
    pub csi_driver: Fact<Component>,
    /// The error of the first pod that cannot be parsed; the others are used.
    pub unreadable: Option<Unavailable>,
}

/// One pod of a list, or why it cannot be parsed: anyone who may create pods must not hide the others.
#[derive(Debug)]
pub struct ListedPod(pub Result<Pod, String>);

impl<'de> Deserialize<'de> for ListedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(
            serde_json::from_str(text.get()).map_err(|error| error.to_string()),
        ))
    }
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "WirePod")]
pub struct Pod {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The images of its containers that matter here, such as `rancher/harvester-csi-driver:v0.2.2`; the list may have thousands
    /// of pods.
    pub images: Vec<String>,
    /// The containers that were restarted; only of Harvester components.
    pub restarts: Vec<Restarts>,
    /// The zone of the Node at its creation, which Kubernetes 1.35 and later adds as a label (KEP-4742). `None` for a pod that has
    /// ended.
    pub zone: Option<LabelValue>,
}

/// A container that was restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restarts {
    /// The name.
    pub container: String,
    /// The number of restarts.
    pub count: u64,
    /// The time of the last termination, in seconds since 1970.
    pub ended: Option<i64>,
    /// The reason of the last termination: `Error`, `OOMKilled`.
    pub reason: String,
    /// The exit code of the last termination.
    pub exit_code: Option<i64>,
}

/// A Harvester component in the guest cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// The release.
    pub release: Release,
    /// The source of the release.
    pub origin: PodOrigin,
}

/// The source of the version of a [`Component`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodOrigin {
    /// The image of a pod on this Node, `namespace/name`.
    Pod(String),
    /// The release of RKE2 that bundles it: derived, and wrong if its chart was upgraded separately.
    BundledWith(Release),
}

/// The facts about the cloud provider in addition to the pods.
#[derive(Debug, Clone, Copy, Default)]
pub struct Provision<'a> {
    /// The release of our RKE2, if it is configured for Harvester's cloud provider.
    pub rke2: Option<&'a Release>,
    /// Whether Harvester's cloud provider has initialized our Node, or is configured.
    pub has_cloud_provider: bool,
}

#[derive(Deserialize)]
struct WirePod {
    #[serde(default)]
    metadata: WirePodMetadata,
    #[serde(default)]
    spec: WirePodSpec,
    #[serde(default)]
    status: WirePodStatus,
}

#[derive(Deserialize, Default)]
struct WirePodMetadata {
    #[serde(default, deserialize_with = "namespace")]
    namespace: Option<String>,
    #[serde(default, deserialize_with = "name")]
    name: Option<String>,
    #[serde(default)]
    labels: WirePodLabels,
}

#[derive(Deserialize, Default)]
struct WirePodLabels {
    #[serde(rename = "topology.kubernetes.io/zone", default)]
    zone: Option<String>,
}

#[derive(Deserialize, Default)]
struct WirePodSpec {
    #[serde(default, deserialize_with = "containers")]
    containers: Leading<WirePodContainer, CONTAINERS_MAX>,
}

#[derive(Deserialize)]
struct WirePodContainer {
    #[serde(default, deserialize_with = "container_image")]
    image: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WirePodStatus {
    #[serde(default)]
    phase: WirePodPhase,
    #[serde(default, deserialize_with = "container_statuses")]
    container_statuses: Leading<WirePodContainerStatus, CONTAINERS_MAX>,
}

#[derive(Deserialize, Default, PartialEq, Eq)]
enum WirePodPhase {
    Succeeded,
    Failed,
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePodContainerStatus {
    #[serde(default, deserialize_with = "container_name")]
    name: Option<String>,
    #[serde(default)]
    restart_count: i64,
    #[serde(default)]
    last_state: WirePodState,
}

#[derive(Deserialize, Default)]
struct WirePodState {
    terminated: Option<WirePodTerminated>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePodTerminated {
    #[serde(default, deserialize_with = "terminated_time")]
    finished_at: Option<String>,
    #[serde(default, deserialize_with = "terminated_reason")]
    reason: Option<String>,
    exit_code: Option<i64>,
}

impl From<WirePod> for Pod {
    fn from(wire: WirePod) -> Self {
        let metadata = wire.metadata;
        let names = [CLOUD_PROVIDER, CSI_DRIVER, KUBEVIRT_CLOUD_PROVIDER, CALICO];
        let matters = |image: &String| names.iter().any(|name| image.contains(name));
        let containers = wire.spec.containers.0.into_iter();
        let images = containers.filter_map(|container| container.image);
        let mut pod = Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            images: images.filter(matters).take(KEPT_MAX).collect(),
            restarts: Vec::new(),
            zone: metadata
                .labels
                .zone
                .filter(|_| wire.status.phase == WirePodPhase::Other)
                .and_then(|zone| LabelValue::parse(&zone).ok()),
        };
        if pod.is_of_harvester() {
            let statuses = wire.status.container_statuses.0.into_iter();
            let restarts = statuses.filter_map(Restarts::of);
            pod.restarts = restarts.take(KEPT_MAX).collect();
        }
        pod
    }
}

impl Pod {
    /// Returns `namespace/name`.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Reports whether it runs Harvester's cloud provider or CSI driver.
    pub fn is_of_harvester(&self) -> bool {
        self.tag(CLOUD_PROVIDER).is_some() || self.tag(CSI_DRIVER).is_some()
    }

    /// Returns the tag of its image with this name, the last part of the path of the image.
    fn tag(&self, name: &str) -> Option<&str> {
        let images = self.images.iter();
        let mut tags = images.filter_map(|image| {
            let image = image.split('@').next()?;
            let (found, tag) = image.rsplit('/').next()?.split_once(':')?;
            (found == name).then_some(tag)
        });
        tags.next()
    }
}

impl Restarts {
    fn of(status: WirePodContainerStatus) -> Option<Self> {
        let count = u64::try_from(status.restart_count).ok()?;
        let last = status.last_state.terminated?;
        (count > 0).then(|| Self {
            container: status.name.unwrap_or_default(),
            count,
            ended: last.finished_at.as_deref().and_then(seconds),
            reason: last.reason.unwrap_or_default(),
            exit_code: last.exit_code,
        })
    }
}

impl Pods {
    /// Determines the components from the pods of our Node, or from the release of RKE2 that bundles them.
    pub fn new(here: Fact<Vec<Pod>>, provision: Provision<'_>) -> Self {
        let bundled = |table| {
            let rke2 = provision.rke2?;
            let version = rke2_charts::of(table, rke2.rank())?;
            Some(Component {
                release: Release::parse(version).ok()?,
                origin: PodOrigin::BundledWith(rke2.clone()),
            })
        };
        let unseen = || match here.why() {
            Some(why) => Fact::Failed(why.clone()),
            None => Fact::failed(UnavailableKind::NotAsked, ELSEWHERE),
        };
        let cloud_provider = match component(&here, CLOUD_PROVIDER) {
            Some(seen) => seen,
            None => match bundled(rke2_charts::CLOUD_PROVIDER) {
                Some(bundled) => Fact::Known(bundled),
                None if provision.has_cloud_provider => unseen(),
                None => Fact::Absent,
            },
        };
        // It runs on every Node: if it has no pod here, it is not installed or starts later.
        let csi_driver = match component(&here, CSI_DRIVER) {
            Some(seen) => seen,
            None => match (bundled(rke2_charts::CSI_DRIVER), &here) {
                (Some(bundled), _) => Fact::Known(bundled),
                (None, Fact::Failed(why)) => Fact::Failed(why.clone()),
                (None, Fact::Known(_) | Fact::Absent) => Fact::Absent,
            },
        };
        Self {
            here,
            cloud_provider,
            csi_driver,
            unreadable: None,
        }
    }

    /// Returns the pod of KubeVirt's own cloud provider, if it runs here.
    pub fn kubevirt_cloud_provider(&self) -> Option<&Pod> {
        let mut pods = self.here.known()?.iter();
        pods.find(|pod| pod.tag(KUBEVIRT_CLOUD_PROVIDER).is_some())
    }

    /// Reports whether Calico is the CNI plugin here, or this is unknown.
    pub fn may_use_calico(&self) -> bool {
        self.here.known().is_none_or(|pods| {
            let mut images = pods.iter().flat_map(|pod| &pod.images);
            images.any(|image| image.contains(CALICO))
        })
    }

    /// Creates facts that are all unavailable for the same reason.
    pub fn unseen(why: &Unavailable) -> Self {
        let failed = || Fact::Failed(why.clone());
        Self {
            here: Fact::Failed(why.clone()),
            cloud_provider: failed(),
            csi_driver: failed(),
            unreadable: None,
        }
    }

    /// Returns the checks that could not be done.
    pub fn gaps(&self) -> Vec<Gap> {
        let group = Group::Versions;
        let components = [
            (
                "the version of the Harvester cloud provider",
                &self.cloud_provider,
            ),
            ("the version of the Harvester CSI driver", &self.csi_driver),
        ];
        let components = components
            .into_iter()
            .filter(|(_, seen)| seen.why() != self.here.why())
            .filter_map(|(what, seen)| Gap::of(group, what, seen));
        let pods = Gap::of(group, "the pods of this Node", &self.here);
        let unreadable = self.unreadable.clone();
        let unreadable = unreadable.map(|why| Gap::new(group, "a pod of this Node", why));
        pods.into_iter()
            .chain(components)
            .chain(unreadable)
            .collect()
    }
}

/// Returns the component with this image that one of the pods runs.
fn component(here: &Fact<Vec<Pod>>, name: &str) -> Option<Fact<Component>> {
    let mut pods = here.known()?.iter();
    let (pod, tag) = pods.find_map(|pod| Some((pod, pod.tag(name)?)))?;
    Some(match Release::parse(tag) {
        Ok(release) => Fact::Known(Component {
            release,
            origin: PodOrigin::Pod(pod.reference()),
        }),
        Err(error) => {
            let text = format!("image tag of pod {}: {error}", pod.reference());
            Fact::failed(UnavailableKind::Malformed, text)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pods(images: &[&str]) -> Fact<Vec<Pod>> {
        let pod = |image: &&str| Pod {
            namespace: "kube-system".to_owned(),
            name: "p".to_owned(),
            images: vec!["rancher/mirrored-pause:3.6".to_owned(), (*image).to_owned()],
            restarts: Vec::new(),
            zone: None,
        };
        Fact::Known(images.iter().map(pod).collect())
    }

    #[test]
    fn a_version_is_read_from_the_tag_of_an_image_whatever_its_registry() {
        for image in [
            "rancher/harvester-csi-driver:v0.2.1",
            "docker.io/rancher/harvester-csi-driver:v0.2.1",
            "registry.lan:5000/rancher/harvester-csi-driver:v0.2.1@sha256:0123",
        ] {
            let pods = Pods::new(pods(&[image]), Provision::default());
            let found = pods.csi_driver.known().unwrap();
            assert_eq!(found.release.to_string(), "v0.2.1");
            assert_eq!(found.origin, PodOrigin::Pod("kube-system/p".to_owned()));
        }
        for image in [
            "rancher/harvester-csi-driver-something:v0.2.1",
            "rancher/harvester-csi-driver@sha256:0123",
            "harvester-csi-driver",
        ] {
            let pods = Pods::new(pods(&[image]), Provision::default());
            assert_eq!(pods.csi_driver, Fact::Absent, "{image}");
        }
        let head = Pods::new(
            pods(&["rancher/harvester-csi-driver:master-head"]),
            Provision::default(),
        );
        assert_eq!(head.gaps().len(), 1);
    }

    fn pod(pod: Value) -> Pod {
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn of_a_pod_that_matters_images_and_restarts_are_kept() {
        let image = "rancher/harvester-csi-driver:v0.2.2";
        let found = pod(json!({
            "metadata": {"namespace": "n", "name": "p"},
            "spec": {"containers": [{"image": "a:v1"}, {"image": image}, {}]},
            "status": {"containerStatuses": [
                {"name": "a", "restartCount": -1, "lastState": {"terminated": {}}},
                {"name": "b", "restartCount": 7, "lastState": {}},
                {"name": "c", "restartCount": 7, "lastState": {"terminated": {"exitCode": 1, "finishedAt": "soon"}}},
            ]},
        }));
        assert_eq!(found.reference(), "n/p");
        assert_eq!(found.images, [image]);
        assert_eq!(found.restarts.len(), 1);
        let restarts = &found.restarts[0];
        assert_eq!((restarts.container.as_str(), restarts.ended), ("c", None));
        let other = pod(json!({
            "spec": {"containers": [{"image": "rancher/mirrored-calico-node:v3.30.1"}]},
            "status": {"containerStatuses": [{"restartCount": 7, "lastState": {"terminated": {}}}]},
        }));
        assert_eq!((other.images.len(), other.restarts.len()), (1, 0));
    }

    #[test]
    fn a_long_text_or_list_makes_no_pod_unreadable() {
        let image = "rancher/harvester-csi-driver:v0.2.2";
        let mut containers = vec![json!({"image": image}), json!({"image": "x".repeat(1025)})];
        containers.resize(300, json!({}));
        let found = pod(json!({
            "spec": {"containers": containers},
            "status": {"containerStatuses": [
                {"name": "c", "restartCount": 7, "lastState": {"terminated": {"reason": "x".repeat(2000)}}},
            ]},
        }));
        assert_eq!(found.images, [image]);
    }

    #[test]
    fn a_pod_without_these_fields_reports_nothing_and_one_of_the_wrong_shape_is_refused() {
        for empty in [
            json!({}),
            json!({"spec": {"containers": null}, "status": {"containerStatuses": null}}),
        ] {
            assert_eq!(pod(empty).images, [""; 0]);
        }
        for (wrong, said) in [
            (json!({"spec": {"containers": "x"}}), "`spec.containers`: "),
            (
                json!({"status": {"containerStatuses": [7]}}),
                "`status.containerStatuses`: ",
            ),
        ] {
            let error = serde_json::from_value::<Pod>(wrong)
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_no_pod_here_reports_is_derived_from_rke2_and_says_so() {
        let rke2 = Release::parse("v1.31.1+rke2r2").unwrap();
        let provision = Provision {
            rke2: Some(&rke2),
            has_cloud_provider: true,
        };
        let derived = Pods::new(pods(&[]), provision);
        let origin = PodOrigin::BundledWith(rke2.clone());
        for (seen, version) in [
            (&derived.cloud_provider, "v0.2.2"),
            (&derived.csi_driver, "v0.2.1"),
        ] {
            let component = seen.known().unwrap();
            assert_eq!(component.release.to_string(), version);
            assert_eq!(component.origin, origin);
        }
        assert_eq!(derived.gaps(), []);
    }

    #[test]
    fn a_cloud_provider_on_another_node_is_a_gap_and_one_that_is_not_configured_is_not() {
        let elsewhere = Provision {
            rke2: None,
            has_cloud_provider: true,
        };
        let seen = Pods::new(pods(&[]), elsewhere);
        let gaps = seen.gaps();
        assert_eq!(gaps.len(), 1);
        assert!(gaps[0].why.text.contains("kubectl"), "{}", gaps[0].why.text);
        let none = Pods::new(pods(&[]), Provision::default());
        assert_eq!(
            (none.cloud_provider.clone(), none.gaps()),
            (Fact::Absent, vec![])
        );
    }

    #[test]
    fn pods_that_cannot_be_listed_are_one_gap_and_no_proof_that_calico_is_away() {
        let why = Unavailable::new(UnavailableKind::Forbidden, "pods is forbidden");
        let pods = Pods::new(Fact::Failed(why), Provision::default());
        assert_eq!(pods.gaps().len(), 1);
        assert!(pods.may_use_calico());
    }
}
