// SPDX-License-Identifier: Apache-2.0
//! A watch: events as they come, one JSON line each.

use reqwest::Response;
use serde_json::Value;

use super::{ApiError, transport};

/// One event of a watch.
#[derive(Debug, Clone)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`.
    pub kind: String,
    /// The object as of the event.
    pub object: Value,
}

/// A running watch. Dropping it closes the connection.
#[derive(Debug)]
pub struct Watch {
    pub(super) response: Response,
    pub(super) buffer: Vec<u8>,
}

impl Watch {
    /// The next event; `None` when the server ended the watch.
    pub async fn next(&mut self) -> Option<Result<WatchEvent, ApiError>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(parse_event(&line));
            }
            match self.response.chunk().await {
                Ok(chunk) => self.buffer.extend_from_slice(&chunk?),
                Err(error) => return Some(Err(transport(error))),
            }
        }
    }
}

fn parse_event(line: &[u8]) -> Result<WatchEvent, ApiError> {
    let mut event: Value = serde_json::from_slice(line)
        .map_err(|error| ApiError::Transport(format!("a watch line is not JSON: {error}")))?;
    let kind = event["type"].as_str().unwrap_or_default().to_owned();
    let object = event["object"].take();
    if kind == "ERROR" {
        let code = object["code"].as_u64().unwrap_or(500);
        return Err(ApiError::from_status(
            u16::try_from(code).unwrap_or(500),
            object.to_string().as_bytes(),
        ));
    }
    Ok(WatchEvent { kind, object })
}
