// SPDX-License-Identifier: Apache-2.0
//! Metrics as a file for the textfile collector of the Prometheus node exporter, in the Prometheus text format.

use std::collections::BTreeSet;
use std::path::Path;

use super::trouble::Trouble;
use crate::durable;
use crate::few::Few;
use crate::root::Root;

/// The collector's directory as Debian and its descendants package it.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/prometheus/node-exporter";

/// Our file in that directory.
pub const DEFAULT_FILE: &str = "/var/lib/prometheus/node-exporter/harvester_node_agent.prom";

/// The collector runs as another user.
const TEXTFILE_MODE: u32 = 0o644;

/// What kind of number a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up only; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One sample. Names, help texts and label names are our own, in ASCII; label values may be anything.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The family.
    pub name: &'static str,
    /// What the family means; that of the first sample counts.
    pub help: &'static str,
    /// The kind of the family; that of the first sample counts.
    pub kind: Kind,
    /// In the order in which they are written.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: f64,
}

/// The default file, where its directory exists.
pub fn default_file(root: &Root) -> Option<&'static Path> {
    let is_directory = root
        .metadata(DEFAULT_DIRECTORY)
        .is_ok_and(|metadata| metadata.is_dir());
    is_directory.then_some(Path::new(DEFAULT_FILE))
}

/// The text of all samples, family by family in order of first appearance.
///
/// Of two samples with the same name and labels the first is kept: the collector rejects a whole file with such a pair.
pub fn render(metrics: &[Metric]) -> String {
    let mut text = String::new();
    let mut families = BTreeSet::new();
    for first in metrics {
        if !families.insert(first.name) {
            continue;
        }
        let kind = match first.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let help = escape(first.help, Quotes::Plain);
        text.push_str(&format!("# HELP {} {help}\n", first.name));
        text.push_str(&format!("# TYPE {} {kind}\n", first.name));
        let mut series = BTreeSet::new();
        for metric in metrics.iter().filter(|metric| metric.name == first.name) {
            let labels = render_labels(&metric.labels);
            if series.insert(metric.labels.iter().into_set()) {
                let value = render_value(metric.value);
                text.push_str(&format!("{}{labels} {value}\n", metric.name));
            }
        }
    }
    text
}

/// Writes the file if its content changes. Its directory has to exist.
pub fn publish(root: &Root, path: impl AsRef<Path>, metrics: &[Metric]) -> Option<Trouble> {
    let path = path.as_ref();
    durable::write_atomic(root, path, render(metrics).as_bytes(), TEXTFILE_MODE)
        .err()
        .map(|error| Trouble::new(path, &error))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    Escaped,
    Plain,
}

fn render_labels(labels: &[(&'static str, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escape(value, Quotes::Escaped)))
        .collect();
    format!("{{{}}}", pairs.join(","))
}

fn escape(text: &str, quotes: Quotes) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    match quotes {
        Quotes::Escaped => text.replace('"', "\\\""),
        Quotes::Plain => text,
    }
}

fn render_value(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &'static str, labels: &[(&'static str, &str)], value: f64) -> Metric {
        Metric {
            name,
            help: "What it\nis \\ \"means\".",
            kind: if name.ends_with("_total") {
                Kind::Counter
            } else {
                Kind::Gauge
            },
            labels: labels
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
            value,
        }
    }

    #[test]
    fn samples_are_grouped_by_family_escaped_and_never_doubled() {
        let text = render(&[
            sample("hna_up", &[("host", "hv-a"), ("zone", "a\"b\\c\nd")], 1.0),
            sample("hna_moves_total", &[], 3.0),
            sample("hna_up", &[("host", "hv-b")], 0.25),
            sample("hna_up", &[("host", "hv-b")], 7.0),
            sample("hna_up", &[("zone", "a\"b\\c\nd"), ("host", "hv-a")], 8.0),
        ]);
        assert_eq!(
            text,
            "# HELP hna_up What it\\nis \\\\ \"means\".\n\
             # TYPE hna_up gauge\n\
             hna_up{host=\"hv-a\",zone=\"a\\\"b\\\\c\\nd\"} 1\n\
             hna_up{host=\"hv-b\"} 0.25\n\
             # HELP hna_moves_total What it\\nis \\\\ \"means\".\n\
             # TYPE hna_moves_total counter\n\
             hna_moves_total 3\n"
        );
    }

    #[test]
    fn every_number_is_written_as_prometheus_reads_it() {
        for (value, text) in [
            (0.0, "0"),
            (1_700_000_000.5, "1700000000.5"),
            (-2.0, "-2"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(render_value(value), text);
        }
    }

    #[test]
    fn the_file_is_written_only_into_a_directory_that_exists() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        assert_eq!(default_file(&root), None);
        let metrics = [sample("hna_up", &[], 1.0)];
        assert_eq!(
            publish(&root, DEFAULT_FILE, &metrics).unwrap().path,
            Path::new(DEFAULT_FILE)
        );
        std::fs::create_dir_all(root.join(DEFAULT_DIRECTORY)).unwrap();
        assert_eq!(publish(&root, default_file(&root).unwrap(), &metrics), None);
        assert_eq!(
            root.read_text(DEFAULT_FILE, 1000).unwrap(),
            render(&metrics)
        );
        assert_eq!(
            root.list(DEFAULT_DIRECTORY).unwrap(),
            ["harvester_node_agent.prom"]
        );
    }
}
