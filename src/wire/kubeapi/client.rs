// SPDX-License-Identifier: Apache-2.0
//! The client and its requests.

use std::fmt;
use std::sync::{Arc, PoisonError};

use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::{Error, Kind, Target};
use super::http::{Call, Tally, Timeouts, Transport};
use super::object::ObjectPath;
use super::response::MAXIMUM_OBJECT;
use super::tls::ServerShown;
use super::types::{
    AccessReview, AccessReviewObject, JSON, MAXIMUM_ITEMS, METADATA, METADATA_LIST, Page,
    PartialObjectMetadata, ResourceAttributes,
};
use super::watch::{self, Watch, WatchRequest};
use crate::access::Credential;
use crate::wire::backoff::Backoff;

/// The number of objects requested in one page of a list. A VMI takes about 25 kB, so a page easily fits in [`MAXIMUM_PAGE`].
const PAGE: usize = 200;
/// The fraction of the objects that are requested again if a page is too large.
const PAGE_FRACTION: usize = 8;
/// The maximum size of a list in bytes, all pages together.
pub const MAXIMUM_LIST: usize = 32 * 1024 * 1024;
/// The maximum size in bytes of one page, which is in memory as a whole.
pub(super) const MAXIMUM_PAGE: usize = 8 * 1024 * 1024;
/// The maximum number of pages of a list: a server may return fewer objects than requested, but not empty pages indefinitely.
const MAXIMUM_PAGES: usize = 200;
/// The unit of [`MAXIMUM_OBJECT`] in messages.
const OBJECT_IN_BYTES: &str = "bytes in the object";
/// The collection in which a `SelfSubjectAccessReview` is created. It does not store them, so they have no names.
const ACCESS_REVIEWS: ObjectPath = ObjectPath::all(
    "/apis/authorization.k8s.io/v1",
    "selfsubjectaccessreviews",
    None,
);
/// The name of the agent in `managedFields`.
const FIELD_MANAGER: &str = "harvester-node-agent";

/// A client of one API server, cheap to clone. All clones share one connection for requests, used by one request at a time, and
/// one for a watch.
///
/// Dropping a request cancels it and closes its connection; the next request opens another one.
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Client({})", self.server())
    }
}

impl Client {
    /// Creates a client whose requests are not counted.
    #[cfg(test)]
    pub(crate) fn new(credential: &Credential, timeouts: Timeouts) -> Result<Self, Error> {
        Self::counting(credential, timeouts, Tally::default(), Backoff::default())
    }

    /// Creates a client for the credential's server, whose requests are counted in `tally` and wait for `backoff`. Does not connect yet.
    pub fn counting(
        credential: &Credential,
        timeouts: Timeouts,
        tally: Tally,
        backoff: Backoff,
    ) -> Result<Self, Error> {
        let transport = Arc::new(Transport::new(credential, timeouts, tally, backoff)?);
        Ok(Self { transport })
    }

    /// Returns the backoff of requests after a failure.
    #[must_use]
    pub fn backoff(&self) -> &Backoff {
        &self.transport.backoff
    }

    /// Returns the API server, for messages.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.transport.server
    }

    /// Returns what the server has shown of itself so far.
    #[must_use]
    pub fn server_shown(&self) -> ServerShown {
        let shown = self.transport.shown.lock();
        shown.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the current state of one object.
    pub async fn get<T: DeserializeOwned>(&self, path: &ObjectPath) -> Result<T, Error> {
        self.object(&Call::read("get", path, JSON)).await
    }

    /// Reads the current state of one object that any user may have written. One that cannot be parsed is the inner error, and no
    /// failure of the API: no other request backs off because of it.
    pub async fn get_foreign<T: DeserializeOwned>(
        &self,
        path: &ObjectPath,
    ) -> Result<Result<T, Error>, Error> {
        self.parsed(&Call::read("get", path, JSON), Ok).await
    }

    /// Reads the current metadata of one object.
    pub async fn get_metadata(&self, path: &ObjectPath) -> Result<PartialObjectMetadata, Error> {
        self.object(&Call::read("get", path, METADATA)).await
    }

    /// Reads all objects that the selectors match, and keeps what `keep` returns of each. An unreadable object is
    /// skipped: a user who may write one object of a collection must not make all others unreadable.
    pub async fn list<T: DeserializeOwned>(
        &self,
        path: &ObjectPath,
        selectors: &[Selector],
        mut keep: impl FnMut(T) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        let mut take = |item: &[u8]| {
            let item = serde_json::from_slice::<T>(item).ok();
            items.extend(item.and_then(&mut keep));
        };
        self.pages(path, selectors, JSON, &mut take).await?;
        Ok(items)
    }

    /// Reads the metadata of all objects, of which `T` keeps as little as possible. An unreadable object is skipped.
    pub async fn list_metadata<T: DeserializeOwned>(
        &self,
        path: &ObjectPath,
    ) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        let mut take = |item: &[u8]| items.extend(serde_json::from_slice::<T>(item));
        self.pages(path, &[], METADATA_LIST, &mut take).await?;
        Ok(items)
    }

    /// Reads all pages of a list. `take` gets the text of each object, so that never more than one parsed object is in memory,
    /// in addition to the text of its page.
    async fn pages(
        &self,
        path: &ObjectPath,
        selectors: &[Selector],
        accept: &'static str,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Error> {
        let mut count: usize = 0;
        let mut left = MAXIMUM_LIST;
        let mut token: Option<String> = None;
        let mut limit = PAGE;
        let target = self.transport.target("list", path);
        for _ in 0..MAXIMUM_PAGES {
            let mut call = Call::read("list", path, accept).with("limit", Some(limit));
            call.query.extend_from_slice(selectors);
            let call = call.with("continue", token.as_deref());
            // A list that cannot be used is no failure of the API: its objects can still be read one by one.
            let page = ("bytes in one page of the list", MAXIMUM_PAGE);
            let body = match self.send(&call, &target, page, Ok).await {
                // Anyone who may create an object can make it large.
                Err(error) if error.kind == Kind::TooLarge && limit > 1 => {
                    limit = limit.div_ceil(PAGE_FRACTION);
                    continue;
                }
                body => body?,
            };
            limit = PAGE.min(2 * limit);
            let too_large = || target.too_large("bytes in the list", MAXIMUM_LIST);
            left = left.checked_sub(body.len()).ok_or_else(too_large)?;
            let page: Page<'_> = self.transport.parse(&body, &target)?;
            if let Some(kind) = page.kind.filter(|kind| !path.is_of_list(kind, accept)) {
                let found = format!("a `{kind}`");
                return Err(self.transport.unexpected(path, &found, &target));
            }
            count = count.saturating_add(page.items.0.len());
            if count > MAXIMUM_ITEMS {
                return Err(target.too_large("objects in the list", MAXIMUM_ITEMS));
            }
            for item in &page.items.0 {
                let item = item.get().as_bytes();
                self.transport.expect(&call, item, &target)?;
                take(item);
            }
            let next = page.metadata.and_then(|metadata| metadata.continue_token);
            token = next.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(());
            }
        }
        Err(target.too_large("pages in the list", MAXIMUM_PAGES))
    }

    /// Patches one object and returns its new state.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &ObjectPath,
        kind: PatchKind,
        body: &Value,
    ) -> Result<T, Error> {
        let uid = body.pointer("/metadata/uid").and_then(Value::as_str);
        let mut path = path.clone();
        path.uid = uid.map(str::to_owned);
        let call = write_call("patch", Method::PATCH, &path, (kind.0, body));
        self.object(&call).await
    }

    /// Creates one object in the collection `path`.
    pub async fn create(&self, path: &ObjectPath, body: &Value) -> Result<(), Error> {
        let call = write_call("create", Method::POST, path, (JSON, body));
        // Not in turn, and without a result for the backoff: no other request waits for an Event or because of one.
        let _attempt = self.transport.attempt(None)?;
        let target = self.transport.target(call.verb, path);
        let response = self.transport.send(&call, &target).await?;
        // The write is done. The response is read only to keep the connection open, so it can no longer fail.
        let body = self
            .transport
            .body(response, &target, OBJECT_IN_BYTES, MAXIMUM_OBJECT);
        drop(body.await);
        Ok(())
    }

    /// Asks the API server with a `SelfSubjectAccessReview` whether a request is allowed. Every authenticated user may create one.
    pub async fn may(&self, attributes: &ResourceAttributes) -> Result<AccessReview, Error> {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        });
        let path = ACCESS_REVIEWS;
        let call = write_call("create", Method::POST, &path, (JSON, &body));
        let AccessReviewObject { status: mut review } = self.object(&call).await?;
        for text in [&mut review.reason, &mut review.evaluation_error] {
            let said = text.take().filter(|said| !said.is_empty());
            *text = said.map(|said| self.transport.describe(&said));
        }
        Ok(review)
    }

    /// Opens a watch. Two can be open at a time, so that one can replace the other without a gap.
    pub async fn watch<T: DeserializeOwned>(
        &self,
        request: &WatchRequest,
    ) -> Result<Watch<T>, Error> {
        let attempt = self.transport.attempt(None)?;
        attempt.end(watch::open(&self.transport, request).await)
    }

    async fn object<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, Error> {
        self.parsed(call, |object| object).await
    }

    /// Sends a request, and parses the object in the response. `take` gets the result of the parser.
    async fn parsed<T: DeserializeOwned, U>(
        &self,
        call: &Call<'_>,
        take: impl FnOnce(Result<T, Error>) -> Result<U, Error>,
    ) -> Result<U, Error> {
        let target = self.transport.target(call.verb, call.path);
        let object = (OBJECT_IN_BYTES, MAXIMUM_OBJECT);
        let sent = self.send(call, &target, object, |body| {
            let object = take(self.transport.parse(&body, &target))?;
            // After the parser, whose message for text that is not an object is more precise.
            self.transport.expect(call, &body, &target)?;
            Ok(object)
        });
        sent.await
    }

    /// Sends a request in its turn, and reads the body of the response. The result decides whether further requests back off.
    async fn send<T>(
        &self,
        call: &Call<'_>,
        target: &Target,
        (what, limit): (&'static str, usize),
        read: impl FnOnce(Vec<u8>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let attempt = self.transport.turn().await?;
        let outcome = async {
            let response = self.transport.send(call, target).await?;
            read(self.transport.body(response, target, what, limit).await?)
        };
        attempt.end(outcome.await)
    }
}

/// The method of merging a patch into the object, by its media type.
#[derive(Debug, Clone, Copy)]
pub struct PatchKind(&'static str);

impl PatchKind {
    /// RFC 7386: maps are merged, lists are replaced.
    pub const MERGE: Self = Self("application/merge-patch+json");
    /// As the schema of the kind defines: lists are merged by their keys. Not for custom resources.
    pub const STRATEGIC_MERGE: Self = Self("application/strategic-merge-patch+json");
}

/// `fieldSelector` or `labelSelector`, and which objects of a list match.
pub type Selector = (&'static str, String);

/// Returns a request that changes something. `body` is its media type and the object.
fn write_call<'a>(
    verb: &'static str,
    method: Method,
    path: &'a ObjectPath,
    body: (&'static str, &'a Value),
) -> Call<'a> {
    Call {
        method,
        body: Some(body),
        ..Call::read(verb, path, JSON).with("fieldManager", Some(FIELD_MANAGER))
    }
}
