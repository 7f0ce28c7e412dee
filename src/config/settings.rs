// SPDX-License-Identifier: Apache-2.0
//! The validated configuration: one struct per table, with typed values and all defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::label::{ConfigMapName, LabelKey};
use super::listen::Listen;
use crate::facts::names::{HostName, Namespace, NodeName, VmName};
use crate::facts::placement::Source;
use crate::facts::topology::LabelValue;

/// The maximum delay until the agent observes a change that has no trigger, such as a live migration.
const POLL: Duration = Duration::from_secs(10 * 60);
/// At boot, cloud-init and DHCP clients set the hostname several times in a row.
const HOSTNAME_DEBOUNCE: Duration = Duration::from_secs(2);
/// The time that Harvester's controller needs after a migration, and the maximum time that stale labels remain.
const SETTLE: Duration = Duration::from_secs(10);
/// After a restart of an API server with ten thousand agents, the watches are re-established at an even rate over this time.
const WATCH_DELAY: Duration = Duration::from_secs(60);

/// The mount point of the virtiofs file system with the files about the virt-launcher pod.
const POD_INFO: &str = "/run/podinfo";

/// An enumeration whose values have names in the configuration.
pub(super) trait Choice: Copy + PartialEq + 'static {
    /// All values with their names, in the order of the documentation.
    const NAMES: &'static [(&'static str, Self)];
}

macro_rules! choice {
    (
        $(#[$attribute:meta])*
        $name:ident { $( $(#[$variant_attribute:meta])* $variant:ident = $text:literal, )+ }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_attribute])* $variant, )+
        }

        impl Choice for $name {
            const NAMES: &'static [(&'static str, Self)] = &[$(($text, Self::$variant)),+];
        }

        impl $name {
            /// Returns the name in the configuration.
            pub fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )+
                }
            }
        }
    };
}

/// The settings of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How the agent observes changes.
    pub mode: WatchMode,
    /// The Harvester API and its credential.
    pub harvester: HarvesterSettings,
    /// The API of the guest cluster and its credential.
    pub guest: Guest,
    /// The topology labels.
    pub topology: TopologySettings,
    /// Labels that are copied from the host to our Node: from the key on our Node to the key on the host.
    pub extra_labels: BTreeMap<LabelKey, LabelKey>,
    /// The region and zone of each Harvester host; see [`Source::HostsTable`].
    pub hosts: BTreeMap<HostName, HostPlace>,
    /// The directory with the files about the virt-launcher pod; `None` disables them.
    pub pod_info: Option<PathBuf>,
    /// The QEMU guest agent.
    pub guest_agent: GuestAgentSettings,
    /// The labels for a kubelet that starts for the first time.
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

/// How the agent observes changes: the key `watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// Watches on the VM and the Node.
    Watch,
    /// No watches; event sources in the guest and an hourly poll.
    Signals,
}

/// The Harvester API and its credential.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HarvesterSettings {
    /// The kubeconfig; `None` searches the standard paths.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the VM; `None` uses that of the kubeconfig.
    pub namespace: Option<Namespace>,
    /// The name of the VM; `None` matches the VM by UUID, MAC address and name.
    pub vm: Option<VmName>,
    /// Insecure settings that are honored in the kubeconfig.
    pub allow: OptIns,
}

/// The API of the guest cluster and its credential.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guest {
    /// The kubeconfig of the kubelet; `None` searches the standard paths.
    pub kubeconfig: Option<PathBuf>,
    /// The name of our Node; `None` uses that of the kubelet's certificate.
    pub node_name: Option<NodeName>,
    /// Insecure settings that are honored in the kubeconfig.
    pub allow: OptIns,
}

/// Insecure settings that are honored in a kubeconfig; none by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OptIns {
    /// A server URL with `http://`.
    pub plain_http: bool,
    /// `insecure-skip-tls-verify`.
    pub skip_tls_verify: bool,
    /// `proxy-url`.
    pub proxy: bool,
}

choice! {
    /// An insecure setting, as listed in the configuration.
    OptIn {
        /// A server URL with `http://`.
        PlainHttp = "plain-http",
        /// `insecure-skip-tls-verify`.
        SkipTlsVerify = "insecure-skip-tls-verify",
        /// `proxy-url`.
        Proxy = "proxy-url",
    }
}

impl FromIterator<OptIn> for OptIns {
    fn from_iter<I: IntoIterator<Item = OptIn>>(listed: I) -> Self {
        let mut allowed = Self::default();
        for opt_in in listed {
            match opt_in {
                OptIn::PlainHttp => allowed.plain_http = true,
                OptIn::SkipTlsVerify => allowed.skip_tls_verify = true,
                OptIn::Proxy => allowed.proxy = true,
            }
        }
        allowed
    }
}

/// The topology labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologySettings {
    /// The reaction to a move of the VM to another region or zone.
    pub on_change: OnChange,
    /// The key of the label with the Harvester host; `None` omits the label.
    pub host_label: Option<LabelKey>,
    /// Whether our own label is removed if every source reports that the host does not have it.
    pub remove_stale: bool,
    /// The allowed sources, in the fixed order.
    pub sources: Vec<Source>,
    /// The ConfigMap that [`Source::ConfigMap`] reads.
    pub configmap: ConfigMapName,
    /// The zone of a host without a zone label.
    pub zone_fallback: ZoneFallback,
}

choice! {
    /// The zone of a host without a zone label.
    ZoneFallback {
        /// None.
        Off = "off",
        /// The name of the host.
        Host = "host",
    }
}

choice! {
    /// The reaction to a move of the VM to another region or zone.
    OnChange {
        /// Updates the labels.
        Follow = "follow",
        /// Keeps the first region and zone, and reports the difference.
        Hold = "hold",
        /// Never writes the labels, and reports the difference.
        Report = "report",
    }
}

impl Choice for Source {
    const NAMES: &'static [(&'static str, Self)] = &Self::NAMES;
}

/// The region and zone of one Harvester host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPlace {
    /// The region, if set.
    pub region: Option<LabelValue>,
    /// The zone, if set.
    pub zone: Option<LabelValue>,
}

/// The QEMU guest agent, which reports the hostname and the addresses to Harvester.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestAgentSettings {
    /// Whether the agent starts its unit if it is installed and stopped.
    pub start: bool,
}

/// The labels for a kubelet that starts for the first time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegistrationSettings {
    /// Whether the Node registers with region, zone and host, through a file in the configuration of the distribution.
    pub node_labels: bool,
}

/// The reports on the Node.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// The metrics file for the textfile collector of node-exporter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsFile {
    /// The default directory of node-exporter, if it exists.
    Auto,
    /// This file.
    Path(PathBuf),
    /// No file.
    Off,
}

/// The export of metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// The file for node-exporter.
    pub textfile: MetricsFile,
    /// The address of the metrics endpoint; `None` disables it.
    pub listen: Option<Listen>,
}

/// The intervals and delays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// The interval of a full read without any trigger.
    pub poll: Duration,
    /// The delay after the last change of the hostname before the agent reports it.
    pub hostname_debounce: Duration,
    /// The maximum wait for Harvester's own annotations on VMs that Harvester labels.
    pub settle: Duration,
    /// The maximum delay before a watch is re-established; the delays of the agents are spread over it.
    pub watch_delay: Duration,
}

/// The log in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The lowest severity that is logged.
    pub level: LogLevel,
}

choice! {
    /// The lowest severity that is logged.
    LogLevel {
        /// Errors only.
        Error = "error",
        /// Also warnings.
        Warn = "warn",
        /// Also changes of state.
        Info = "info",
        /// Also the reasons for each decision.
        Debug = "debug",
    }
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineSettings {
    /// Whether the machine is treated as a KubeVirt VM even if its firmware does not identify it as one.
    pub assume_kubevirt: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: WatchMode::Watch,
            harvester: HarvesterSettings::default(),
            guest: Guest::default(),
            topology: TopologySettings {
                on_change: OnChange::Follow,
                host_label: Some(LabelKey::HOST),
                remove_stale: false,
                sources: Source::ALL.to_vec(),
                configmap: ConfigMapName::TOPOLOGY,
                zone_fallback: ZoneFallback::Off,
            },
            extra_labels: BTreeMap::new(),
            hosts: BTreeMap::new(),
            pod_info: Some(PathBuf::from(POD_INFO)),
            guest_agent: GuestAgentSettings::default(),
            registration: RegistrationSettings::default(),
            report: ReportSettings {
                node_conditions: true,
                lifecycle_conditions: false,
                events: true,
                annotations: true,
            },
            metrics: Metrics {
                textfile: MetricsFile::Auto,
                listen: None,
            },
            timing: Timing {
                poll: POLL,
                hostname_debounce: HOSTNAME_DEBOUNCE,
                settle: SETTLE,
                watch_delay: WATCH_DELAY,
            },
            log: Log {
                level: LogLevel::Info,
            },
            machine: MachineSettings::default(),
        }
    }
}
