// SPDX-License-Identifier: Apache-2.0
//! Reads the parts of a kubeconfig, and the files that it names.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use reqwest::Url;
use ring::digest::{Context, Digest, SHA256};
use rustls::pki_types::{CertificateDer, ServerName};
use zeroize::Zeroizing;

use super::key::KubeconfigKey;
use crate::access::credential::Credential;
use crate::access::error::{CredentialError, quoted};
use crate::access::pem;
use crate::access::trust::changeable;
use crate::facts::names::Namespace;
use crate::sys::root::{ReadError, Root};

/// The maximum size of the kubeconfig and of each file that it names; generated ones are below 16 KiB.
pub(crate) const KUBECONFIG_MAX: u64 = 1 << 20;

/// The maximum length of a file name in an error.
const NAME_SHOWN: usize = 64;

/// A credential with the metadata for `CredentialSource`.
#[derive(Debug)]
pub(in crate::access) struct LoadedKubeconfig {
    pub(in crate::access) credential: Arc<Credential>,
    /// The files that contain a token or a private key.
    pub(in crate::access) secret_files: Vec<PathBuf>,
    /// The digest of all data that was read; the same digest means the same credential.
    pub(in crate::access) digest: Digest,
}

/// Reports whether a value that should be a path may be a secret at the wrong key, such as a token or an encoded certificate.
fn may_be_secret(name: &str) -> bool {
    let is_long = name.split('/').any(|part| part.len() > NAME_SHOWN);
    is_long || name.contains([':', '=']) || !name.contains(['/', '.'])
}

fn is_http(url: &Url) -> bool {
    ["http", "https"].contains(&url.scheme())
}

/// The text of a `-data` key or of the file that is named instead.
pub(super) struct Material {
    /// The path of the text, for messages.
    pub(super) path: PathBuf,
    pub(super) key: String,
    pub(super) text: Zeroizing<Vec<u8>>,
}

impl Material {
    pub(super) fn pem(&self, problem: &'static str) -> CredentialError {
        CredentialError::at(&self.path, &self.key, problem)
    }
}

pub(super) struct KubeconfigReader<'a> {
    root: &'a Root,
    pub(super) path: &'a Path,
    touched: &'a mut Vec<PathBuf>,
    pub(super) secret_files: Vec<PathBuf>,
    digest: Context,
}

impl<'a> KubeconfigReader<'a> {
    pub(super) fn new(root: &'a Root, path: &'a Path, touched: &'a mut Vec<PathBuf>) -> Self {
        Self {
            root,
            path,
            touched,
            secret_files: Vec::new(),
            digest: Context::new(&SHA256),
        }
    }

    pub(super) fn credential(
        mut self,
        document: &KubeconfigKey<'_>,
    ) -> Result<LoadedKubeconfig, CredentialError> {
        let context = self.context(document)?;
        let cluster = self.entry(document, "clusters", "cluster", &context.child("cluster")?)?;
        let user = self.entry(document, "users", "user", &context.child("user")?)?;
        self.refuse_unsupported(&user)?;
        let server = self.server(&cluster)?;
        let certificate_authorities = self.trust(&cluster)?;
        let tls_server_name = cluster.child("tls-server-name")?.parsed(
            |name| Some(ServerName::try_from(name).ok()?.to_owned()),
            "neither a DNS name nor an IP address",
        )?;
        let proxy = cluster.child("proxy-url")?.parsed(
            |text| Url::parse(text).ok().filter(is_http),
            "not a URL that begins with `http://` or `https://`",
        )?;
        let token = self.token(&user)?;
        let client_certificate = self.client_certificate(&user)?;
        if token.is_none() && client_certificate.is_none() {
            let problem = "has no credential: set `token`, `tokenFile`, `client-certificate-data` or `client-certificate`";
            return Err(CredentialError::at(self.path, &user.name, problem));
        }
        let namespace = context.child("namespace")?.parsed(
            |name| Namespace::parse(name).ok(),
            "not a valid namespace name",
        )?;
        Ok(LoadedKubeconfig {
            credential: Arc::new(Credential {
                kubeconfig: self.path.to_owned(),
                // A key that should name a file may hold a token: what does not exist is watched and never shown.
                files: (self.touched.iter())
                    .filter(|path| self.root.metadata(path).is_ok())
                    .cloned()
                    .collect(),
                server,
                certificate_authorities,
                tls_server_name,
                proxy,
                token,
                client_certificate,
                namespace,
            }),
            secret_files: self.secret_files,
            digest: self.digest.finish(),
        })
    }

    /// Returns the current context; if none is named, the only one.
    pub(super) fn context<'k>(
        &self,
        document: &KubeconfigKey<'k>,
    ) -> Result<KubeconfigKey<'k>, CredentialError> {
        let current = document.child("current-context")?;
        if current.text()?.is_some() {
            return self.entry(document, "contexts", "context", &current);
        }
        let contexts = document.child("contexts")?.entries()?;
        match contexts.as_slice() {
            [only] => only.child("context"),
            [] => Err(document.child("contexts")?.missing(
                "a kubeconfig has at least one context; this may be another kind of file",
            )),
            _ => Err(current.missing("required if there is more than one context")),
        }
    }

    /// Returns the entry of `list` whose name is the text of `reference`.
    pub(super) fn entry<'k>(
        &self,
        document: &KubeconfigKey<'k>,
        list: &'static str,
        inner: &str,
        reference: &KubeconfigKey<'_>,
    ) -> Result<KubeconfigKey<'k>, CredentialError> {
        let name = reference.needed(format_args!("the name of an entry of `{list}`"))?;
        for entry in document.child(list)?.entries()? {
            if entry.child("name")?.text()? == Some(name) {
                return entry.child(inner);
            }
        }
        let name = quoted(name);
        Err(CredentialError::at(
            self.path,
            &reference.name,
            format_args!("is {name}, but `{list}` has no entry with that name"),
        ))
    }

    pub(super) fn server(&self, cluster: &KubeconfigKey<'_>) -> Result<Url, CredentialError> {
        let key = cluster.child("server")?;
        let text = key.needed("the URL of the API server")?;
        let Ok(server) = Url::parse(text) else {
            return Err(key.invalid("not a URL such as `https://192.0.2.10:6443`"));
        };
        if !server.username().is_empty() || server.password().is_some() {
            return Err(key.refused("a URL with a user name or password would appear in logs"));
        }
        if server.query().is_some() || server.fragment().is_some() {
            return Err(key.invalid("a URL with `?` or `#`, which is not the URL of an API server"));
        }
        match server.scheme() {
            "https" => Ok(server),
            "http" => Err(key.refused(
                "a URL with `http://` would send the credential without TLS; use `https://`",
            )),
            _ => Err(key.invalid("a URL that does not begin with `https://`")),
        }
    }

    pub(super) fn trust(
        &mut self,
        cluster: &KubeconfigKey<'_>,
    ) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
        let skip = cluster.child("insecure-skip-tls-verify")?;
        if skip.is_true()? {
            return Err(skip.refused(
                "any server could read the credential; remove the key, and set `certificate-authority-data` to the CA certificate \
                 that signed that of the server",
            ));
        }
        match self.material(cluster, "certificate-authority")? {
            Some(material) => {
                pem::authorities(&material.text).map_err(|problem| material.pem(problem))
            }
            None => Err(cluster.child("certificate-authority-data")?.missing(
                "without it the server cannot be verified, and the CA certificates of the OS are not used; \
                 add the CA certificate that signed that of the server, or replace the file by that of a service account",
            )),
        }
    }

    /// Returns the content of `<key>-data`, otherwise of the file that `<key>` names.
    pub(super) fn material(
        &mut self,
        parent: &KubeconfigKey<'_>,
        key: &str,
    ) -> Result<Option<Material>, CredentialError> {
        let data = parent.child(&format!("{key}-data"))?;
        if let Some(text) = data.text()? {
            let joined = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
            let joined = Zeroizing::new(joined.collect::<Vec<u8>>());
            let decoded = BASE64_STANDARD.decode(joined.as_slice());
            let text = decoded.map_err(|_| data.invalid("not base64, or is truncated"))?;
            return Ok(Some(Material {
                path: self.path.to_owned(),
                key: data.name,
                text: Zeroizing::new(text),
            }));
        }
        let file = parent.child(key)?;
        let name = file.text()?;
        name.map(|name| self.reference(&file, name)).transpose()
    }

    /// Returns the path of a file that the kubeconfig names, relative to the kubeconfig's own directory.
    pub(super) fn reference(
        &mut self,
        key: &KubeconfigKey<'_>,
        name: &str,
    ) -> Result<Material, CredentialError> {
        let path = self.path.parent().unwrap_or(Path::new("/")).join(name);
        if !self.touched.contains(&path) {
            self.touched.push(path.clone());
        }
        if let Some(place) = changeable(self.root, self.path) {
            return Err(CredentialError::at(
                self.path,
                &key.name,
                format_args!(
                    "references a file, which is only read if the kubeconfig is writable by root alone: {place}"
                ),
            ));
        }
        let text = self
            .root
            .read(&path, KUBECONFIG_MAX)
            .map(Zeroizing::new)
            .map_err(|source: ReadError| {
                let (path, key) = (self.path.to_owned(), key.name.clone());
                let is_too_long = matches!(&source, ReadError::Io { source, .. } if source.kind() == ErrorKind::InvalidFilename);
                let file = source.path();
                match self.root.dangling(file).filter(|_| source.is_absent()) {
                    Some(target) => {
                        let source = ReadError::Dangling { path: file.to_owned(), target };
                        CredentialError::Reference { path, key, source }
                    }
                    None if (source.is_absent() || is_too_long) && may_be_secret(name) => {
                        CredentialError::NotAFile { path, key }
                    }
                    None => CredentialError::Reference { path, key, source },
                }
            })?;
        self.note(&path, &text);
        Ok(Material {
            path,
            key: key.name.clone(),
            text,
        })
    }

    pub(super) fn note(&mut self, path: &Path, text: &[u8]) {
        for part in [path.as_os_str().as_encoded_bytes(), text] {
            self.digest.update(&(part.len() as u64).to_le_bytes());
            self.digest.update(part);
        }
    }
}
