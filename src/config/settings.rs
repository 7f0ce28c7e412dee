// SPDX-License-Identifier: Apache-2.0
//! The validated configuration: one struct per table, with typed values and all defaults. A field is a key.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::label::{LabelKey, WritableKey};
use super::listen::Listen;
use super::value::{Bounded, FilePath, OrEmpty, OrOff, in_order};
use crate::facts::names::{ConfigMapName, HostName, Namespace, NodeName, VmName};
use crate::facts::placement::Source;
use crate::facts::topology::LabelValue;

/// The minimum poll interval in seconds: a fleet that polls more often overloads both APIs.
const LEAST_POLL: u64 = 60;
/// The maximum poll interval in seconds: the poll is the fallback for every event source.
const MOST_POLL: u64 = 24 * 60 * 60;
/// The maximum wait in seconds: a longer one delays the update of the labels.
const MOST_WAIT: u64 = 60;
/// The bounds of the watch delay in seconds: below, all agents reconnect at the same time; above, changes are observed late.
const LEAST_WATCH_DELAY: u64 = 1;
const MOST_WATCH_DELAY: u64 = 10 * 60;

/// The settings of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The Harvester API and its credential.
    pub harvester: HarvesterSettings,
    /// The API of the guest cluster and its credential.
    #[serde(rename = "guest_cluster")]
    pub guest: Guest,
    /// The topology labels.
    pub topology: TopologySettings,
    /// Other labels.
    pub labels: LabelSettings,
    /// The region and zone of each Harvester host; see [`Source::HostsTable`].
    pub hosts: BTreeMap<HostName, HostPlace>,
    /// The files about the virt-launcher pod.
    pub pod_info: PodInfoSettings,
    /// The QEMU guest agent.
    #[serde(rename = "qemu_guest_agent")]
    pub guest_agent: GuestAgentSettings,
    /// The labels for a kubelet that starts.
    pub registration: RegistrationSettings,
    /// The reports on the Node.
    pub report: ReportSettings,
    /// The export of metrics.
    pub metrics: Metrics,
    /// The intervals and delays.
    pub timing: Timing,
    /// The log in the journal.
    pub log: Log,
    /// The machine.
    pub machine: MachineSettings,
}

/// The Harvester API and its credential.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HarvesterSettings {
    /// The kubeconfig; `None` searches the standard paths.
    #[serde(with = "OrEmpty")]
    pub kubeconfig: Option<FilePath>,
    /// The namespace of the VM; `None` uses that of the kubeconfig.
    #[serde(with = "OrEmpty")]
    pub namespace: Option<Namespace>,
    /// The name of the VM; `None` identifies it by evidence.
    #[serde(with = "OrEmpty")]
    pub vm: Option<VmName>,
}

/// The API of the guest cluster and its credential.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guest {
    /// The kubeconfig of the kubelet; `None` searches the standard paths.
    #[serde(with = "OrEmpty")]
    pub kubeconfig: Option<FilePath>,
    /// The name of our Node; `None` uses that of the kubelet's certificate.
    #[serde(with = "OrEmpty")]
    pub node_name: Option<NodeName>,
}

/// The topology labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopologySettings {
    /// The reaction to a move of the VM to another region or zone.
    pub on_change: OnChange,
    /// The key of the label with the Harvester host; `None` omits the label.
    #[serde(serialize_with = "OrOff::serialize", deserialize_with = "writable")]
    pub host_label: Option<LabelKey>,
    /// Whether our own label is removed if every source reports that the host does not have it.
    pub remove_stale: bool,
    /// The allowed sources, in the fixed order.
    #[serde(deserialize_with = "in_order")]
    pub sources: Vec<Source>,
    /// The ConfigMap that [`Source::ConfigMap`] reads.
    pub configmap: ConfigMapName,
    /// The zone of a host without a zone label.
    pub zone_fallback: ZoneFallback,
}

fn writable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LabelKey>, D::Error> {
    let key: Option<WritableKey> = OrOff::deserialize(deserializer)?;
    Ok(key.map(|WritableKey(key)| key))
}

impl Default for TopologySettings {
    fn default() -> Self {
        Self {
            on_change: OnChange::Follow,
            host_label: Some(LabelKey::HOST),
            remove_stale: false,
            sources: Source::ALL.to_vec(),
            configmap: ConfigMapName::topology(),
            zone_fallback: ZoneFallback::Off,
        }
    }
}

/// The zone of a host without a zone label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneFallback {
    /// None.
    Off,
    /// The name of the host.
    Host,
}

/// The reaction to a move of the VM to another region or zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnChange {
    /// Updates the labels.
    Follow,
    /// Keeps the first region and zone, and reports the difference.
    Hold,
    /// Never writes the labels, and reports the difference.
    Report,
}

/// Other labels than the topology labels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelSettings {
    /// Labels that are copied from the host to our Node: from the key on our Node to the key on the host.
    #[serde(deserialize_with = "writable_keys")]
    pub extra: BTreeMap<LabelKey, LabelKey>,
}

fn writable_keys<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<LabelKey, LabelKey>, D::Error> {
    let labels = BTreeMap::<WritableKey, LabelKey>::deserialize(deserializer)?;
    let labels = labels.into_iter();
    Ok(labels.map(|(WritableKey(key), host)| (key, host)).collect())
}

/// The region and zone of one Harvester host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostPlace {
    /// The region, if set.
    pub region: Option<LabelValue>,
    /// The zone, if set.
    pub zone: Option<LabelValue>,
}

/// The files about the virt-launcher pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PodInfoSettings {
    /// Their directory, the mount point of a virtiofs file system; `None` disables them.
    #[serde(with = "OrOff")]
    pub path: Option<FilePath>,
}

impl Default for PodInfoSettings {
    fn default() -> Self {
        Self {
            path: Some(FilePath(PathBuf::from("/run/podinfo"))),
        }
    }
}

/// The QEMU guest agent, which reports the hostname and the addresses to Harvester.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestAgentSettings {
    /// Whether the agent starts its unit if it is installed and stopped.
    #[serde(rename = "auto_start")]
    pub start: bool,
}

/// The labels for a kubelet that starts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrationSettings {
    /// Whether the Node registers with region, zone and host, through a file that its kubelet reads.
    pub node_labels: bool,
}

/// The reports on the Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReportSettings {
    /// Conditions on our Node.
    pub node_conditions: bool,
    /// Conditions on our Node for scheduled events.
    pub lifecycle_conditions: bool,
    /// Events about our Node.
    pub events: bool,
    /// Annotations on our Node about the VM, the source and the last migration. The annotations with our labels and their host are
    /// always written: the next reconcile needs them.
    pub annotations: bool,
}

impl Default for ReportSettings {
    fn default() -> Self {
        Self {
            node_conditions: true,
            lifecycle_conditions: false,
            events: true,
            annotations: true,
        }
    }
}

/// The metrics file for the textfile collector of node-exporter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MetricsFile {
    /// The default directory of node-exporter, if it exists.
    #[default]
    Auto,
    /// This file.
    Path(PathBuf),
    /// No file.
    Off,
}

impl TryFrom<String> for MetricsFile {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        match text.as_str() {
            "" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => FilePath::try_from(text).map(|FilePath(path)| Self::Path(path)),
        }
    }
}

impl From<MetricsFile> for String {
    fn from(file: MetricsFile) -> Self {
        match file {
            MetricsFile::Auto => Self::new(),
            MetricsFile::Path(path) => path.display().to_string(),
            MetricsFile::Off => "off".to_owned(),
        }
    }
}

/// The export of metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// The file for node-exporter.
    pub textfile: MetricsFile,
    /// The address of the metrics endpoint; `None` disables it.
    #[serde(with = "OrOff")]
    pub listen: Option<Listen>,
}

/// The intervals and delays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// The interval of a full read without any trigger.
    #[serde(rename = "poll_interval", with = "Bounded::<LEAST_POLL, MOST_POLL>")]
    pub poll: Duration,
    /// The delay after the last change of the hostname before the agent reports it.
    #[serde(with = "Bounded::<0, MOST_WAIT>")]
    pub hostname_debounce: Duration,
    /// The maximum wait for Harvester's own annotations on VMs that Harvester labels.
    #[serde(rename = "annotation_grace_period", with = "Bounded::<0, MOST_WAIT>")]
    pub settle: Duration,
    /// The maximum delay before a watch is re-established; the delays of the agents are spread over it.
    #[serde(with = "Bounded::<LEAST_WATCH_DELAY, MOST_WATCH_DELAY>")]
    pub watch_delay: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            // The maximum delay until the agent observes a change that has no trigger, such as a live migration.
            poll: Duration::from_secs(10 * 60),
            // At boot, cloud-init and DHCP clients set the hostname several times in a row.
            hostname_debounce: Duration::from_secs(2),
            // The time that Harvester's controller needs after a migration, and the maximum time that stale labels remain.
            settle: Duration::from_secs(10),
            // After a restart of an API server with ten thousand agents, the watches are re-established at an even rate over this
            // time.
            watch_delay: Duration::from_secs(60),
        }
    }
}

/// The log in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The lowest severity that is logged.
    pub level: LogLevel,
}

/// The lowest severity that is logged, with its number in syslog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Errors only.
    Error = 3,
    /// Also warnings.
    Warn = 4,
    /// Also changes of state.
    #[default]
    Info = 6,
    /// Also the reasons for each decision.
    Debug = 7,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineSettings {
    /// Whether the machine is treated as a KubeVirt VM even if its firmware does not identify it as one.
    pub assume_kubevirt: bool,
}
