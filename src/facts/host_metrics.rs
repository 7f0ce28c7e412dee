// SPDX-License-Identifier: Apache-2.0
//! What the host says of itself through KubeVirt's downward metrics: its name, and when it said so.
//!
//! The document is vhostmd's: `<metrics>` with a `<metric context="host">` for each fact, which holds a `<name>` and a
//! `<value>`. KubeVirt's `HostName` is the name of the Harvester Node that runs us (`pkg/downwardmetrics/scraper.go`).

use roxmltree::{Document, Node, ParsingOptions};
use serde::Serialize;

use super::names::HostName;
use crate::sys::escape::one_line;

/// Nodes of a document. KubeVirt's has about 200.
const NODES_MAX: u32 = 2048;

/// Attributes of a document, of which KubeVirt's has 46. The parser compares all attributes of an element with each other,
/// so thousands of them would hold us up.
const ATTRIBUTES_MAX: usize = 512;

/// Characters of foreign text in a message.
const SHOWN_MAX: usize = 120;

/// Which device brought the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// The virtio-serial port.
    Channel,
    /// The small disk.
    Disk,
}

/// What the host says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostMetrics {
    /// The Harvester host that runs us.
    pub host: HostName,
    /// When the host wrote this, by its own clock, in seconds since 1970.
    pub time: Option<i64>,
    /// Which device brought it.
    pub via: Via,
}

/// Why a document says nothing about the host. Each is one harmless line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    /// The document is not well-formed, or refers to an entity that XML itself does not define.
    #[error("not XML: {0}")]
    NotXml(String),
    /// A document type is refused unread: it can define entities that grow without end.
    #[error("it has a document type declaration, which is not allowed")]
    Dtd,
    /// More nodes or attributes than metrics have.
    #[error("it has too many elements or attributes")]
    TooMany,
    /// XML of another kind.
    #[error("the document is `{0}`, not `metrics`")]
    NotMetrics(String),
    /// The host could not collect them, which passes.
    #[error("the host has no metrics at the moment")]
    NoMetrics,
    /// Metrics of the VM alone: the host could not collect its own, which passes.
    #[error("the name of the host is missing in the metrics")]
    NoHostName,
    /// Something that is said once is said twice.
    #[error("the metrics have a duplicate `{0}` of the host")]
    Twice(&'static str),
    /// A host name that no Node can have.
    #[error("`{0}` is not a valid name of a host")]
    IllegalHostName(String),
    /// A time that is not a number of seconds.
    #[error("`{0}` is not a time in seconds")]
    IllegalTime(String),
}

impl MetricsError {
    /// Whether the host says that it has nothing to say now: what it said last still stands.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::NoMetrics | Self::NoHostName)
    }
}

impl HostMetrics {
    /// Reads a document that came by `via`.
    ///
    /// # Errors
    ///
    /// When it is no such document, or names no host.
    pub fn parse(document: &str, via: Via) -> Result<Self, MetricsError> {
        if document.bytes().filter(|byte| *byte == b'=').count() > ATTRIBUTES_MAX {
            return Err(MetricsError::TooMany);
        }
        let options = ParsingOptions {
            nodes_limit: NODES_MAX,
            // Without a document type there are no entities but the five of XML, and so no bombs.
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
        Ok(Self { host, time, via })
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

/// The value of the host's metric with this name. The VM has metrics of the same names.
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

/// The text of the one child with this name: all of it, so that a comment in it cannot cut a name short.
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
