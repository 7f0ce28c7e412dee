// SPDX-License-Identifier: Apache-2.0
//! The name of the host and the time in KubeVirt's downward metrics.
//!
//! The document has the format of vhostmd: `<metrics>` with a `<metric context="host">` for each value, which contains a `<name>`
//! and a `<value>`. KubeVirt's `HostName` is the name of the Harvester Node that runs this VM (`pkg/downwardmetrics/scraper.go`).

use roxmltree::{Document, Node, ParsingOptions};

use super::fact::Unavailable;
use super::fact::UnavailableKind::{Malformed, Refused, Unreachable};
use super::names::HostName;
use crate::sys::escape::one_line;

/// The maximum number of XML nodes in a document. KubeVirt's has about 200.
const NODES_MAX: u32 = 2048;

/// The maximum number of attributes in a document; KubeVirt's has 46. The parser compares all attributes of an element with each
/// other, so thousands of them would take too long.
const ATTRIBUTES_MAX: usize = 512;

/// The maximum length of external text in a message, in characters.
const SHOWN_MAX: usize = 120;

/// The metrics of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMetrics {
    /// The Harvester host that runs this VM.
    pub host: HostName,
    /// The time when the host wrote the metrics, by its own clock, in seconds since 1970.
    pub time: Option<i64>,
}

impl HostMetrics {
    /// Parses a document.
    ///
    /// # Errors
    ///
    /// Returns one escaped line if the document has another format or contains no name of a host. It is of the kind `Unreachable` if the host
    /// has no metrics at present.
    pub fn parse(document: &str) -> Result<Self, Unavailable> {
        let too_many = || Unavailable::new(Refused, "it has too many elements or attributes");
        if document.bytes().filter(|byte| *byte == b'=').count() > ATTRIBUTES_MAX {
            return Err(too_many());
        }
        let options = ParsingOptions {
            nodes_limit: NODES_MAX,
            // Without a document type, only the five predefined entities exist, so entity expansion is limited.
            allow_dtd: false,
            entity_resolver: None,
        };
        let parsed = Document::parse_with_options(document.trim(), options);
        let parsed = parsed.map_err(|error| match error {
            // It can define entities that expand without limit.
            roxmltree::Error::DtdDetected => {
                let problem = "it has a document type declaration, which is not allowed";
                Unavailable::new(Refused, problem)
            }
            roxmltree::Error::NodesLimitReached => too_many(),
            error => malformed(format!("not XML: {}", shown(&error.to_string()))),
        })?;
        let metrics = parsed.root_element();
        if !metrics.has_tag_name("metrics") {
            let name = shown(metrics.tag_name().name());
            let problem = format!("the document is `{name}`, not `metrics`");
            return Err(Unavailable::new(Refused, problem));
        }
        let missing = |problem| Unavailable::new(Unreachable, problem);
        if !metrics.children().any(|child| child.is_element()) {
            return Err(missing("the host has no metrics at the moment"));
        }
        let host = value(metrics, "HostName")?
            .ok_or_else(|| missing("the name of the host is missing in the metrics"))?;
        let host = HostName::parse(host.trim()).map_err(|_| {
            let host = shown(host.trim());
            malformed(format!("`{host}` is not a valid name of a host"))
        })?;
        let seconds = |time: String| {
            time.trim().parse().map_err(|_| {
                malformed(format!("`{}` is not a time in seconds", shown(time.trim())))
            })
        };
        let time = value(metrics, "Time")?.map(seconds).transpose()?;
        Ok(Self { host, time })
    }
}

fn malformed(problem: String) -> Unavailable {
    Unavailable::new(Malformed, problem)
}

fn shown(text: &str) -> String {
    one_line(text, SHOWN_MAX).into_owned()
}

/// Returns the value of the host's metric with this name. The VM has metrics with the same names.
fn value(metrics: Node<'_, '_>, name: &'static str) -> Result<Option<String>, Unavailable> {
    let mut found = metrics.children().filter(|metric| {
        metric.has_tag_name("metric")
            && metric.attribute("context") == Some("host")
            && text(*metric, "name").is_some_and(|text| text.trim() == name)
    });
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err(malformed(format!(
            "the metrics have a duplicate `{name}` of the host"
        ))),
        (metric, _) => Ok(metric.and_then(|metric| text(metric, "value"))),
    }
}

/// Returns the whole text of the only child with this name, so that a comment inside cannot truncate a name.
fn text(metric: Node<'_, '_>, child: &str) -> Option<String> {
    let mut children = metric.children().filter(|node| node.has_tag_name(child));
    let (node, None) = (children.next()?, children.next()) else {
        return None;
    };
    let parts = node.children().filter(|part| !part.is_comment());
    parts
        .map(|part| part.text().filter(|_| part.is_text()))
        .collect()
}

#[cfg(test)]
mod tests;
