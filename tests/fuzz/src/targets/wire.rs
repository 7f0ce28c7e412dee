// SPDX-License-Identifier: Apache-2.0
//! The wire: watches, objects, netlink, the operator channel, requests for metrics.

use std::collections::BTreeMap;

use harvester_node_agent::commands::doctor::objects::Pod;
use harvester_node_agent::facts::node::Node;
use harvester_node_agent::facts::topology::{IllegalValue, REGION, ZONE};
use harvester_node_agent::facts::vmi::Vmi;
use harvester_node_agent::observe::host_labels::{ConfigMap, LauncherPod};
use harvester_node_agent::report::endpoint;
use harvester_node_agent::triggers::operator_channel::{Input, REQUEST_MAX, reply};
use harvester_node_agent::wire::kubeapi::lines::Lines;
use harvester_node_agent::wire::kubeapi::{ApiStatus, PartialObjectMetadata, describe};
use harvester_node_agent::wire::netlink::message::{Link, Message, messages};
use hyper::Request as HttpRequest;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkInfo};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{BASE, pieces};
use crate::allocation::{bounded, peak};

/// The lines of a stream that arrives in these pieces, and whether the last one is whole; none if one is too long.
fn lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<(Vec<Vec<u8>>, bool)> {
    let mut lines = Lines::default();
    let mut taken = Vec::new();
    for piece in pieces {
        lines.push(piece);
        while let Some(line) = lines.next_line().ok()? {
            taken.push(line);
        }
    }
    Some((taken, lines.is_empty()))
}

/// However a stream is cut, the same lines come out of it.
pub fn watch_stream(bytes: &[u8]) {
    let (whole, is_done) = bounded(bytes, BASE + 100 * bytes.len(), || lines([bytes])).unwrap();
    for cut in [pieces(bytes), bytes.chunks(1).collect()] {
        assert_eq!(lines(cut).unwrap(), (whole.clone(), is_done));
    }
    let expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let (last, expected) = expected.split_last().unwrap();
    let expected: Vec<&[u8]> = expected
        .iter()
        .copied()
        .filter(|line| !line.trim_ascii().is_empty())
        .collect();
    assert_eq!(
        (whole, is_done),
        (
            expected.iter().map(|line| line.to_vec()).collect(),
            last.trim_ascii().is_empty()
        )
    );
}

/// An object that is read costs little, says what the text says, and an error of it is one harmless line.
pub fn api_objects(bytes: &[u8]) {
    // What nothing reads is not checked, such as half of a surrogate pair.
    let value: Option<Value> = serde_json::from_slice(bytes).ok();
    let of = |key: &str| value.as_ref()?.pointer(key).cloned();
    if let Some(node) = read::<Node>(bytes).filter(|_| value.is_some()) {
        assert_eq!(of("/metadata/name"), Some(json!(node.name.as_str())));
        assert_eq!(of("/metadata/uid"), Some(json!(node.uid)));
        if !node.labels.is_empty() {
            assert_eq!(of("/metadata/labels"), Some(json!(node.labels)));
        }
        if !node.annotations.is_empty() {
            assert_eq!(of("/metadata/annotations"), Some(json!(node.annotations)));
        }
    }
    if let Some(vmi) = read::<Vmi>(bytes).filter(|_| value.is_some()) {
        assert_eq!(of("/metadata/name"), Some(json!(vmi.name.as_str())));
        if let Some(host) = &vmi.host {
            assert_eq!(of("/status/nodeName"), Some(json!(host.as_str())));
        }
        for key in [REGION, ZONE] {
            let Some(value) = vmi.annotations.get(key) else {
                continue;
            };
            let illegal = |illegal: &IllegalValue| illegal.value.clone();
            let text = value.as_ref().map_or_else(illegal, ToString::to_string);
            // A long value is cut. An array of the values is read like the map; no API server sends one.
            let annotations = of("/metadata/annotations").unwrap();
            if annotations.is_object() && !text.ends_with('…') {
                assert_eq!(annotations.get(key), Some(&json!(text)));
            }
        }
    }
    let _ = small::<Pod>(bytes);
    let _ = small::<LauncherPod>(bytes);
    let _ = small::<ConfigMap>(bytes);
    read::<PartialObjectMetadata>(bytes);
    if let Some(status) = read::<ApiStatus>(bytes)
        && let Some(code) = status.code.filter(|_| value.is_some())
    {
        assert_eq!(of("/code"), Some(json!(code)));
    }
}

/// Parses an object, which may hold twelve bytes for each byte of its text: an entry of a map takes up to 95 bytes, and is at least eight
/// bytes long in a map with so many that it counts, since few keys have less than two bytes.
fn small<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    bounded(bytes, BASE + 4 * bytes.len(), || {
        serde_json::from_slice(bytes)
    })
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match small(bytes) {
        Ok(object) => Some(object),
        Err(error) => {
            let said = describe(&error.to_string());
            assert!(
                said.chars()
                    .all(harvester_node_agent::sys::escape::is_plain),
                "{said:?}"
            );
            None
        }
    }
}

/// Links are read as `netlink-packet-route` reads them.
pub fn netlink(bytes: &[u8]) {
    let read: Vec<_> = bounded(bytes, BASE + 200 * bytes.len() / 16, || {
        messages(bytes).collect()
    });
    assert!(
        read.len() <= bytes.len() / 16 + 1,
        "more messages than there is room for"
    );
    let is_broken = read.iter().position(Result::is_err);
    assert!(
        is_broken.is_none_or(|at| at + 1 == read.len()),
        "read on behind a broken message"
    );
    let Ok(theirs) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) else {
        return;
    };
    if let (
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(theirs)),
        Some(Ok(Message::Link(ours))),
    ) = (theirs.payload, read.first())
    {
        compare(ours, &theirs.attributes);
    }
}

fn compare(ours: &Link, attributes: &[LinkAttribute]) {
    for attribute in attributes {
        match attribute {
            // Of an attribute that comes twice, the last one counts; both then have the same kind of text.
            LinkAttribute::IfName(name) if is_once(attributes, attribute) => {
                assert_eq!(ours.name, terminated(name), "name")
            }
            LinkAttribute::PermAddress(address)
                if is_once(attributes, attribute) && address.len() == 6 =>
            {
                let text: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
                let read = ours.address.as_ref().map(ToString::to_string);
                assert!(
                    read.is_none_or(|read| read == text.join(":")),
                    "{:?} and {address:?}",
                    ours.address
                );
            }
            LinkAttribute::LinkInfo(infos) if is_once(attributes, attribute) => {
                let kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(terminated(&kind.to_string()).to_owned()),
                    _ => None,
                });
                assert_eq!(ours.kind, kind, "kind");
            }
            _ => {}
        }
    }
}

/// The text that the kernel means (`nla_strscpy`): that before the first zero. The library keeps zeros within.
fn terminated(text: &str) -> &str {
    text.split('\0').next().unwrap()
}

fn is_once(attributes: &[LinkAttribute], attribute: &LinkAttribute) -> bool {
    let kind = std::mem::discriminant(attribute);
    attributes
        .iter()
        .filter(|other| std::mem::discriminant(*other) == kind)
        .count()
        == 1
}

/// Each request has one line for an answer, and little is kept.
pub fn operator_channel(bytes: &[u8]) {
    let mut input = Input::default();
    let (_, held) = peak(|| {
        for byte in bytes.iter().chain(b"\n") {
            if let Some(line) = input.push(*byte) {
                let mut is_request = false;
                let reply = reply(&line, |_| {
                    is_request = true;
                    Ok(json!({}))
                });
                answered(is_request, &reply);
            }
        }
    });
    assert!(held <= 8 * REQUEST_MAX, "holds {held} bytes");
}

fn answered(is_request: bool, reply: &[u8]) {
    let line = reply.strip_suffix(b"\n").unwrap();
    assert!(!line.contains(&b'\n'), "more than a line");
    // An `id` is repeated as it is, also a number that is too large.
    let reply: BTreeMap<String, &RawValue> = serde_json::from_slice(line).unwrap();
    assert_eq!(reply.contains_key("return"), is_request);
    assert_ne!(reply.contains_key("return"), reply.contains_key("error"));
}

/// The status and the text of the answer to a request for metrics; none for an invalid request.
fn answer(method: &str, uri: &str, page: &str) -> Option<(u16, String)> {
    let request = HttpRequest::builder()
        .method(method)
        .uri(uri)
        .body(())
        .ok()?;
    let answer = endpoint::response(&request, page);
    Some((answer.status().as_u16(), answer.into_body()))
}

/// Metrics are told to whom asks for them in the one way, and only then.
pub fn http_request(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (method, uri) = text.split_once(' ').unwrap_or(("GET", text));
    let page = "up 1\n";
    let Some((status, said)) = bounded(bytes, BASE, || answer(method, uri, page)) else {
        return;
    };
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let is_path = path == "/metrics" || path.ends_with("/metrics");
    match status {
        200 => assert!(
            is_path && ["GET", "HEAD"].contains(&method),
            "{method} {uri}"
        ),
        404 => assert_ne!(path, "/metrics"),
        405 => assert!(
            is_path && !["GET", "HEAD"].contains(&method),
            "{method} {uri}"
        ),
        other => panic!("status {other}"),
    }
    assert_eq!(said == page, status == 200);
    assert!(!said.contains(uri) || uri.len() < 9, "{said}");
}
