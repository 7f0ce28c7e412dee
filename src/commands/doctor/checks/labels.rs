// SPDX-License-Identifier: Apache-2.0
//! Does another writer set the topology labels of our Node, and do pods have those of another zone?

use crate::catalog::{Code, Finding};
use crate::commands::doctor::case::{Case, Checked, finding};
use crate::commands::doctor::objects::Pod;
use crate::commands::doctor::reads::Reads;
use crate::facts::topology::{TWINS, ZONE};
use crate::report::text::{first, many};

/// The field manager of the agent in `managedFields`.
const OURS: &str = "harvester-node-agent";

/// The maximum number of pods that one finding names.
const NAMED_MAX: usize = 3;

/// Compares the labels of the Node, which are those of the round, and of its pods.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let pods = reads.pods.known().map(|pods| pods.list.as_slice());
    let findings = judge(&reads.case, pods.unwrap_or_default());
    checked.findings.extend(findings);
}

fn judge(case: &Case<'_>, pods: &[Pod]) -> Vec<Finding> {
    let findings = [conflict(case), twins(case), other_zone(case, pods)];
    findings.into_iter().flatten().collect()
}

/// Returns a finding if another field manager overwrote a topology label with a value that differs from the host's.
fn conflict(case: &Case<'_>) -> Option<Finding> {
    let node = case.observation.node.known()?;
    let topology = &case.placement?.known.as_ref()?.topology;
    let pairs = TWINS
        .iter()
        .flat_map(|(key, beta)| [(*key, *key), (*beta, *key)]);
    let texts = pairs.filter_map(|(key, asked)| {
        let wanted = topology.value(asked)?;
        let present = node.labels.get(key);
        let present = present.filter(|value| *value != wanted.as_str())?;
        let manager = node.managers.get(key).filter(|name| *name != OURS)?;
        Some(format!(
            "`{}` wrote {key}={}, the host has {wanted}",
            manager.escape_debug(),
            present.escape_debug()
        ))
    });
    finding(Code::TopologyLabelOverwritten, &texts.collect::<Vec<_>>())
}

/// Returns a finding if a topology key and its deprecated beta key differ.
fn twins(case: &Case<'_>) -> Option<Finding> {
    let node = case.observation.node.known()?;
    let writer = |key: &str| match node.managers.get(key) {
        Some(manager) => format!(" (by `{}`)", manager.escape_debug()),
        None => String::new(),
    };
    let texts = TWINS.iter().filter_map(|(key, beta)| {
        let old = node.labels.get(*beta)?;
        let new = node.labels.get(*key).map_or("missing", String::as_str);
        (old != new).then(|| {
            format!(
                "{key} is {}{}, {beta} is {}{}",
                new.escape_debug(),
                writer(key),
                old.escape_debug(),
                writer(beta)
            )
        })
    });
    finding(Code::BetaLabelsDiffer, &texts.collect::<Vec<_>>())
}

/// Returns a finding about pods that were created while the Node had another zone.
fn other_zone(case: &Case<'_>, pods: &[Pod]) -> Option<Finding> {
    let zone = case.observation.node.known()?.labels.get(ZONE)?;
    let others = pods.iter().filter_map(|pod| {
        let other = pod.zone.as_ref().filter(|other| other.as_str() != zone)?;
        Some(format!("{} ({other})", pod.reference))
    });
    let others: Vec<String> = others.collect();
    let text = format!(
        "the Node has zone {}, {} another: {}",
        zone.escape_debug(),
        many(others.len(), "pod"),
        first(others.iter(), NAMED_MAX, ", ")
    );
    (!others.is_empty()).then(|| Finding::new(Code::PodsInOtherZone, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::doctor::testing::{Bench, object};
    use crate::facts::topology::ZONE_BETA;

    /// A Node with these labels, each written by a field manager.
    fn labeled(labels: &[(&str, &str, Option<&str>)]) -> Bench {
        let mut bench = Bench::new();
        let node = bench.world.node();
        for (key, value, manager) in labels {
            node.labels.insert((*key).to_owned(), (*value).to_owned());
            let manager = manager.map(|name| ((*key).to_owned(), name.to_owned()));
            node.managers.extend(manager);
        }
        bench
    }

    /// The file has the labels of Nodes, with who wrote them, and the zones of pods on each. Below is what is found.
    #[test]
    fn labels_that_are_wrong_or_disagree_are_reported_with_who_wrote_them() {
        let file = "src/commands/doctor/checks/labels.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let (zones, labels): (Vec<&str>, Vec<&str>) =
                case.lines().partition(|line| line.starts_with("pod"));
            let labels = labels.into_iter().map(|line| {
                let (label, manager) = line.split_once(" by ").unwrap_or((line, ""));
                let (key, value) = label.split_once('=').unwrap();
                (key, value, Some(manager).filter(|name| !name.is_empty()))
            });
            let pods = (0..).zip(zones).map(|(index, zone): (usize, &str)| {
                let name = format!("p{index}");
                let labels = json!({ZONE: zone.trim_start_matches("pod").trim()});
                object(json!({"metadata": {"namespace": "shop", "name": name, "labels": labels}}))
            });
            let (bench, pods) = (labeled(&labels.collect::<Vec<_>>()), Vec::from_iter(pods));
            bench.texts(|case| judge(case, &pods)).join("\n")
        });
    }

    #[test]
    fn texts_from_outside_are_escaped() {
        let bench = labeled(&[(ZONE_BETA, "\u{202e}", Some("\n"))]);
        let found = bench.texts(|case| judge(case, &[]));
        let is_bad = |character: char| character.is_control() || character == '\u{202e}';
        assert!(!found.is_empty() && !found.iter().any(|text| text.contains(is_bad)));
    }
}
