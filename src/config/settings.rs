// SPDX-License-Identifier: Apache-2.0
//! The validated configuration: one struct per table, real types, every default in place.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::label::{ConfigMapName, LabelKey};
use super::listen::Listen;
use crate::facts::names::{HostName, Namespace, NodeName, VmName};
use crate::facts::placement::Source;
use crate::facts::topology::LabelValue;

/// A live migration and everything else that has no trigger is noticed this late at worst.
const POLL: Duration = Duration::from_secs(10 * 60);
/// cloud-init and DHCP clients set the hostname several times in a row at boot.
const HOSTNAME_DEBOUNCE: Duration = Duration::from_secs(2);
/// Time for Harvester's controller to catch up with a migration, and no longer than stale labels may stay.
const SETTLE: Duration = Duration::from_secs(10);
/// An API server with ten thousand agents that restarts gets their watches back at an even rate over this time.
const WATCH_DELAY: Duration = Duration::from_secs(60);

/// An enumeration whose values have names in the configuration.
pub(super) trait Choice: Copy + PartialEq + 'static {
    /// Every value with its name, in the order in which they are documented.
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
            /// The name that the configuration uses.
            pub fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )+
                }
            }
        }
    };
}

/// All that can be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How the agent learns that something changed.
    pub mode: WatchMode,
    /// How Harvester's API is reached, and who we are there.
    pub harvester: HarvesterSettings,
    /// How the guest cluster's API is reached, and who we are there.
    pub guest: Guest,
    /// The topology labels.
    pub topology: TopologySettings,
    /// Labels of the host that are copied to our Node: key on our Node to key on the host.
    pub extra_labels: BTreeMap<LabelKey, LabelKey>,
    /// Where each Harvester host stands; [`Source::HostsTable`].
    pub hosts: BTreeMap<HostName, HostPlace>,
    /// QEMU's own guest agent.
    pub guest_agent: GuestAgentSettings,
    /// What a kubelet that starts for the first time is given.
    pub registration: RegistrationSettings,
    /// Where the agent says what it found.
    pub report: ReportSettings,
    /// Where metrics are exported.
    pub metrics: Metrics,
    /// How long and how often.
    pub timing: Timing,
    /// What goes to the journal.
    pub log: Log,
    /// The machine itself.
    pub machine: MachineSettings,
}

/// How the agent learns that something changed: the key `watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// It watches its VM and its Node.
    Watch,
    /// It opens no watch, and relies on event sources in the guest and an hourly poll.
    Signals,
}

/// How Harvester's API is reached, and who we are there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HarvesterSettings {
    /// The kubeconfig; `None` searches the usual places.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the VM; `None` takes the kubeconfig's.
    pub namespace: Option<Namespace>,
    /// The VM's name; `None` finds the VM by evidence.
    pub vm: Option<VmName>,
    /// What the kubeconfig may ask for although it weakens the connection.
    pub allow: OptIns,
}

/// How the guest cluster's API is reached, and who we are there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guest {
    /// The kubelet's kubeconfig; `None` searches the usual places.
    pub kubeconfig: Option<PathBuf>,
    /// The name of our Node; `None` takes it from the kubelet's certificate.
    pub node_name: Option<NodeName>,
    /// What the kubeconfig may ask for although it weakens the connection.
    pub allow: OptIns,
}

/// What a kubeconfig may ask for although it weakens the connection; nothing by default.
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
    /// One of the opt-ins, as the configuration lists them.
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
    /// What happens to the labels when the VM moved to another region or zone.
    pub on_change: OnChange,
    /// The label that carries the Harvester host; `None` writes none.
    pub host_label: Option<LabelKey>,
    /// Whether our own label goes when every source says that the host has no such label.
    pub remove_stale: bool,
    /// The sources that may be asked, in the fixed order.
    pub sources: Vec<Source>,
    /// The ConfigMap that [`Source::ConfigMap`] reads.
    pub configmap: ConfigMapName,
}

choice! {
    /// What happens to the labels when the VM moved to another region or zone.
    OnChange {
        /// They follow the VM.
        Follow = "follow",
        /// The first region and zone stay; the difference is reported.
        Hold = "hold",
        /// Nothing is ever written; the difference is reported.
        Report = "report",
    }
}

impl Choice for Source {
    const NAMES: &'static [(&'static str, Self)] = &Self::NAMES;
}

/// Where one Harvester host stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPlace {
    /// Its region, when stated.
    pub region: Option<LabelValue>,
    /// Its zone, when stated.
    pub zone: Option<LabelValue>,
}

/// QEMU's own guest agent, which Harvester asks for the hostname and the addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestAgentSettings {
    /// Whether its unit is started when it is installed and stopped.
    pub start: bool,
}

/// What a kubelet that starts for the first time is given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegistrationSettings {
    /// Whether the Node is registered with region, zone and host, by a file of ours in the distribution's configuration.
    pub node_labels: bool,
}

/// Where the agent says what it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportSettings {
    /// Conditions on our Node.
    pub node_conditions: bool,
    /// Events about our Node.
    pub events: bool,
    /// Annotations on our Node about the VM, the source and the last migration. Those that say what we own, and of which
    /// host the labels are, are always written: the next decision needs them.
    pub annotations: bool,
}

/// Whether and where metrics are written for node-exporter's textfile collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsFile {
    /// To node-exporter's default directory when it exists.
    Auto,
    /// To this file.
    Path(PathBuf),
    /// Nowhere.
    Off,
}

/// Where metrics are exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// The file for node-exporter.
    pub textfile: MetricsFile,
    /// The address that serves them; `None` for none.
    pub listen: Option<Listen>,
}

/// How long and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Everything is read again this often although nothing called for it.
    pub poll: Duration,
    /// A changed hostname is reported when it has been quiet for so long.
    pub hostname_debounce: Duration,
    /// How long Harvester's own annotations are waited for on VMs that Harvester labels.
    pub settle: Duration,
    /// The longest delay before a watch that ended is opened again; agents spread over it.
    pub watch_delay: Duration,
}

/// What goes to the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The least severe message that is written.
    pub level: LogLevel,
}

choice! {
    /// The least severe message that is written.
    LogLevel {
        /// Failures.
        Error = "error",
        /// And what may become one.
        Warn = "warn",
        /// And changes of state.
        Info = "info",
        /// And how the agent came to them.
        Debug = "debug",
    }
}

/// The machine itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineSettings {
    /// Whether the machine counts as a KubeVirt VM although its firmware does not say so.
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
            },
            extra_labels: BTreeMap::new(),
            hosts: BTreeMap::new(),
            guest_agent: GuestAgentSettings::default(),
            registration: RegistrationSettings::default(),
            report: ReportSettings {
                node_conditions: true,
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
