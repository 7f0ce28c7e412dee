// SPDX-License-Identifier: Apache-2.0
//! The HTTP client for a Kubernetes API server: a thin typed layer on `reqwest` and `rustls`. It has no label keys, no findings
//! and no policy.
//!
//! The server is not trusted: every response has a limit on time, size and depth; redirects, compression and proxies of the
//! environment are rejected; its text in messages is escaped and truncated. Nothing is retried here: the [`Kind`] of an [`Error`]
//! defines how to handle it.
//!
//! A request names its object by an [`ObjectPath`], from which its URL, the comparison of the response with the requested object and
//! the text of its errors are derived. To add a request: write a method of [`Client`] in `client.rs` that builds an `http::Call`; it
//! has the same limits, timeouts and errors.

mod age;
mod client;
mod error;
mod http;
pub mod lines;
mod object;
mod response;
#[cfg(test)]
pub(crate) mod testing;
mod tls;
mod types;
mod watch;

pub use crate::sys::document::json::{MAXIMUM_DEPTH, StringMap};
pub use age::age;
pub use client::{Client, MAXIMUM_LIST, PatchKind, Selector};
pub use error::{Error, Kind, describe};
pub use http::{Tally, Timeouts};
pub use lines::MAXIMUM_LINE;
pub use object::{INSTANCES, NAMESPACES, NODES, ObjectName, ObjectPath, PODS, VIRTUAL_MACHINES};
pub use tls::ServerShown;
pub use types::{
    AccessReview, ApiStatus, MAXIMUM_ITEMS, ObjectMeta, PartialObjectMetadata, ResourceAttributes,
};
pub use watch::{LONGEST_SILENCE, STREAM_TIME, Watch, WatchEvent, WatchRequest};

#[cfg(test)]
mod tests;
