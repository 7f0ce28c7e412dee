// SPDX-License-Identifier: Apache-2.0
//! One HTTP request: log, faults, authentication, authorization, dispatch, answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use serde_json::{Value, json};

use super::Shared;
use super::access::{Attributes, User, may_read_path};
use super::body::Body;
use super::discovery::{find_kind, groups, resources};
use super::log::RequestRecord;
use super::negotiate::Form;
use super::objects::Call;
use super::reply::{Reply, set, spoil};
use super::resource::{Query, ResourcePath, Target, parse_path};
use super::selector::required_field;
use super::status::Failure;
use super::watch;
use super::wire::{Flow, Valve};
use crate::faults::{Fault, Seen};

/// The group that virt-api serves behind kube-apiserver.
const KUBEVIRT_SUBRESOURCES: &str = "subresources.kubevirt.io";

/// kube-apiserver's own limit.
const REQUEST_LIMIT: usize = 3 * 1024 * 1024;

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
    let verb = verb_of(&head.method, &target, &query);
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
    let body = Limited::new(body, REQUEST_LIMIT).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).ok();
    if let Some(json) = body
        .as_ref()
        .and_then(|body| serde_json::from_slice(body).ok())
    {
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
    let mut reply = match (&fault, body) {
        (Some(Fault::Answer(answer)), _) => Reply::of_answer(answer),
        (_, None) => {
            let message = format!("Request entity too large: limit is {REQUEST_LIMIT}");
            let failure = Failure::new(413, "RequestEntityTooLarge", &message, Value::Null);
            Reply::of_failure(&failure)
        }
        (_, Some(body)) => {
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
        }
    };
    if let Some(fault) = fault {
        spoil(&mut reply, fault, &connection.valve);
    }
    shared
        .log
        .amend(number, |record| record.status = reply.status);
    Ok(reply.into_response())
}

fn verb_of(method: &str, target: &Target, query: &Query) -> String {
    let Target::Resource(path) = target else {
        return method.to_lowercase();
    };
    let verb = match (method, &path.name) {
        ("GET" | "HEAD", Some(_)) => "get",
        ("GET" | "HEAD", None) if query.is_set("watch") => "watch",
        ("GET" | "HEAD", None) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", Some(_)) => "delete",
        ("DELETE", None) => "deletecollection",
        _ => return method.to_lowercase(),
    };
    verb.to_owned()
}

/// A request whose body has been read.
struct Exchange<'a> {
    shared: &'a Arc<Shared>,
    head: &'a Head,
    query: Query,
    target: Target,
    verb: String,
    number: usize,
    body: Bytes,
}

impl Exchange<'_> {
    fn answer(self, certificate: &Certificate) -> Result<Reply, Failure> {
        let user = self.authenticate(certificate)?;
        self.shared
            .log
            .amend(self.number, |record| record.user.clone_from(&user.name));
        let Target::Resource(path) = self.target.clone() else {
            return self.answer_path(&user);
        };
        let attributes = self.attributes(&path);
        self.shared
            .authorize(&user, &attributes)
            .map_err(|reason| {
                let message = attributes.describe_refusal(&user, &reason);
                let mut details = json!({"kind": attributes.plural});
                if !attributes.name.is_empty() {
                    details["name"] = json!(attributes.name);
                }
                if !attributes.group.is_empty() {
                    details["group"] = json!(attributes.group);
                }
                Failure::new(403, "Forbidden", &message, details)
            })?;
        let form = Form::of_accept(self.head.header("accept"))?;
        if path.group == "authorization.k8s.io" {
            return self.review(&user, &path);
        }
        let kubevirt = &self.shared.options.kubevirt_version;
        if let (KUBEVIRT_SUBRESOURCES, "version", Some(version)) =
            (path.group.as_str(), path.plural.as_str(), kubevirt)
        {
            return Ok(Reply::of_json(200, &Shared::version(version)));
        }
        self.dispatch(user, path, form)
    }

    fn authenticate(&self, certificate: &Certificate) -> Result<User, Failure> {
        if let Certificate::Good(user) = certificate {
            return Ok(user.clone().authenticated());
        }
        let header = self.head.header("authorization");
        let bearer = header
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match bearer.map(|(_, token)| token.trim()) {
            Some(token) if !token.is_empty() => {
                let user = self.shared.user_of_token(token);
                user.map(User::authenticated)
                    .ok_or_else(Failure::unauthorized)
            }
            _ if matches!(certificate, Certificate::Bad) || !self.shared.options.anonymous => {
                Err(Failure::unauthorized())
            }
            _ => Ok(User::anonymous()),
        }
    }

    fn attributes(&self, path: &ResourcePath) -> Attributes {
        let fields = self.query.get("fieldSelector").unwrap_or_default();
        let selects = matches!(self.verb.as_str(), "list" | "watch" | "deletecollection");
        let of_selector = |field| required_field(fields, field).filter(|_| selects);
        Attributes {
            verb: self.verb.clone(),
            group: path.group.clone(),
            plural: path.plural.clone(),
            subresource: path.subresource.clone().unwrap_or_default(),
            namespace: path.namespace.clone().unwrap_or_default(),
            name: path
                .name
                .clone()
                .or_else(|| of_selector("metadata.name"))
                .unwrap_or_default(),
            pod_node: of_selector("spec.nodeName"),
        }
    }

    fn answer_path(&self, user: &User) -> Result<Reply, Failure> {
        let path = self.head.path.as_str();
        if !may_read_path(user, path) {
            let message = format!(
                "forbidden: User {:?} cannot {} path {path:?}",
                user.name, self.verb
            );
            return Err(Failure::new(403, "Forbidden", &message, json!({})));
        }
        let kinds = self.shared.kinds();
        match path {
            "/healthz" | "/livez" | "/readyz" => {
                Ok(Reply::of_bytes(200, "text/plain; charset=utf-8", "ok"))
            }
            "/version" | "/version/" => {
                let version = Shared::version(&self.shared.options.version);
                Ok(Reply::of_json(200, &version))
            }
            "/api" => {
                let versions =
                    json!({"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"]});
                Ok(Reply::of_json(200, &versions))
            }
            "/apis" => Ok(Reply::of_json(200, &groups(&kinds))),
            _ => resources(&kinds, path)
                .map(|list| Reply::of_json(200, &list))
                .ok_or_else(Failure::no_such_path),
        }
    }

    fn review(&self, user: &User, path: &ResourcePath) -> Result<Reply, Failure> {
        if path.plural != "selfsubjectaccessreviews" || self.verb != "create" {
            return Err(Failure::no_such_resource());
        }
        let mut review: Value = serde_json::from_slice(&self.body)
            .map_err(|error| Failure::bad_request(&error.to_string()))?;
        let asked = &review["spec"]["resourceAttributes"];
        let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
        if !asked.is_object() {
            let message = ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: \"null\": exactly one of nonResourceAttributes or resourceAttributes must be specified";
            return Err(Failure::new(
                422,
                "Invalid",
                message,
                json!({"group": "authorization.k8s.io"}),
            ));
        }
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

    fn dispatch(self, user: User, path: ResourcePath, form: Form) -> Result<Reply, Failure> {
        let kind = find_kind(&self.shared.kinds(), &path)?;
        let call = Call {
            shared: self.shared,
            kind,
            path,
            query: self.query,
            user,
            user_agent: self.head.header("user-agent"),
            content_type: self.head.header("content-type"),
            raw_path: &self.head.path,
            raw_query: &self.head.query,
            body: &self.body,
        };
        let placed = call.path.namespace.is_some() || !call.kind.namespaced;
        let answer = match (self.verb.as_str(), &call.path.subresource) {
            ("get", _) => call.get()?,
            ("list", None) => call.list()?,
            ("watch", None) => {
                if form == Form::MetadataList {
                    let message = "you requested PartialObjectMetadataList, but the requested object is not a list";
                    return Err(Failure::new(406, "NotAcceptable", message, Value::Null));
                }
                return Ok(Reply::of_stream(watch::start(&call, form)?));
            }
            ("create", None) if call.path.name.is_none() && placed => {
                return Ok(Reply::of_json(201, &form.of_answer(call.create()?)?));
            }
            ("update", _) if call.path.name.is_some() => call.update()?,
            ("patch", _) if call.path.name.is_some() => call.patch()?,
            ("delete", None) => call.delete()?,
            _ => return Err(Failure::method_not_allowed()),
        };
        let answer = if answer["kind"] == "Status" {
            answer
        } else {
            form.of_answer(answer)?
        };
        Ok(Reply::of_json(200, &answer))
    }
}
