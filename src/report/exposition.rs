// SPDX-License-Identifier: Apache-2.0
//! The text format of Prometheus, version 0.0.4.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::fmt::{Display, Write};

use super::counters::{BOUNDS, Histogram};

/// The beginning of each name.
const PREFIX: &str = "harvester_node_agent_";

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

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_family_has_its_help_its_kind_and_its_samples_each_on_a_line_of_its_own() {
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
        assert_eq!(
            page.text,
            "# HELP harvester_node_agent_up What it\\nis \\\\ \"means\".\n\
             # TYPE harvester_node_agent_up gauge\n\
             harvester_node_agent_up{host=\"hv-a\",zone=\"a\\\"b\\\\c\\nd\"} 1\n\
             harvester_node_agent_up{host=\"hv-b\"} 0.25\n\
             # HELP harvester_node_agent_moves_total Moves.\n\
             # TYPE harvester_node_agent_moves_total counter\n\
             harvester_node_agent_moves_total 3\n\
             # HELP harvester_node_agent_time Time.\n\
             # TYPE harvester_node_agent_time gauge\n\
             harvester_node_agent_time 1700000000\n"
        );
    }

    #[test]
    fn a_histogram_has_its_buckets_its_sum_and_its_count() {
        let (mut page, mut histogram) = (Page::default(), Histogram::default());
        histogram.observe(Duration::from_secs(20));
        page.histogram("took_seconds", "Took.", &histogram);
        let mut lines = page.text.lines().skip(1);
        let kind = "# TYPE harvester_node_agent_took_seconds histogram";
        assert_eq!(lines.next(), Some(kind));
        let last = [
            "harvester_node_agent_took_seconds_bucket{le=\"15\"} 0",
            "harvester_node_agent_took_seconds_bucket{le=\"30\"} 1",
            "harvester_node_agent_took_seconds_bucket{le=\"60\"} 1",
            "harvester_node_agent_took_seconds_bucket{le=\"+Inf\"} 1",
            "harvester_node_agent_took_seconds_sum 20",
            "harvester_node_agent_took_seconds_count 1",
        ];
        assert_eq!(lines.skip(BOUNDS.len() - 3).collect::<Vec<_>>(), last);
    }
}
