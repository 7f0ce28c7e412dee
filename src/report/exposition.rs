// SPDX-License-Identifier: Apache-2.0
//! The text format of Prometheus, version 0.0.4.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::{Display, Write};
use std::time::Duration;

/// The beginning of each name.
const PREFIX: &str = "harvester_node_agent_";

/// Bounds of the histograms, in seconds: from an immediate read, or a short interruption, to the last read of a fast-poll window.
pub const BOUNDS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// A page of metrics. Names, help texts and label names are our own, in ASCII; label values are arbitrary. Two samples of a family
/// must not have the same labels: Prometheus rejects the whole page.
#[derive(Debug, Default)]
pub struct Page {
    /// The text of the page.
    pub text: String,
}

impl Page {
    /// Adds a family with one sample.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: impl Display) {
        self.family(name, help, [(labels, value)]);
    }

    /// Adds a family with one sample for each combination of labels: a counter if the name ends in `_total`, otherwise a gauge.
    pub fn family<'l, L, V>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, V)>,
    ) where
        L: AsRef<[(&'l str, &'l str)]>,
        V: Display,
    {
        let is_counter = name.ends_with("_total");
        self.head(name, if is_counter { "counter" } else { "gauge" }, help);
        for (labels, value) in samples {
            self.sample(name, "", labels.as_ref(), value);
        }
    }

    /// Adds a histogram.
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        for (bound, count) in BOUNDS.iter().zip(histogram.buckets) {
            self.sample(name, "_bucket", &[("le", &bound.to_string())], count);
        }
        self.sample(name, "_bucket", &[("le", "+Inf")], histogram.count);
        self.sample(name, "_sum", &[], histogram.sum);
        self.sample(name, "_count", &[], histogram.count);
    }

    // Writing to a string cannot fail.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {PREFIX}{name} {}", escape(help));
        let _ = writeln!(self.text, "# TYPE {PREFIX}{name} {kind}");
    }

    /// Adds a sample. Rust and Prometheus format numbers alike; our values are never infinite.
    fn sample(&mut self, name: &str, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels = labels.iter().map(|(name, value)| {
            let value = escape(value).replace('"', "\\\"");
            format!("{name}=\"{value}\"")
        });
        let labels = labels.collect::<Vec<_>>().join(",");
        let labels = match labels.as_str() {
            "" => labels,
            _ => format!("{{{labels}}}"),
        };
        let _ = writeln!(self.text, "{PREFIX}{name}{suffix}{labels} {value}");
    }
}

/// The number of observations up to each of [`BOUNDS`].
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// The number of observations up to each bound, shorter ones included.
    pub buckets: [u64; BOUNDS.len()],
    /// The number of all observations.
    pub count: u64,
    /// Their sum in seconds.
    pub sum: f64,
}

impl Histogram {
    /// Adds an observation.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        for (bucket, bound) in self.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
        self.count += 1;
        self.sum += seconds;
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_help_its_kind_and_its_samples() {
        let mut page = Page::default();
        page.family(
            "up",
            "What it\nis \\ \"means\".",
            [
                (vec![("host", "hv-a"), ("zone", "a\"b\\c\nd")], 1.0),
                (vec![("host", "hv-b")], 0.25),
            ],
        );
        let none: [(&str, &str); 0] = [];
        page.family("moves_total", "Moves.", [(none, 3)]);
        page.gauge("time", "Time.", &[], 1_700_000_000.0);
        let mut histogram = Histogram::default();
        for milliseconds in [0, 50, 51, 7_000, 60_000, 60_001] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        page.histogram("took_seconds", "Took.", &histogram);
        let file = "src/report/exposition.txt";
        harvester_lab::expected::is_expected(file, &page.text, str::to_owned);
    }
}
