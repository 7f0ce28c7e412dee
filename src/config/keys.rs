// SPDX-License-Identifier: Apache-2.0
//! The table of all keys: each row has the allowed values and the function that sets the field.
//!
//! For the steps to add a key, see the documentation of [`crate::config`].

use std::time::Duration;

use super::label::{ConfigMapName, LabelKey, NameError};
use super::listen::Listen;
use super::settings::{HostPlace, MetricsFile, OptIns, Settings, WatchMode};
use super::value::{ConfigValue, Wrong};
use crate::facts::names::{HostName, Namespace, NodeName, VmName};
use crate::facts::placement::Source;
use crate::facts::topology::LabelValue;

/// The minimum poll interval: a fleet that polls more often overloads both APIs.
const LEAST_POLL: Duration = Duration::from_secs(60);
/// The maximum poll interval: the poll is the fallback for every event source.
const MOST_POLL: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum wait: a longer one delays the update of the labels.
const MOST_WAIT: Duration = Duration::from_secs(60);
/// The bounds of the watch delay: below, all agents reconnect at the same time; above, changes are observed late.
const LEAST_WATCH_DELAY: Duration = Duration::from_secs(1);
const MOST_WATCH_DELAY: Duration = Duration::from_secs(10 * 60);

const OPT_INS: &str = "an array of \"plain-http\", \"insecure-skip-tls-verify\", \"proxy-url\"";

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// The tables and the name, separated by dots; `*` is a name that the user chooses.
    pub path: &'static str,
    /// The default in TOML syntax; for a key with `*`, the default of the whole table before it.
    pub default: &'static str,
    /// The allowed values.
    pub allowed: &'static str,
    /// The description, in one line.
    pub help: &'static str,
    pub(super) set: Set,
}

/// Validates a value and sets its field. The names are those in place of `*`.
type Set = fn(&mut Settings, &[String], &ConfigValue) -> Result<(), Vec<Wrong>>;

/// All keys, in the order in which they are displayed.
pub const KEYS: &[Key] = &[
    Key {
        path: "watch",
        default: "true",
        allowed: "true, false",
        help: "watch the VM and the Node; false: rely on event sources in the guest and an hourly poll (very large fleets)",
        set: |settings, _, value| {
            let mode = value.switch().map(|watch| match watch {
                true => WatchMode::Watch,
                false => WatchMode::Signals,
            });
            put(&mut settings.mode, mode)
        },
    },
    Key {
        path: "harvester.kubeconfig",
        default: r#""""#,
        allowed: r#"an absolute path, "" to search the standard paths"#,
        help: "kubeconfig of the Harvester API",
        set: |settings, _, value| {
            let path = value.optional(ConfigValue::path);
            put(&mut settings.harvester.kubeconfig, path)
        },
    },
    Key {
        path: "harvester.namespace",
        default: r#""""#,
        allowed: r#"the name of a namespace, "" to use that of the kubeconfig"#,
        help: "namespace of the VM in Harvester",
        set: |settings, _, value| {
            let name =
                value.optional(|value| value.name(kind(Namespace::parse, NameError::DnsLabel)));
            put(&mut settings.harvester.namespace, name)
        },
    },
    Key {
        path: "harvester.vm",
        default: r#""""#,
        allowed: r#"the name of a VM, "" to match it by UUID, MAC address and name"#,
        help: "name of the VM in Harvester; disables the match",
        set: |settings, _, value| {
            let name =
                value.optional(|value| value.name(kind(VmName::parse, NameError::Subdomain)));
            put(&mut settings.harvester.vm, name)
        },
    },
    Key {
        path: "harvester.allow",
        default: "[]",
        allowed: OPT_INS,
        help: "insecure settings that the agent honors in the kubeconfig of Harvester",
        set: |settings, _, value| put_all(&mut settings.harvester.allow, opt_ins(value)),
    },
    Key {
        path: "guest_cluster.kubeconfig",
        default: r#""""#,
        allowed: r#"an absolute path, "" to search the standard paths"#,
        help: "kubeconfig of the kubelet",
        set: |settings, _, value| {
            let path = value.optional(ConfigValue::path);
            put(&mut settings.guest.kubeconfig, path)
        },
    },
    Key {
        path: "guest_cluster.node_name",
        default: r#""""#,
        allowed: r#"the name of a Node, "" to take it from the client certificate of the kubelet"#,
        help: "name of this Node in the guest cluster",
        set: |settings, _, value| {
            let name =
                value.optional(|value| value.name(kind(NodeName::parse, NameError::Subdomain)));
            put(&mut settings.guest.node_name, name)
        },
    },
    Key {
        path: "guest_cluster.allow",
        default: "[]",
        allowed: OPT_INS,
        help: "insecure settings that the agent honors in the kubeconfig of the kubelet",
        set: |settings, _, value| put_all(&mut settings.guest.allow, opt_ins(value)),
    },
    Key {
        path: "topology.on_change",
        default: r#""follow""#,
        allowed: r#""follow", "hold", "report""#,
        help: "after a migration to another zone: follow the host, keep the first zone, or only report",
        set: |settings, _, value| put(&mut settings.topology.on_change, value.choice()),
    },
    Key {
        path: "topology.host_label",
        default: r#""topology.harvesterhci.io/host""#,
        allowed: r#"a label key that NodeRestriction lets a kubelet write, "off" for no such label"#,
        help: "label of this Node for the name of the Harvester host",
        set: |settings, _, value| {
            let key = value.unless_off(|value| {
                let key = value.name(LabelKey::parse)?;
                let writable = key.check_writable();
                writable.map_err(|error| value.refuse(error))?;
                Ok(key)
            });
            put(&mut settings.topology.host_label, key)
        },
    },
    Key {
        path: "topology.remove_stale",
        default: "false",
        allowed: "true, false",
        help: "remove a label that the agent owns when the host no longer has it",
        set: |settings, _, value| put(&mut settings.topology.remove_stale, value.switch()),
    },
    Key {
        path: "topology.sources",
        default: r#"["host-node", "vmi-annotations", "launcher-pod", "configmap", "hosts-table", "pod-info"]"#,
        allowed: r#"an array of "host-node", "vmi-annotations", "launcher-pod", "configmap", "hosts-table", "pod-info", in this order"#,
        help: "enabled sources of region and zone; the first one with a result is used",
        set: |settings, _, value| {
            let sources = value.ordered_choices::<Source>();
            put_all(&mut settings.topology.sources, sources)
        },
    },
    Key {
        path: "topology.configmap",
        default: r#""harvester-public/topology""#,
        allowed: "namespace/name of a ConfigMap in Harvester",
        help: "ConfigMap that the source \"configmap\" reads",
        set: |settings, _, value| {
            let name = value.name(ConfigMapName::parse);
            put(&mut settings.topology.configmap, name)
        },
    },
    Key {
        path: "topology.zone_fallback",
        default: r#""off""#,
        allowed: r#""off", "host""#,
        help: "zone of a host without a zone label: none, or the name of the host",
        set: |settings, _, value| put(&mut settings.topology.zone_fallback, value.choice()),
    },
    Key {
        path: "labels.extra.*",
        default: "{}",
        allowed: r#""label key on this Node" = "label key on the Harvester host", both quoted; NodeRestriction must let a kubelet write the first"#,
        help: "additional labels to copy from the Harvester host to this Node",
        set: set_extra_label,
    },
    Key {
        path: "hosts.*.region",
        default: "{}",
        allowed: "a label value, in a table with the name of a Harvester host",
        help: "region and zone of each Harvester host; with KubeVirt downward metrics, no Harvester credential is needed",
        set: |settings, names, value| {
            let region = value.name(kind(LabelValue::parse, NameError::Qualified));
            set_place(settings, names, value, region, |place| &mut place.region)
        },
    },
    Key {
        path: "hosts.*.zone",
        default: "{}",
        allowed: "a label value, in a table with the name of a Harvester host",
        help: "region and zone of each Harvester host; with KubeVirt downward metrics, no Harvester credential is needed",
        set: |settings, names, value| {
            let zone = value.name(kind(LabelValue::parse, NameError::Qualified));
            set_place(settings, names, value, zone, |place| &mut place.zone)
        },
    },
    Key {
        path: "pod_info.path",
        default: r#""/run/podinfo""#,
        allowed: r#"an absolute path, "off""#,
        help: "virtiofs mount with the downward API files labels, name and namespace; no network and no credential is needed",
        set: |settings, _, value| {
            let path = value.unless_off(ConfigValue::path);
            put(&mut settings.pod_info, path)
        },
    },
    Key {
        path: "qemu_guest_agent.auto_start",
        default: "false",
        allowed: "true, false",
        help: "start qemu-guest-agent if its unit is installed and stopped",
        set: |settings, _, value| put(&mut settings.guest_agent.start, value.switch()),
    },
    Key {
        path: "registration.node_labels",
        default: "false",
        allowed: "true, false",
        help: "register the Node with its labels: `gate` writes them for the kubelet, and the agent keeps the file in sync",
        set: |settings, _, value| put(&mut settings.registration.node_labels, value.switch()),
    },
    Key {
        path: "report.node_conditions",
        default: "true",
        allowed: "true, false",
        help: "write conditions to this Node",
        set: |settings, _, value| put(&mut settings.report.node_conditions, value.switch()),
    },
    Key {
        path: "report.lifecycle_conditions",
        default: "false",
        allowed: "true, false",
        help: "write the conditions MaintenancePlanned and MaintenanceInProgress to this Node; they need node_conditions",
        set: |settings, _, value| put(&mut settings.report.lifecycle_conditions, value.switch()),
    },
    Key {
        path: "report.events",
        default: "true",
        allowed: "true, false",
        help: "write Events about this Node",
        set: |settings, _, value| put(&mut settings.report.events, value.switch()),
    },
    Key {
        path: "report.annotations",
        default: "true",
        allowed: "true, false",
        help: "write annotations about VM, topology source and last migration; `owned-labels` and `host` are always written",
        set: |settings, _, value| put(&mut settings.report.annotations, value.switch()),
    },
    Key {
        path: "metrics.textfile",
        default: r#""""#,
        allowed: r#"an absolute path, "" for the directory of Debian's node-exporter if it exists, "off""#,
        help: "file with metrics for the textfile collector of node-exporter",
        set: |settings, _, value| {
            let textfile = match value {
                ConfigValue::Text(text) if text.is_empty() => Ok(MetricsFile::Auto),
                _ => value
                    .unless_off(ConfigValue::path)
                    .map(|path| path.map_or(MetricsFile::Off, MetricsFile::Path)),
            };
            put(&mut settings.metrics.textfile, textfile)
        },
    },
    Key {
        path: "metrics.listen",
        default: r#""off""#,
        allowed: r#""127.0.0.1:PORT", "[::1]:PORT", "off""#,
        help: "address on this node that serves metrics at /metrics",
        set: |settings, _, value| {
            let listen = value.unless_off(Listen::parse);
            put(&mut settings.metrics.listen, listen)
        },
    },
    Key {
        path: "timing.poll_interval",
        default: r#""10m""#,
        allowed: r#"a duration from "1m" to "24h""#,
        help: "interval between two reconciles without a trigger",
        set: |settings, _, value| {
            put(
                &mut settings.timing.poll,
                value.duration(LEAST_POLL, MOST_POLL),
            )
        },
    },
    Key {
        path: "timing.hostname_debounce",
        default: r#""2s""#,
        allowed: r#"a duration from "0s" to "60s""#,
        help: "report a changed hostname after it was stable for this long",
        set: |settings, _, value| {
            let wait = value.duration(Duration::ZERO, MOST_WAIT);
            put(&mut settings.timing.hostname_debounce, wait)
        },
    },
    Key {
        path: "timing.annotation_grace_period",
        default: r#""10s""#,
        allowed: r#"a duration from "0s" to "60s""#,
        help: "wait after a migration for the annotations of Harvester before labels are written, on VMs that Harvester labels",
        set: |settings, _, value| {
            let wait = value.duration(Duration::ZERO, MOST_WAIT);
            put(&mut settings.timing.settle, wait)
        },
    },
    Key {
        path: "timing.watch_delay",
        default: r#""60s""#,
        allowed: r#"a duration from "1s" to "10m""#,
        help: "longest delay before a closed watch is re-established; the delays of all agents are spread over it",
        set: |settings, _, value| {
            let delay = value.duration(LEAST_WATCH_DELAY, MOST_WATCH_DELAY);
            put(&mut settings.timing.watch_delay, delay)
        },
    },
    Key {
        path: "log.level",
        default: r#""info""#,
        allowed: r#""error", "warn", "info", "debug""#,
        help: "least severe message that is logged",
        set: |settings, _, value| put(&mut settings.log.level, value.choice()),
    },
    Key {
        path: "machine.assume_kubevirt",
        default: "false",
        allowed: "true, false",
        help: "run although the firmware does not identify a KubeVirt VM",
        set: |settings, _, value| put(&mut settings.machine.assume_kubevirt, value.switch()),
    },
];

impl Key {
    /// Returns the parts between the dots.
    pub(super) fn segments(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('.')
    }

    /// Returns the table before the first `*`, for keys that have one.
    pub(super) fn open_table(&self) -> Option<&'static str> {
        self.path.split_once(".*").map(|(table, _)| table)
    }
}

fn put<T>(field: &mut T, checked: Result<T, Wrong>) -> Result<(), Vec<Wrong>> {
    put_all(field, checked.map_err(Vec::from))
}

fn put_all<T>(field: &mut T, checked: Result<T, Vec<Wrong>>) -> Result<(), Vec<Wrong>> {
    *field = checked?;
    Ok(())
}

fn opt_ins(value: &ConfigValue) -> Result<OptIns, Vec<Wrong>> {
    value.choices().map(|listed| listed.into_iter().collect())
}

/// Validates the name in place of `*`.
fn chosen<T, E: std::fmt::Display>(
    names: &[String],
    value: &ConfigValue,
    check: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Wrong> {
    let name = names.first().map(String::as_str).unwrap_or_default();
    check(name).map_err(|error| value.refuse_name(name, error))
}

fn set_extra_label(
    settings: &mut Settings,
    names: &[String],
    value: &ConfigValue,
) -> Result<(), Vec<Wrong>> {
    let guest = chosen(names, value, LabelKey::parse)
        .and_then(|key| chosen(names, value, |_| key.check_writable().map(|()| key.clone())));
    let host = value.name(LabelKey::parse);
    let (guest, host) = both(guest, host)?;
    settings.extra_labels.insert(guest, host);
    Ok(())
}

fn set_place(
    settings: &mut Settings,
    names: &[String],
    value: &ConfigValue,
    part: Result<LabelValue, Wrong>,
    field: fn(&mut HostPlace) -> &mut Option<LabelValue>,
) -> Result<(), Vec<Wrong>> {
    let host = chosen(names, value, kind(HostName::parse, NameError::Subdomain));
    let (host, part) = both(host, part)?;
    *field(settings.hosts.entry(host).or_default()) = Some(part);
    Ok(())
}

fn both<A, B>(first: Result<A, Wrong>, second: Result<B, Wrong>) -> Result<(A, B), Vec<Wrong>> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (first, second) => Err([first.err(), second.err()].into_iter().flatten().collect()),
    }
}

/// Returns a parser of names that uses the rule of a type in `facts`, and the error of this module.
fn kind<T, E>(
    parse: fn(&str) -> Result<T, E>,
    reason: NameError,
) -> impl Fn(&str) -> Result<T, NameError> {
    move |text| match text {
        "" => Err(NameError::Empty),
        _ => parse(text).map_err(|_| reason),
    }
}
