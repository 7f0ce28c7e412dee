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
use crate::facts::topology::Topology;

/// The minimum poll interval in seconds: a fleet that polls more often overloads both APIs.
const LEAST_POLL: u64 = 60;
/// The maximum poll interval in seconds: the poll is the fallback for every event source.
const MOST_POLL: u64 = 24 * 60 * 60;
/// The maximum wait in seconds: a longer one delays the update of the labels.
const MOST_WAIT: u64 = 60;
/// The bounds of the watch delay in seconds: below, all agents reconnect at the same time; above, changes are observed late.
const LEAST_WATCH_DELAY: u64 = 1;
const MOST_WATCH_DELAY: u64 = 10 * 60;

/// Declares the tables, each with its keys and their defaults.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident { $($(#[$meta:meta])* $key:ident: $type:ty = $default:expr,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name { $($(#[$meta])* pub $key: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    )*};
}

tables! {
    /// The settings of the agent.
    Settings {
        /// The Harvester API and its credential.
        harvester: HarvesterSettings = HarvesterSettings::default(),
        /// The API of the guest cluster and its credential.
        #[serde(rename = "guest_cluster")]
        guest: Guest = Guest::default(),
        /// The topology labels.
        topology: TopologySettings = TopologySettings::default(),
        /// Other labels.
        labels: LabelSettings = LabelSettings::default(),
        /// The region and zone of each Harvester host; see [`Source::HostsTable`].
        hosts: BTreeMap<HostName, Topology> = BTreeMap::new(),
        /// The files about the virt-launcher pod.
        pod_info: PodInfoSettings = PodInfoSettings::default(),
        /// The QEMU guest agent.
        #[serde(rename = "qemu_guest_agent")]
        guest_agent: GuestAgentSettings = GuestAgentSettings::default(),
        /// The labels for a kubelet that starts.
        registration: RegistrationSettings = RegistrationSettings::default(),
        /// The reports on the Node.
        report: ReportSettings = ReportSettings::default(),
        /// The export of metrics.
        metrics: Metrics = Metrics::default(),
        /// The intervals and delays.
        timing: Timing = Timing::default(),
        /// The log in the journal.
        log: Log = Log::default(),
        /// The machine.
        machine: MachineSettings = MachineSettings::default(),
    }

    /// The Harvester API and its credential.
    HarvesterSettings {
        /// The kubeconfig; `None` searches the standard paths.
        #[serde(with = "OrEmpty")]
        kubeconfig: Option<FilePath> = None,
        /// The namespace of the VM; `None` uses that of the kubeconfig.
        #[serde(with = "OrEmpty")]
        namespace: Option<Namespace> = None,
        /// The name of the VM; `None` identifies it by evidence.
        #[serde(with = "OrEmpty")]
        vm: Option<VmName> = None,
    }

    /// The API of the guest cluster and its credential.
    Guest {
        /// The kubeconfig of the kubelet; `None` searches the standard paths.
        #[serde(with = "OrEmpty")]
        kubeconfig: Option<FilePath> = None,
        /// The name of our Node; `None` uses that of the kubelet's certificate.
        #[serde(with = "OrEmpty")]
        node_name: Option<NodeName> = None,
    }

    /// The topology labels.
    TopologySettings {
        /// The reaction to a move of the VM to another region or zone.
        on_change: OnChange = OnChange::Follow,
        /// The key of the label with the Harvester host; `None` omits the label.
        #[serde(serialize_with = "OrOff::serialize", deserialize_with = "writable")]
        host_label: Option<LabelKey> = Some(LabelKey::HOST),
        /// Whether our own label is removed if every source reports that the host does not have it.
        remove_stale: bool = false,
        /// The allowed sources, in the fixed order.
        #[serde(deserialize_with = "in_order")]
        sources: Vec<Source> = Source::ALL.to_vec(),
        /// The ConfigMap that [`Source::ConfigMap`] reads.
        configmap: ConfigMapName = ConfigMapName::topology(),
        /// The zone of a host without a zone label.
        zone_fallback: ZoneFallback = ZoneFallback::Off,
    }

    /// Other labels than the topology labels.
    LabelSettings {
        /// Labels that are copied from the host to our Node: from the key on our Node to the key on the host.
        #[serde(deserialize_with = "writable_keys")]
        extra: BTreeMap<LabelKey, LabelKey> = BTreeMap::new(),
    }

    /// The files about the virt-launcher pod.
    PodInfoSettings {
        /// Their directory, the mount point of a virtiofs file system; `None` disables them.
        #[serde(with = "OrOff")]
        path: Option<FilePath> = Some(FilePath(PathBuf::from("/run/podinfo"))),
    }

    /// The QEMU guest agent, which reports the hostname and the addresses to Harvester.
    GuestAgentSettings {
        /// Whether the agent starts its unit if it is installed and stopped.
        #[serde(rename = "auto_start")]
        start: bool = false,
    }

    /// The labels for a kubelet that starts.
    RegistrationSettings {
        /// Whether the Node registers with region, zone and host, through a file that its kubelet reads.
        node_labels: bool = false,
    }

    /// The reports on the Node.
    ReportSettings {
        /// Conditions on our Node.
        node_conditions: bool = true,
        /// Conditions on our Node for scheduled events.
        lifecycle_conditions: bool = false,
        /// Events about our Node.
        events: bool = true,
        /// Annotations on our Node about the VM, the source and the last migration. The annotations with our labels and their host are
        /// always written: the next reconcile needs them.
        annotations: bool = true,
    }

    /// The export of metrics.
    Metrics {
        /// The file for node-exporter.
        textfile: MetricsFile = MetricsFile::Auto,
        /// The address of the metrics endpoint; `None` disables it.
        #[serde(with = "OrOff")]
        listen: Option<Listen> = None,
    }

    /// The intervals and delays.
    Timing {
        /// The interval of a full read without any trigger.
        #[serde(rename = "poll_interval", with = "Bounded::<LEAST_POLL, MOST_POLL>")]
        // The maximum delay until the agent observes a change that has no trigger, such as a live migration.
        poll: Duration = Duration::from_secs(10 * 60),
        /// The delay after the last change of the hostname before the agent reports it.
        #[serde(with = "Bounded::<0, MOST_WAIT>")]
        // At boot, cloud-init and DHCP clients set the hostname several times in a row.
        hostname_debounce: Duration = Duration::from_secs(2),
        /// The maximum wait for Harvester's own annotations on VMs that Harvester labels.
        #[serde(rename = "annotation_grace_period", with = "Bounded::<0, MOST_WAIT>")]
        // The time that Harvester's controller needs after a migration, and the maximum time that stale labels remain.
        settle: Duration = Duration::from_secs(10),
        /// The maximum delay before a watch is re-established; the delays of the agents are spread over it.
        #[serde(with = "Bounded::<LEAST_WATCH_DELAY, MOST_WATCH_DELAY>")]
        // After a restart of an API server with ten thousand agents, the watches are re-established at an even rate over this time.
        watch_delay: Duration = Duration::from_secs(60),
    }

    /// The log in the journal.
    Log {
        /// The lowest severity that is logged.
        level: LogLevel = LogLevel::Info,
    }

    /// The machine.
    MachineSettings {
        /// Whether the machine is treated as a KubeVirt VM even if its firmware does not identify it as one.
        assume_kubevirt: bool = false,
    }
}

fn writable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LabelKey>, D::Error> {
    let key: Option<WritableKey> = OrOff::deserialize(deserializer)?;
    Ok(key.map(|WritableKey(key)| key))
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

fn writable_keys<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<LabelKey, LabelKey>, D::Error> {
    let labels = BTreeMap::<WritableKey, LabelKey>::deserialize(deserializer)?;
    let labels = labels.into_iter();
    Ok(labels.map(|(WritableKey(key), host)| (key, host)).collect())
}

/// The metrics file for the textfile collector of node-exporter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MetricsFile {
    /// The default directory of node-exporter, if it exists.
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

/// The lowest severity that is logged, with its number in syslog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Errors only.
    Error = 3,
    /// Also warnings.
    Warn = 4,
    /// Also changes of state.
    Info = 6,
    /// Also the reasons for each decision.
    Debug = 7,
}
