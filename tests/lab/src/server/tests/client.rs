// SPDX-License-Identifier: Apache-2.0
//! A client that hides nothing: statuses, headers, bytes, ends of streams.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::Endpoint;
use crate::pki::Identity;
use crate::server::Server;
use crate::world::SOON;

pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

pub struct Client {
    url: String,
    authority_pem: String,
    identity: Option<Identity>,
    token: Option<String>,
    pub accept: String,
    pub user_agent: String,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn message(&self) -> String {
        self.json()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

impl Client {
    pub fn anonymous(endpoint: &Endpoint) -> Self {
        Self {
            url: endpoint.url.clone(),
            authority_pem: endpoint.authority_pem.clone(),
            identity: None,
            token: None,
            accept: "application/json".to_owned(),
            user_agent: "probe/1.0 (test)".to_owned(),
        }
    }

    pub fn admin(server: &Server) -> Self {
        let endpoint = server.endpoint();
        let admin = endpoint.admin.clone();
        Self::anonymous(&endpoint).with_identity(admin)
    }

    pub fn kubelet(server: &Server, node: &str) -> Self {
        Self::anonymous(&server.endpoint()).with_identity(server.kubelet_identity(node))
    }

    pub fn with_identity(self, identity: Identity) -> Self {
        Self {
            identity: Some(identity),
            ..self
        }
    }

    pub fn with_token(self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..self
        }
    }

    pub fn accepting(self, accept: &str) -> Self {
        Self {
            accept: accept.to_owned(),
            ..self
        }
    }

    pub fn called(self, user_agent: &str) -> Self {
        Self {
            user_agent: user_agent.to_owned(),
            ..self
        }
    }

    pub async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.authority_pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
                    .collect::<Result<Vec<_>, _>>()
                    .unwrap();
                let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let address = self.url.strip_prefix("https://").unwrap().to_owned();
        let socket = TcpStream::connect(address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, socket)
            .await?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    pub fn request(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &str,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1")
            .header("user-agent", &self.user_agent)
            .header("accept", &self.accept);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !body.is_empty() {
            request = request.header("content-type", media);
        }
        request.body(Full::from(body.to_owned())).unwrap()
    }

    /// One request on a connection of its own.
    pub async fn try_send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &str,
    ) -> Result<Answer, String> {
        let work = async {
            let mut sender = self.connect().await.map_err(|error| error.to_string())?;
            let request = self.request(method, path, media, body);
            let response = sender.send_request(request).await;
            read(response.map_err(|error| error.to_string())?).await
        };
        tokio::time::timeout(SOON, work)
            .await
            .map_err(|_| "timeout".to_owned())?
    }

    pub async fn send(&self, method: &str, path: &str, media: &str, body: &str) -> Answer {
        self.try_send(method, path, media, body).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "").await
    }

    pub async fn create(&self, path: &str, object: &Value) -> Answer {
        self.send("POST", path, "application/json", &object.to_string())
            .await
    }

    pub async fn merge(&self, path: &str, patch: &Value) -> Answer {
        self.send("PATCH", path, MERGE, &patch.to_string()).await
    }

    pub async fn watch(&self, path: &str) -> Lines {
        let mut sender = self.connect().await.unwrap();
        let request = self.request("GET", path, "", "");
        let response = sender.send_request(request).await.unwrap();
        Lines {
            status: response.status().as_u16(),
            body: response.into_body(),
            buffer: Vec::new(),
            _sender: sender,
        }
    }
}

pub async fn read(response: Response<Incoming>) -> Result<Answer, String> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?;
    Ok(Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: body.to_bytes(),
    })
}

/// The lines of a watch.
pub struct Lines {
    pub status: u16,
    body: Incoming,
    buffer: Vec<u8>,
    _sender: SendRequest<Full<Bytes>>,
}

/// What a watch says next.
#[derive(Debug, PartialEq)]
pub enum Line {
    Whole(String),
    /// The clean end, with what was left without a line end.
    End(String),
    Cut(String),
}

impl Lines {
    pub async fn next(&mut self) -> Line {
        tokio::time::timeout(SOON, self.next_patiently())
            .await
            .expect("the watch says something")
    }

    async fn next_patiently(&mut self) -> Line {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Line::Whole(String::from_utf8(line).unwrap().trim_end().to_owned());
            }
            match self.body.frame().await {
                None => {
                    return Line::End(String::from_utf8(std::mem::take(&mut self.buffer)).unwrap());
                }
                Some(Err(_)) => {
                    return Line::Cut(String::from_utf8(std::mem::take(&mut self.buffer)).unwrap());
                }
                Some(Ok(frame)) => self.buffer.extend(frame.into_data().unwrap()),
            }
        }
    }

    /// Type and object of the next event.
    pub async fn event(&mut self) -> (String, Value) {
        match self.next().await {
            Line::Whole(line) => {
                let mut event: Value = serde_json::from_str(&line).unwrap();
                let kind = event["type"].as_str().unwrap().to_owned();
                (kind, event["object"].take())
            }
            end => panic!("an event, not {end:?}"),
        }
    }

    /// Type and name of the next event.
    pub async fn brief(&mut self) -> String {
        let (kind, object) = self.event().await;
        format!(
            "{kind} {}",
            object["metadata"]["name"].as_str().unwrap_or("-")
        )
    }

    /// Whether nothing has come, for one that will never say anything more. What it would have said must have come elsewhere before.
    pub async fn is_quiet(&mut self) -> bool {
        let now = tokio::time::timeout(Duration::ZERO, self.next_patiently());
        now.await.is_err()
    }
}
