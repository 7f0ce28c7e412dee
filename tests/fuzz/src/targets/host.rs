// SPDX-License-Identifier: Apache-2.0
//! What the host says.

use harvester_node_agent::facts::host_metrics::HostMetrics;
use harvester_node_agent::fuzz;

use super::{BASE, Target, pieces};
use crate::allocation::bounded;

/// However the channel's answer is cut, the same messages come out.
pub(super) const HOST_METRICS: Target = Target {
    name: "host_metrics",
    run: |bytes| {
        let whole = fuzz::metrics_messages([bytes]).unwrap();
        for cut in [pieces(bytes), bytes.chunks(1).collect()] {
            assert_eq!(fuzz::metrics_messages(cut).unwrap(), whole);
        }
        assert!(
            !whole
                .iter()
                .any(|message| message.windows(2).any(|pair| pair == b"\n\n"))
        );
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        // A node of the parser's tree takes more than eight times `<a/>`.
        let read = bounded(bytes, BASE + 64 * bytes.len(), || HostMetrics::parse(text));
        match &read {
            Ok(metrics) => {
                assert!(text.contains("metrics") && metrics.host.as_str().len() <= 253);
                let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
                assert!(
                    metrics.host.as_str().bytes().all(is_of_name),
                    "{}",
                    metrics.host
                );
            }
            Err(error) => {
                let said = error.to_string();
                assert!(
                    said.chars()
                        .all(harvester_node_agent::sys::escape::is_plain),
                    "{said:?}"
                );
            }
        }
    },
    words: &[
        "<metrics>",
        "</metrics>",
        "<metric type=\"string\" context=\"host\">",
        "<metric context=\"vm\">",
        "</metric>",
        "<name>",
        "</name>",
        "<value>",
        "</value>",
        "HostName",
        "Time",
        "hv-a",
        "1795000000",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "&amp;",
        "&#10;",
        "&x;",
        "<!DOCTYPE a>",
        "\n\n",
        "<?xml version=\"1.0\"?>",
        "xmlns=\"a\"",
    ],
};
