// SPDX-License-Identifier: Apache-2.0
//! Sockets and TLS: the listener with its modes, and streams that can be made to misbehave below HTTP.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::Sleep;

use super::access::User;
use crate::pki::Identity;

/// How the port behaves towards new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// Accepted and served.
    Open,
    /// No process listens: the kernel answers with a reset.
    Closed,
    /// Accepted, and never a byte sent.
    Silent,
}

/// A port that stays ours while no process listens on it: a bound socket that never listens keeps the number from being
/// given to someone else.
#[derive(Debug)]
pub(crate) struct Port {
    _holder: TcpSocket,
    address: SocketAddr,
}

impl Port {
    pub(crate) fn reserve() -> io::Result<Self> {
        let holder = TcpSocket::new_v4()?;
        holder.set_reuseport(true)?;
        holder.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = holder.local_addr()?;
        Ok(Self {
            _holder: holder,
            address,
        })
    }

    pub(crate) fn number(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseport(true)?;
        socket.bind(self.address)?;
        socket.listen(1024)
    }
}

/// The TLS side of a server: asks for a client certificate and takes any. Whether it is good is decided per request, as
/// kube-apiserver does, so that a bad one is answered with 401 and not with a TLS alert.
pub(crate) fn tls_config(identity: &Identity) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .expect("a server identity holds certificates");
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .expect("a server identity holds a key");
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .with_client_cert_verifier(Arc::new(TakeAny))
        .with_single_cert(chain, key)
        .expect("the key of a server identity belongs to its certificate");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Decides about client certificates.
#[derive(Debug)]
pub(crate) struct ClientAuthority {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientAuthority {
    pub(crate) fn new(authority_pem: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority_pem.as_bytes()) {
            let certificate = certificate.expect("an authority is PEM");
            roots.add(certificate).expect("an authority is a CA");
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .expect("there is an authority");
        Self { verifier }
    }

    /// The user of a certificate chain, or nothing when it is not good now.
    pub(crate) fn user_of(&self, chain: &[CertificateDer<'_>]) -> Option<User> {
        let (leaf, rest) = chain.split_first()?;
        self.verifier
            .verify_client_cert(leaf, rest, UnixTime::now())
            .ok()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(leaf).ok()?;
        let subject = parsed.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?;
        let groups: Vec<&str> = subject
            .iter_organization()
            .filter_map(|group| group.as_str().ok())
            .collect();
        Some(User::new(name, &groups))
    }
}

/// Checks the handshake's signature and nothing else.
#[derive(Debug)]
struct TakeAny;

impl ClientCertVerifier for TakeAny {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// How a stream treats the bytes that pass it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Flow {
    #[default]
    Normal,
    /// Nothing passes any more, in either direction, and nothing is closed.
    Stopped,
    /// One byte per interval towards the client.
    Trickle(Duration),
    /// Whatever is written, the client reads a response head that never ends.
    EndlessHead,
}

/// A switch for the flow of one stream.
pub(crate) type Valve = Arc<Mutex<Flow>>;

/// A stream with a valve.
#[derive(Debug)]
pub(crate) struct Tap<S> {
    stream: S,
    valve: Valve,
    pause: Option<Pin<Box<Sleep>>>,
    head_begun: bool,
}

/// Chunks written in one go before others get their turn.
const ENDLESS_BURST: usize = 16;

impl<S> Tap<S> {
    pub(crate) fn new(stream: S, valve: Valve) -> Self {
        Self {
            stream,
            valve,
            pause: None,
            head_begun: false,
        }
    }

    fn flow(&self) -> Flow {
        *self.valve.lock().expect("no holder of a valve panics")
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.flow() != Flow::Stopped {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        // Read and thrown away, so that the end of the connection is still noticed.
        loop {
            let mut scrap = [0; 4096];
            let mut scrap = ReadBuf::new(&mut scrap);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut scrap))?;
            if scrap.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.flow() {
            Flow::Normal => Pin::new(&mut self.stream).poll_write(context, bytes),
            Flow::Stopped => Poll::Ready(Ok(bytes.len())),
            Flow::Trickle(interval) => {
                if let Some(pause) = self.pause.as_mut() {
                    ready!(pause.as_mut().poll(context));
                    self.pause = None;
                }
                let one = &bytes[..bytes.len().min(1)];
                let written = ready!(Pin::new(&mut self.stream).poll_write(context, one))?;
                // Each byte leaves in a TLS record of its own.
                let _ = Pin::new(&mut self.stream).poll_flush(context)?;
                self.pause = Some(Box::pin(tokio::time::sleep(interval)));
                Poll::Ready(Ok(written))
            }
            Flow::EndlessHead => {
                for _ in 0..ENDLESS_BURST {
                    let chunk: &[u8] = if self.head_begun {
                        b"x-padding: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"
                    } else {
                        b"HTTP/1.1 200 OK\r\n"
                    };
                    // A partly written line only makes the head odder.
                    ready!(Pin::new(&mut self.stream).poll_write(context, chunk))?;
                    self.head_begun = true;
                }
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.flow() == Flow::Stopped {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.flow() == Flow::Stopped {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
