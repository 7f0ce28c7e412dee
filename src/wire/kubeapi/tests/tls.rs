// SPDX-License-Identifier: Apache-2.0
//! Tests which certificates are trusted, and the messages about those that are not.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

use super::super::{Client, Error, Kind, ServerShown, Timeouts};
use super::server::{Server, Step, answer, json};
use super::{LONG, TOKEN, VERSION, is, printed};
use crate::access::{ClientCertificate, Credential};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    fn issue(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> ClientCertificate {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let chain = vec![params.signed_by(&key, &self.0).unwrap().der().clone()];
        ClientCertificate {
            chain,
            key: Zeroizing::new(PrivatePkcs8KeyDer::from(key.serialize_der()).into()),
        }
    }
}

/// Returns the TLS configuration of a test server: its own certificate, and the authority of the clients that it accepts.
fn config(own: ClientCertificate, clients: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder
        .with_single_cert(own.chain, own.key.clone_key())
        .unwrap()
}

async fn serve(own: ClientCertificate, clients: Option<&Authority>) -> Server {
    Server::with_tls(config(own, clients), json(200, "{}")).await
}

fn trusting(server: &Server, authority: &Authority) -> Credential {
    let mut credential = super::credential(&server.https());
    credential.certificate_authorities = vec![authority.der()];
    credential
}

async fn get(credential: &Credential) -> Result<Value, Error> {
    let client = Client::new(credential, LONG)?;
    client.get(&VERSION).await
}

/// Returns why no request was sent to an untrusted server.
async fn reason(server: &Server, credential: &Credential) -> String {
    reason_of(Kind::Tls, server, credential).await
}

/// Returns why no request was sent.
async fn reason_of(kind: Kind, server: &Server, credential: &Credential) -> String {
    let error = get(credential).await.unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert!(!printed(&error).contains(TOKEN));
    assert_eq!(
        server.requests().len(),
        0,
        "something was sent without a trusted connection"
    );
    let text = error.to_string();
    let (_, reason) = text.split_once(&format!("{}: ", server.https())).unwrap();
    reason.to_owned()
}

#[tokio::test]
async fn a_connection_that_the_server_cuts_is_told_without_the_words_of_the_library() {
    let authority = Authority::new("ours");
    let tls = config(authority.issue(&["127.0.0.1"], |_| {}), None);
    let cut = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}";
    let server = Server::with_tls(tls, vec![Step::Send(cut.to_vec()), Step::Close]).await;
    let error = get(&trusting(&server, &authority)).await.unwrap_err();
    let words = "connection interrupted: the server closed it";
    is(&error, Kind::Interrupted, words);
    assert!(!error.to_string().contains("docs.rs"), "{error}");
}

#[tokio::test]
async fn a_server_of_our_authority_is_believed() {
    let authority = Authority::new("ours");
    let server = serve(authority.issue(&["127.0.0.1"], |_| {}), None).await;
    let mut credential = trusting(&server, &authority);
    get(&credential).await.unwrap();
    assert_eq!(server.request().sni, None);
    // An unreadable certificate does not affect the others.
    credential
        .certificate_authorities
        .insert(0, CertificateDer::from(vec![1, 2, 3]));
    get(&credential).await.unwrap();
}

#[tokio::test]
async fn the_time_for_the_head_includes_the_time_for_connecting() {
    let authority = Authority::new("ours");
    let config = config(authority.issue(&["127.0.0.1"], |_| {}), None);
    let wait = std::time::Duration::from_secs(30);
    let server = Server::with_slow_tls(config, wait, json(200, "{}")).await;
    let timeouts = Timeouts {
        headers: std::time::Duration::from_millis(200),
        ..LONG
    };
    let client = Client::new(&trusting(&server, &authority), timeouts).unwrap();
    let error = client.get::<Value>(&VERSION).await.unwrap_err();
    is(
        &error,
        Kind::TimedOut,
        "reading the response headers timed out",
    );
}

#[tokio::test]
async fn an_unknown_authority_is_named_beside_the_known_one() {
    let (ours, theirs) = (
        Authority::new("rke2-server-ca"),
        Authority::new("dynamiclistener-ca\u{1b}[1m"),
    );
    let server = serve(theirs.issue(&["127.0.0.1"], |_| {}), None).await;
    let found = reason(&server, &trusting(&server, &ours)).await;
    let (issuer, trusted) = found.split_once(", the kubeconfig trusts only").unwrap();
    assert!(
        issuer.contains("dynamiclistener-ca") && trusted.contains("rke2-server-ca"),
        "{found}"
    );
    assert!(!found.contains(char::is_control), "{found}");
}

#[tokio::test]
async fn an_authority_of_the_same_name_with_another_key_is_unknown() {
    let (old, new) = (
        Authority::new("rke2-server-ca"),
        Authority::new("rke2-server-ca"),
    );
    let server = serve(new.issue(&["127.0.0.1"], |_| {}), None).await;
    let found = reason(&server, &trusting(&server, &old)).await;
    assert!(
        found.ends_with(", which has the same name but another key"),
        "{found}"
    );
}

#[test]
fn no_authority_is_trusted_beside_those_of_the_credential() {
    let credential = super::credential("https://127.0.0.1:6443");
    let config = super::super::tls::configure(&credential, &Arc::default()).unwrap();
    let config = format!("{config:?}");
    assert!(config.contains("(1 roots)"), "{config}");
}

#[tokio::test]
async fn a_certificate_for_other_names_lists_them() {
    let authority = Authority::new("ours");
    let server = serve(
        authority.issue(&["kubernetes", "10.53.0.1", "fd00::1"], |_| {}),
        None,
    )
    .await;
    let found = reason(&server, &trusting(&server, &authority)).await;
    let expected =
        "the server certificate is valid for `kubernetes`, `10.53.0.1`, `fd00::1`, not `127.0.0.1`";
    assert_eq!(found, expected);
}

#[tokio::test]
async fn the_certificate_of_an_authority_as_that_of_a_server_is_named() {
    let authority = Authority::new("ours");
    let own = authority.issue(&["127.0.0.1"], |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let server = serve(own, None).await;
    let found = reason(&server, &trusting(&server, &authority)).await;
    let expected = "the server presents a CA certificate instead of a server certificate";
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_certificate_out_of_its_time_says_when() {
    let authority = Authority::new("ours");
    let now = OffsetDateTime::now_utc();
    let old = authority.issue(&["127.0.0.1"], |params| {
        params.not_after = now - Duration::days(1);
    });
    let server = serve(old, None).await;
    let found = reason(&server, &trusting(&server, &authority)).await;
    let day = (now - Duration::days(1)).date().to_string();
    assert!(found.contains(&format!("has expired at {day}T")), "{found}");

    let early = authority.issue(&["127.0.0.1"], |params| {
        params.not_before = now + Duration::days(2);
    });
    let server = serve(early, None).await;
    let found = reason(&server, &trusting(&server, &authority)).await;
    let day = (now + Duration::days(2)).date().to_string();
    assert!(
        found.contains(&format!("is not yet valid until {day}T")),
        "{found}"
    );
    assert!(found.contains("clock"), "{found}");
}

#[tokio::test]
async fn a_server_without_a_common_version_and_one_without_tls_are_distinguished() {
    let authority = Authority::new("ours");
    // Record type alert, TLS 1.2, length 2: fatal, protocol_version.
    for (answer, kind, expected) in [
        (
            &b"\x15\x03\x03\x00\x02\x02\x46"[..],
            Kind::Tls,
            "no TLS version or cipher suite in common",
        ),
        (
            b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
            Kind::Refused,
            "the server does not speak TLS on this port",
        ),
    ] {
        let server = blurting(answer).await;
        let mut credential = super::credential(&format!("https://{server}"));
        credential.certificate_authorities = vec![authority.der()];
        let error = get(&credential).await.unwrap_err();
        is(&error, kind, expected);
    }
}

/// Starts a server that sends the same bytes on every connection.
async fn blurting(answer: &'static [u8]) -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut hello = [0; 4096];
            let _ = stream.read(&mut hello).await;
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

#[tokio::test]
async fn a_client_certificate_is_sent() {
    let authority = Authority::new("ours");
    let server = serve(authority.issue(&["127.0.0.1"], |_| {}), Some(&authority)).await;
    let mut credential = trusting(&server, &authority);
    credential.client_certificate = Some(authority.issue(&[], |_| {}));
    credential.token = None;
    get(&credential).await.unwrap();
    let request = server.request();
    assert_eq!(
        (request.client_certificates, request.header("authorization")),
        (1, None)
    );
}

#[tokio::test]
async fn a_client_certificate_that_is_missing_or_foreign_is_distinguished_from_the_servers() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let server = serve(ours.issue(&["127.0.0.1"], |_| {}), Some(&ours)).await;
    let mut credential = trusting(&server, &ours);
    let found = reason_of(Kind::Credential, &server, &credential).await;
    let rejected = "the server rejected the client certificate, or requires one (";
    assert_eq!(found, format!("{rejected}CertificateRequired)"));
    credential.client_certificate = Some(other.issue(&[], |_| {}));
    let found = reason_of(Kind::Credential, &server, &credential).await;
    assert!(found.starts_with(rejected), "{found}");
}

#[test]
fn a_key_that_belongs_to_another_certificate_makes_no_client() {
    let authority = Authority::new("ours");
    let (one, another) = (authority.issue(&[], |_| {}), authority.issue(&[], |_| {}));
    let mut credential = super::credential("https://127.0.0.1:6443");
    credential.certificate_authorities = vec![authority.der()];
    credential.client_certificate = Some(ClientCertificate {
        chain: one.chain,
        key: another.key,
    });
    let error = Client::new(&credential, LONG).unwrap_err();
    let unusable = "the client certificate and its key cannot be used: ";
    is(
        &error,
        Kind::Credential,
        &format!("{unusable}keys may not be consistent"),
    );
    let garbage: PrivateKeyDer<'static> = PrivatePkcs8KeyDer::from(b"hunter2".to_vec()).into();
    credential.client_certificate = Some(ClientCertificate {
        chain: vec![authority.der()],
        key: garbage.into(),
    });
    let error = Client::new(&credential, LONG).unwrap_err();
    is(&error, Kind::Credential, unusable);
    assert!(!printed(&error).contains("hunter2"));
}

#[tokio::test]
async fn tls_server_name_is_verified_while_the_host_stays_the_same() {
    let authority = Authority::new("ours");
    let server = serve(authority.issue(&["kubernetes.default"], |_| {}), None).await;
    for (host, sni) in [("127.0.0.1", None), ("localhost", Some("localhost"))] {
        let mut credential = trusting(&server, &authority);
        let authority_of_url = format!("{host}:{}", server.address.port());
        credential.server = format!("https://{authority_of_url}").parse().unwrap();
        credential.tls_server_name = "kubernetes.default".try_into().ok();
        get(&credential).await.unwrap();
        let request = server.requests().pop().unwrap();
        assert_eq!(request.sni.as_deref(), sni);
        assert_eq!(request.header("host"), Some(authority_of_url.as_str()));
    }
}

#[tokio::test]
async fn tls_server_name_is_the_only_name_that_is_verified() {
    let authority = Authority::new("ours");
    let server = serve(authority.issue(&["127.0.0.1"], |_| {}), None).await;
    let mut credential = trusting(&server, &authority);
    credential.tls_server_name = "kubernetes".try_into().ok();
    let found = reason(&server, &credential).await;
    let expected = "the server certificate is valid for `127.0.0.1`, not `kubernetes`";
    assert_eq!(found, expected);
}

#[tokio::test]
async fn tls_server_name_may_be_an_address_that_is_not_connected_to() {
    let authority = Authority::new("ours");
    let server = serve(authority.issue(&["192.0.2.1"], |_| {}), None).await;
    let mut credential = trusting(&server, &authority);
    credential.tls_server_name = "192.0.2.1".try_into().ok();
    get(&credential).await.unwrap();
    assert_eq!(server.request().sni, None);
}

#[tokio::test]
async fn a_server_without_the_key_of_its_certificate_is_not_believed() {
    let (one, another) = (Authority::new("one"), Authority::new("another"));
    let mut stolen = config(one.issue(&["127.0.0.1"], |_| {}), None);
    let key = rustls::crypto::ring::sign::any_supported_type(&one.issue(&[], |_| {}).key).unwrap();
    let certified =
        rustls::sign::CertifiedKey::new(another.issue(&["127.0.0.1"], |_| {}).chain, key);
    stolen.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    let server = Server::with_tls(stolen, vec![Step::Close]).await;
    let error = get(&trusting(&server, &another)).await.unwrap_err();
    assert_eq!(error.kind, Kind::Tls, "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn what_the_server_shows_is_known_afterwards_even_of_one_that_is_not_trusted() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let own = theirs.issue(&["127.0.0.1"], |_| {});
    let certificate = own.chain[0].to_vec();
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let answer = answer(200, "application/json", date, "{}");
    let server = Server::with_tls(config(own, None), answer).await;
    for (authority, is_trusted) in [(&ours, false), (&theirs, true)] {
        let client = Client::new(&trusting(&server, authority), LONG).unwrap();
        assert_eq!(client.server_shown(), ServerShown::default());
        assert_eq!(client.get::<Value>(&VERSION).await.is_ok(), is_trusted);
        let shown = client.server_shown();
        assert_eq!(shown.certificate.as_ref(), Some(&certificate));
        assert!(!shown.is_misnamed);
        assert_eq!(shown.ahead.is_some(), is_trusted);
        assert!(shown.ahead.is_none_or(|ahead| ahead < 0), "{shown:?}");
        // The names of a certificate mean nothing without a trusted CA.
        let mut other_name = trusting(&server, authority);
        other_name.tls_server_name = "other.example".try_into().ok();
        let client = Client::new(&other_name, LONG).unwrap();
        client.get::<Value>(&VERSION).await.unwrap_err();
        assert_eq!(client.server_shown().is_misnamed, is_trusted);
    }
}
