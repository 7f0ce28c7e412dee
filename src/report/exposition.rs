// SPDX-License-Identifier: Apache-2.0
//! The text format of Prometheus, version 0.0.4.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::Write;

/// The type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that only increases; the name ends in `_total`.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// Observations by size; the names of the samples have the suffixes `_bucket`, `_sum` and `_count`.
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The text of one family, to which samples are appended. Names, help texts and label names are our own, in ASCII; label values
/// are arbitrary. Two samples must not have the same labels: Prometheus rejects the whole page.
#[derive(Debug)]
pub struct MetricFamily<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl<'a> MetricFamily<'a> {
    /// Starts a family at the end of `text`.
    pub fn new(text: &'a mut String, name: &'static str, kind: Kind, help: &'static str) -> Self {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {}", escape(help));
        let _ = writeln!(text, "# TYPE {name} {}", kind.as_str());
        Self { name, text }
    }

    /// Adds a sample.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.sample_of("", labels, value);
    }

    /// Adds a sample whose name has a suffix.
    pub fn sample_of(&mut self, ending: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "{}{ending}", self.name);
        let mut before = '{';
        for (name, value) in labels {
            let value = escape(value).replace('"', "\\\"");
            let _ = write!(self.text, "{before}{name}=\"{value}\"");
            before = ',';
        }
        let end = if labels.is_empty() { "" } else { "}" };
        // Rust and Prometheus format numbers alike; our values are never infinite.
        let _ = writeln!(self.text, "{end} {value}");
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_help_its_kind_and_its_samples_each_on_a_line_of_its_own() {
        let mut text = String::new();
        let mut up = MetricFamily::new(
            &mut text,
            "hna_up",
            Kind::Gauge,
            "What it\nis \\ \"means\".",
        );
        up.sample(&[("host", "hv-a"), ("zone", "a\"b\\c\nd")], 1.0);
        up.sample(&[("host", "hv-b")], 0.25);
        MetricFamily::new(&mut text, "hna_moves_total", Kind::Counter, "Moves.").sample(&[], 3.0);
        MetricFamily::new(&mut text, "hna_seconds", Kind::Histogram, "Time.").sample_of(
            "_bucket",
            &[("le", "+Inf")],
            1_700_000_000.0,
        );
        assert_eq!(
            text,
            "# HELP hna_up What it\\nis \\\\ \"means\".\n\
             # TYPE hna_up gauge\n\
             hna_up{host=\"hv-a\",zone=\"a\\\"b\\\\c\\nd\"} 1\n\
             hna_up{host=\"hv-b\"} 0.25\n\
             # HELP hna_moves_total Moves.\n\
             # TYPE hna_moves_total counter\n\
             hna_moves_total 3\n\
             # HELP hna_seconds Time.\n\
             # TYPE hna_seconds histogram\n\
             hna_seconds_bucket{le=\"+Inf\"} 1700000000\n"
        );
    }
}
