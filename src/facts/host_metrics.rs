// SPDX-License-Identifier: Apache-2.0
//! The host name and the time in KubeVirt's downward metrics.
//!
//! The document has the format of vhostmd: `<metrics>` with a `<metric context="host">` for each value, which contains a `<name>`
//! and a `<value>`. KubeVirt's `HostName` is the name of the Harvester Node that runs this VM (`pkg/downwardmetrics/scraper.go`).

use roxmltree::{Document, Node, ParsingOptions};
use serde::Serialize;

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostMetrics {
    /// The Harvester host that runs this VM.
    pub host: HostName,
    /// The time when the host wrote the metrics, by its own clock, in seconds since 1970.
    pub time: Option<i64>,
}

/// The reason why a document has no host name. Each is formatted as one escaped line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    /// The document is not well-formed, or refers to an entity that XML does not define.
    #[error("not XML: {0}")]
    NotXml(String),
    /// The document has a document type. It is rejected without parsing, because it can define entities that expand without limit.
    #[error("it has a document type declaration, which is not allowed")]
    Dtd,
    /// The document has more nodes or attributes than metrics have.
    #[error("it has too many elements or attributes")]
    TooMany,
    /// The document is another kind of XML.
    #[error("the document is `{0}`, not `metrics`")]
    NotMetrics(String),
    /// The host could not collect the metrics, which is temporary.
    #[error("the host has no metrics at the moment")]
    NoMetrics,
    /// The document has only metrics of the VM. The host could not collect its own, which is temporary.
    #[error("the name of the host is missing in the metrics")]
    NoHostName,
    /// A value that must be unique exists twice.
    #[error("the metrics have a duplicate `{0}` of the host")]
    Twice(&'static str),
    /// The host name is not a valid name of a Node.
    #[error("`{0}` is not a valid name of a host")]
    IllegalHostName(String),
    /// The time is not a number of seconds.
    #[error("`{0}` is not a time in seconds")]
    IllegalTime(String),
}

impl MetricsError {
    /// Reports whether the host has no metrics at present. The previous metrics stay valid.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::NoMetrics | Self::NoHostName)
    }
}

impl HostMetrics {
    /// Parses a document.
    ///
    /// # Errors
    ///
    /// Returns an error if the document has another format or contains no host name.
    pub fn parse(document: &str) -> Result<Self, MetricsError> {
        if document.bytes().filter(|byte| *byte == b'=').count() > ATTRIBUTES_MAX {
            return Err(MetricsError::TooMany);
        }
        let options = ParsingOptions {
            nodes_limit: NODES_MAX,
            // Without a document type, only the five predefined entities exist, so entity expansion is limited.
            allow_dtd: false,
            entity_resolver: None,
        };
        let parsed = Document::parse_with_options(document.trim(), options).map_err(not_xml)?;
        let metrics = parsed.root_element();
        if !metrics.has_tag_name("metrics") {
            return Err(MetricsError::NotMetrics(shown(metrics.tag_name().name())));
        }
        if !metrics.children().any(|child| child.is_element()) {
            return Err(MetricsError::NoMetrics);
        }
        let host = value(metrics, "HostName")?.ok_or(MetricsError::NoHostName)?;
        let host = HostName::parse(host.trim())
            .map_err(|_| MetricsError::IllegalHostName(shown(host.trim())))?;
        let time = value(metrics, "Time")?
            .map(|time| {
                time.trim()
                    .parse()
                    .map_err(|_| MetricsError::IllegalTime(shown(time.trim())))
            })
            .transpose()?;
        Ok(Self { host, time })
    }
}

fn not_xml(error: roxmltree::Error) -> MetricsError {
    match error {
        roxmltree::Error::DtdDetected => MetricsError::Dtd,
        roxmltree::Error::NodesLimitReached => MetricsError::TooMany,
        error => MetricsError::NotXml(shown(&error.to_string())),
    }
}

fn shown(text: &str) -> String {
    one_line(text, SHOWN_MAX).into_owned()
}

/// Returns the value of the host's metric with this name. The VM has metrics with the same names.
fn value(metrics: Node<'_, '_>, name: &'static str) -> Result<Option<String>, MetricsError> {
    let mut found = metrics.children().filter(|metric| {
        metric.has_tag_name("metric")
            && metric.attribute("context") == Some("host")
            && text(*metric, "name").is_some_and(|text| text.trim() == name)
    });
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err(MetricsError::Twice(name)),
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
