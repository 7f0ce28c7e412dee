// SPDX-License-Identifier: Apache-2.0
//! One HTTP request: log, faults, authentication, authorization, dispatch, answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use serde_json::{Value, json};

use super::Shared;
use super::access::{Attributes, User};
use super::body::Body;
use super::log::RequestRecord;
use super::objects::Call;
use super::reply::{Reply, set, spoil};
use super::resource::{Kind, Query, ResourcePath, parse_path};
use super::status::{Failure, details};
use super::watch;
use super::wire::{Flow, Valve};
use crate::faults::{Fault, Seen};

/// The group that virt-api serves behind kube-apiserver.
const KUBEVIRT_SUBRESOURCES: &str = "subresources.kubevirt.io";

/// What a connection's TLS handshake said about the client.
#[derive(Debug, Clone)]
pub(crate) enum Certificate {
    Absent,
    /// Of an unknown authority, or not good now.
    Bad,
    Good(User),
}

/// What a request knows about its connection.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub certificate: Certificate,
    /// The valve above TLS.
    pub valve: Valve,
}

/// The head of a request, as texts.
struct Head {
    method: String,
    path: String,
    query: String,
    headers: HeaderMap,
}

impl Head {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// Answers one request.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    connection: Connection,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let at = Instant::now();
    set(&connection.valve, Flow::Normal);
    let (parts, body) = request.into_parts();
    let head = Head {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
    };
    let query = Query::parse(&head.query);
    let target = parse_path(&head.path);
    let verb = verb_of(&head.method, target.as_ref(), &query);
    let number = shared.log.begin(RequestRecord {
        at,
        user: String::new(),
        user_agent: head.header("user-agent").to_owned(),
        verb: verb.clone(),
        method: head.method.clone(),
        path: head.path.clone(),
        query: head.query.clone(),
        body: Value::Null,
        status: 0,
    });
    // A client that goes away in the middle of its body hears no answer.
    let body = body.collect().await.unwrap_or_default().to_bytes();
    if let Ok(json) = serde_json::from_slice(&body) {
        shared.log.amend(number, |record| record.body = json);
    }
    let faults = shared.faults.of_request(&Seen {
        method: &head.method,
        path: &head.path,
        query: &head.query,
        user_agent: head.header("user-agent"),
        verb: &verb,
    });
    let mut fault = None;
    for met in faults {
        match met {
            Fault::DelayHeaders(delay) => tokio::time::sleep(delay).await,
            Fault::NeverAnswer => std::future::pending().await,
            other => fault = Some(other),
        }
    }
    let mut reply = if let Some(Fault::Answer(answer)) = &fault {
        Reply::of_answer(answer)
    } else {
        let exchange = Exchange {
            shared: &shared,
            head: &head,
            query,
            target,
            verb,
            number,
            body,
        };
        exchange
            .answer(&connection.certificate)
            .unwrap_or_else(|failure| Reply::of_failure(&failure))
    };
    if let Some(fault) = fault {
        spoil(&mut reply, fault, &connection.valve);
    }
    shared
        .log
        .amend(number, |record| record.status = reply.status);
    Ok(reply.into_response())
}

fn verb_of(method: &str, target: Option<&ResourcePath>, query: &Query) -> String {
    let is_one = target.map(|path| path.name.is_some());
    let verb = match (method, is_one) {
        ("GET" | "HEAD", Some(true)) => "get",
        ("GET" | "HEAD", Some(false)) if query.is_set("watch") => "watch",
        ("GET" | "HEAD", Some(false)) => "list",
        ("POST", Some(_)) => "create",
        ("PUT", Some(_)) => "update",
        ("PATCH", Some(_)) => "patch",
        ("DELETE", Some(true)) => "delete",
        _ => return method.to_lowercase(),
    };
    verb.to_owned()
}

/// A request whose body has been read.
struct Exchange<'a> {
    shared: &'a Arc<Shared>,
    head: &'a Head,
    query: Query,
    target: Option<ResourcePath>,
    verb: String,
    number: usize,
    body: Bytes,
}

impl Exchange<'_> {
    fn answer(mut self, certificate: &Certificate) -> Result<Reply, Failure> {
        let user = self.authenticate(certificate)?;
        self.shared
            .log
            .amend(self.number, |record| record.user.clone_from(&user.name));
        let Some(path) = self.target.take() else {
            return self.answer_path();
        };
        let attributes = self.attributes(&path);
        self.shared
            .authorize(&user, &attributes)
            .map_err(|reason| {
                let message = attributes.describe_refusal(&user, &reason);
                let Attributes {
                    plural,
                    group,
                    name,
                    ..
                } = &attributes;
                let details = details(plural, group, name);
                Failure::new(403, "Forbidden", &message, details)
            })?;
        if path.plural == "selfsubjectaccessreviews" {
            return self.review(&user);
        }
        let is_kubevirt = path.group == KUBEVIRT_SUBRESOURCES && path.plural == "version";
        if is_kubevirt && self.shared.is_harvester {
            return Ok(Reply::of_json(200, &json!({"gitVersion": "v1.5.2"})));
        }
        self.dispatch(path)
    }

    fn authenticate(&self, certificate: &Certificate) -> Result<User, Failure> {
        if let Certificate::Good(user) = certificate {
            return Ok(user.clone().authenticated());
        }
        let token = self.head.header("authorization").strip_prefix("Bearer ");
        match token {
            Some(token) => {
                let user = self.shared.user_of_token(token.trim());
                user.map(User::authenticated)
                    .ok_or_else(Failure::unauthorized)
            }
            None if matches!(certificate, Certificate::Bad) => Err(Failure::unauthorized()),
            None => Ok(User::anonymous()),
        }
    }

    fn attributes(&self, path: &ResourcePath) -> Attributes {
        let selected = |field: &str| {
            let mut terms = self.query.selector("fieldSelector").into_iter();
            let found = terms.find(|(path, _)| *path == field);
            found.map(|(_, wanted)| wanted.to_owned())
        };
        let own = |text: &Option<String>| text.clone().unwrap_or_default();
        Attributes {
            verb: self.verb.clone(),
            group: path.group.clone(),
            plural: path.plural.clone(),
            subresource: own(&path.subresource),
            namespace: own(&path.namespace),
            name: own(&path.name.clone().or_else(|| selected("metadata.name"))),
            pod_node: selected("spec.nodeName"),
        }
    }

    /// What is no resource may be read by everybody.
    fn answer_path(&self) -> Result<Reply, Failure> {
        match self.head.path.as_str() {
            "/healthz" | "/livez" | "/readyz" => {
                Ok(Reply::of_bytes(200, "text/plain; charset=utf-8", "ok"))
            }
            "/version" => {
                let version = match self.shared.is_harvester {
                    true => "v1.33.5+rke2r1",
                    false => "v1.34.2+rke2r1",
                };
                Ok(Reply::of_json(200, &json!({"gitVersion": version})))
            }
            _ => Err(Failure::no_such_path()),
        }
    }

    fn review(&self, user: &User) -> Result<Reply, Failure> {
        let mut review: Value = serde_json::from_slice(&self.body)
            .map_err(|error| Failure::bad_request(&error.to_string()))?;
        let asked = &review["spec"]["resourceAttributes"];
        let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
        let attributes = Attributes {
            verb: text("verb"),
            group: text("group"),
            plural: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            pod_node: None,
        };
        review["status"] = match self.shared.authorize(user, &attributes) {
            Ok(()) => json!({"allowed": true}),
            Err(reason) if reason.is_empty() => json!({"allowed": false}),
            Err(reason) => json!({"allowed": false, "reason": reason}),
        };
        Ok(Reply::of_json(201, &review))
    }

    fn dispatch(self, path: ResourcePath) -> Result<Reply, Failure> {
        let kinds = self.shared.kinds();
        let of_group =
            kinds.filter(|kind| kind.group == path.group && kind.version == path.version);
        let of_group: Vec<Kind> = of_group.collect();
        let kind = of_group.iter().find(|kind| kind.plural == path.plural);
        let kind = match (kind, of_group.is_empty()) {
            (Some(kind), _) => *kind,
            (None, false) => return Err(Failure::no_such_resource()),
            // Groups that no server serves answer with a plain page.
            (None, true) => return Err(Failure::no_such_path()),
        };
        let is_metadata = self
            .head
            .header("accept")
            .contains("as=PartialObjectMetadata");
        let call = Call {
            shared: self.shared,
            kind,
            path,
            query: self.query,
            user_agent: self.head.header("user-agent"),
            content_type: self.head.header("content-type"),
            raw_path: &self.head.path,
            raw_query: &self.head.query,
            body: &self.body,
        };
        let answer = match self.verb.as_str() {
            "get" => call.get()?,
            "list" => call.list(),
            "watch" => return Ok(Reply::of_stream(watch::start(&call, is_metadata))),
            "create" => return Ok(Reply::of_json(201, &call.create()?)),
            "update" => call.update()?,
            "patch" => call.patch()?,
            "delete" => call.delete()?,
            _ => return Err(Failure::method_not_allowed()),
        };
        let answer = match (is_metadata, answer["items"].as_array()) {
            (false, _) => answer,
            (true, None) => metadata_of(&answer),
            (true, Some(items)) => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": META_VERSION, "metadata": answer["metadata"],
                "items": items.iter().map(metadata_of).collect::<Value>(),
            }),
        };
        Ok(Reply::of_json(200, &answer))
    }
}

const META_VERSION: &str = "meta.k8s.io/v1";

/// What is shown of an object to those who ask for its metadata alone.
pub(crate) fn metadata_of(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": META_VERSION, "metadata": object["metadata"],
    })
}
