// SPDX-License-Identifier: Apache-2.0
//! Bodies made wrong.

/// `body` as a gzip stream. Stored, not deflated: a client that must refuse it, or unpack it, cannot tell.
pub(crate) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut chunks = body.chunks(0xffff).peekable();
    if chunks.peek().is_none() {
        out.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(chunk) = chunks.next() {
        let length = u16::try_from(chunk.len()).expect("a chunk is at most 0xffff bytes");
        out.push(u8::from(chunks.peek().is_none()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(chunk);
    }
    let crc = body.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1))
        })
    });
    out.extend((!crc).to_le_bytes());
    // The format counts modulo 2^32.
    out.extend((body.len() as u32).to_le_bytes());
    out
}

/// A JSON object text with a deeply nested field in front.
pub(crate) fn deepen(body: &str, depth: usize) -> String {
    let rest = body.trim_start().strip_prefix('{').unwrap_or(body);
    let comma = if rest.trim_start().starts_with('}') {
        ""
    } else {
        ","
    };
    format!(
        "{{\"deep\":{}{}{comma}{rest}",
        "[".repeat(depth),
        "]".repeat(depth)
    )
}

/// A JSON object text with the first key of its first labels (else of itself) repeated in front.
pub(crate) fn duplicate_key(body: &str) -> String {
    const LABELS: &str = "\"labels\":{";
    let at = body.find(LABELS).map_or(0, |at| at + LABELS.len());
    let at = if at == 0 {
        body.find('{').map_or(0, |at| at + 1)
    } else {
        at
    };
    let key: String = body[at..].split('"').nth(1).unwrap_or_default().to_owned();
    format!("{}\"{key}\":\"duplicate\",{}", &body[..at], &body[at..])
}
