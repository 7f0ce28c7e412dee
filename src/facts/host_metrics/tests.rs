// SPDX-License-Identifier: Apache-2.0
use harvester_lab::downward_metrics::document;

use super::*;

fn parse(document: &str) -> Result<HostMetrics, Unavailable> {
    HostMetrics::parse(document)
}

/// Returns a document with these metrics of the host.
fn metrics(metrics: &str) -> String {
    format!("<metrics>\n{metrics}</metrics>\n\n")
}

/// Returns one metric, with the value as written in the XML.
fn metric(context: &str, name: &str, value: &str) -> String {
    format!(
        "<metric type=\"string\" context=\"{context}\"><name>{name}</name><value>{value}</value></metric>\n"
    )
}

#[test]
fn kubevirts_own_document_names_host_and_time() {
    let found = parse(&document("harvester-node-2", 1_795_243_850)).unwrap();
    assert_eq!(found.host.as_str(), "harvester-node-2");
    assert_eq!(found.time, Some(1_795_243_850));
}

#[test]
fn a_host_name_is_understood_however_xml_may_write_it() {
    for value in [
        "hv-a",
        "\n  hv-a\n",
        "hv-a \r\n",
        "<![CDATA[hv-a]]>",
        "<![CDATA[hv]]>-<![CDATA[a]]>",
        "h&#118;&#x2d;a",
        "hv<!-- a comment cuts nothing short -->-a",
    ] {
        let found = parse(&metrics(&metric("host", "HostName", value)));
        let found = found.unwrap_or_else(|error| panic!("{value:?}: {}", error.text));
        assert_eq!(
            (found.host.as_str(), found.time),
            ("hv-a", None),
            "{value:?}"
        );
    }
}

#[test]
fn the_vms_metrics_of_the_same_names_are_not_the_hosts() {
    let vm = metric("vm", "HostName", "the-vm") + &metric("vm", "Time", "1");
    let host = metric("host", "HostName", "hv-a") + &metric("host", "Time", " 7\n");
    for text in [format!("{vm}{host}"), format!("{host}{vm}")] {
        let found = parse(&metrics(&text)).unwrap();
        assert_eq!((found.host.as_str(), found.time), ("hv-a", Some(7)));
    }
    let missing = "the name of the host is missing in the metrics";
    assert_eq!(
        parse(&metrics(&vm)),
        Err(Unavailable::new(Unreachable, missing))
    );
}

#[test]
fn what_the_host_cannot_collect_is_no_fault() {
    for text in [
        "<metrics><!-- host metrics not available --><!-- VM metrics not available --></metrics>\n\n",
        "<metrics></metrics>",
        "<metrics/>",
    ] {
        let missing = "the host has no metrics at the moment";
        assert_eq!(parse(text), Err(Unavailable::new(Unreachable, missing)));
    }
}

#[test]
fn invalid_host_metrics_are_rejected_with_a_one_line_error() {
    let host = |value: &str| metrics(&metric("host", "HostName", value));
    let bomb = "<!DOCTYPE metrics [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>";
    let deep = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
    let attributes = (0..600)
        .map(|index| format!(" a{index}=\"\""))
        .collect::<String>();
    for (what, text, part) in [
        ("empty", String::new(), "not XML"),
        ("blank lines", "\n\n".to_owned(), "not XML"),
        ("text", "INVALID REQUEST\n\n".to_owned(), "not XML"),
        ("half", "<metrics><metric>".to_owned(), "not XML"),
        (
            "a tail",
            "</value></metric></metrics>".to_owned(),
            "not XML",
        ),
        ("two documents", host("hv-a").repeat(2), "not XML"),
        (
            "entity bomb",
            format!("{bomb}{}", host("&b;")),
            "document type",
        ),
        (
            "external entity",
            format!("<!DOCTYPE m SYSTEM \"file:///etc/passwd\">{}", host("a")),
            "document type",
        ),
        ("unknown entity", host("&lol;"), "lol"),
        ("ESC", host("hv\u{1b}[31m-a"), "\\u{1b}"),
        ("ESC by reference", host("hv&#27;-a"), "not XML"),
        ("NUL by reference", host("hv&#0;-a"), "not XML"),
        ("right to left", host("hv\u{202e}-a"), "hv\\u{202e}-a"),
        ("line break", host("hv-a\nhv-b"), "hv-a\\nhv-b"),
        ("upper case", host("HV-A"), "HV-A"),
        ("a path", host("../../etc"), "../../etc"),
        ("nothing", host(""), "``"),
        ("too long", host(&"a".repeat(300)), "…"),
        ("a megabyte", host(&"a".repeat(1 << 20)), "…"),
        ("markup", host("<b>hv-a</b>"), "is missing"),
        (
            "two values",
            metrics(
                "<metric context=\"host\"><name>HostName</name><value>a</value><value>b</value></metric>",
            ),
            "is missing",
        ),
        (
            "two hosts",
            metrics(&metric("host", "HostName", "hv-a").repeat(2)),
            "duplicate `HostName`",
        ),
        (
            "no number",
            metrics(&(metric("host", "HostName", "a") + &metric("host", "Time", "soon\u{202e}"))),
            "soon\\u{202e}",
        ),
        (
            "other XML",
            "<html xmlns='http://www.w3.org/1999/xhtml'/>".to_owned(),
            "html",
        ),
        (
            "nested too deep",
            format!("<metrics>{}</metrics>", deep(20_000)),
            "too many elements",
        ),
        (
            "too many",
            format!("<metrics>{}</metrics>", "<a/>".repeat(20_000)),
            "too many elements",
        ),
        (
            "too many attributes",
            format!("<metrics{attributes}/>"),
            "attributes",
        ),
        (
            "a long name",
            format!("<{0}></{0}x>", "n".repeat(5_000)),
            "…",
        ),
    ] {
        let error = parse(&text).unwrap_err();
        let line = error.text;
        assert!(line.contains(part), "{what}: {line}");
        assert!(
            line.len() < 250 && !line.chars().any(char::is_control),
            "{what}: {line:?}"
        );
        assert_eq!(error.kind == Unreachable, part == "is missing", "{what}");
    }
}

#[test]
fn no_text_whatever_makes_it_panic() {
    let good = document("hv-a", 1_795_243_850);
    let pieces = [
        "<",
        ">",
        "</",
        "&",
        ";",
        "&#x",
        "<![CDATA[",
        "]]>",
        "<!--",
        "<?xml ",
        "=\"",
        "\u{0}",
        "é",
        "\n\n",
        "metric",
        "xmlns:",
    ];
    // A simple generator with a fixed seed (xorshift64): the same texts in each run.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = move |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).unwrap()
    };
    for _ in 0..5_000 {
        let mut text = good.clone();
        for _ in 0..=below(4) {
            let mut at = below(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match below(3) {
                0 => text.truncate(at),
                1 => text.insert_str(at, pieces[below(pieces.len())]),
                _ => drop(text.drain(..at)),
            }
        }
        if let Err(error) = parse(&text) {
            assert!(!error.text.chars().any(char::is_control), "{error:?}");
        }
    }
}
