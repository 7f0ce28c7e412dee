// SPDX-License-Identifier: Apache-2.0
//! What the host says.

use harvester_node_agent::facts::host_metrics::HostMetrics;
use harvester_node_agent::wire::virtio::downward_metrics::MetricsAnswer;

use super::{BASE, pieces};
use crate::allocation::bounded;

/// The messages in an answer that arrives in these pieces; none if it is too large.
fn messages<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<Vec<u8>>> {
    let mut answer = MetricsAnswer::default();
    let mut taken = Vec::new();
    for piece in pieces {
        let mut piece = piece.iter().copied();
        while let Some(message) = answer.take(&mut piece).ok()? {
            taken.push(message);
        }
    }
    Some(taken)
}

/// However the channel's answer is cut, the same messages come out.
pub fn host_metrics(bytes: &[u8]) {
    let whole = messages([bytes]);
    assert_eq!(whole.is_none(), bytes.len() > 64 << 10, "the limit");
    for cut in [pieces(bytes), bytes.chunks(1).collect()] {
        assert_eq!(messages(cut), whole);
    }
    assert!(
        !whole
            .iter()
            .flatten()
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
            let said = &error.text;
            assert!(
                said.chars()
                    .all(harvester_node_agent::sys::escape::is_plain),
                "{said:?}"
            );
        }
    }
}
