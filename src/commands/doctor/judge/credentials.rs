// SPDX-License-Identifier: Apache-2.0
//! Checks the type, server, path and expiration of the credentials.

use super::Case;
use crate::catalog::{Code, Expiry, Finding, Group};
use crate::commands::doctor::facts::credentials::{
    CertificateFacts, CredentialContent, CredentialPlace, CredentialRole, TokenFacts,
};
use crate::decide::findings::expiry::{End, reported};
use crate::decide::identity::OwnVm;
use crate::facts::UnavailableKind;
use crate::facts::observation::{Api, Harvester};
use crate::sys::escape::shell_word;

/// The prefix of a path through Rancher; the name of a cluster follows.
const RANCHER_PROXY: &str = "/k8s/clusters/";

/// Returns the findings.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    let credentials = &case.examination.credentials;
    let mut findings = Vec::new();
    if let Some(harvester) = case.observation.harvester.known() {
        findings.extend(token(case, harvester));
        findings.extend(address(case, harvester));
        findings.extend(namespace(case, harvester));
    }
    if let Some(places) = credentials.places.known() {
        findings.extend(in_the_way(case, places));
        findings.extend(named_in_vain(case, places));
    }
    let certificates = credentials.certificates.known();
    let shown = case.examination.servers.seen();
    let shown = shown.filter_map(|(_, shown)| shown.certificate.as_ref());
    for certificate in certificates.into_iter().flatten().chain(shown) {
        findings.extend(ends(case, certificate));
        findings.extend(misnamed(case, certificate));
    }
    findings
}

/// Returns a finding if the type of a token does not match its server.
fn token(case: &Case<'_>, harvester: &Harvester) -> Option<Finding> {
    let token = case.examination.credentials.token.known()?;
    let file = harvester.kubeconfig.display();
    let failure = case.observation.candidates.why().map(|why| why.kind);
    let address = Address::of(&harvester.server);
    match (&token.kind, failure) {
        (TokenFacts::Rancher { name }, Some(UnavailableKind::Credential)) => {
            let text = format!("{} rejects the token `{name}` in {file}", harvester.server);
            Some(Finding::new(Code::RancherTokenRejected, text))
        }
        (TokenFacts::Rancher { name }, _) => {
            let text = format!("the token in {file} is `{name}`, issued by Rancher");
            Some(Finding::new(Code::RancherTokenInUse, text))
        }
        (
            TokenFacts::ServiceAccount(account),
            Some(UnavailableKind::Credential | UnavailableKind::Tls),
        ) if address.is_external_rancher() => {
            let text = format!(
                "{file} sends the token of service account {account} to Rancher, {}",
                harvester.server
            );
            Some(Finding::new(Code::ServerIsRancher, text))
        }
        _ => None,
    }
}

/// Returns a finding for the address of Harvester's UI, which has another CA and may respond with an HTML page.
fn address(case: &Case<'_>, harvester: &Harvester) -> Option<Finding> {
    let kind = case.observation.candidates.why()?.kind;
    let is_odd = matches!(kind, UnavailableKind::Tls | UnavailableKind::Refused);
    if !is_odd || !Address::of(&harvester.server).is_web() {
        return None;
    }
    let file = harvester.kubeconfig.display();
    let text = format!("{file} has server {}", harvester.server);
    Some(Finding::new(Code::ServerIsHarvesterUi, text))
}

/// The parts of a server address that identify the type of the server.
struct Address<'a> {
    host: &'a str,
    has_port: bool,
    path: &'a str,
}

impl<'a> Address<'a> {
    /// Parses the public form of a URL: without user and query.
    fn of(server: &'a str) -> Self {
        let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
        let (authority, path) = match rest.find('/') {
            Some(end) => rest.split_at(end),
            None => (rest, ""),
        };
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']').unwrap_or((bracketed, "")),
            None => match authority.find(':') {
                Some(colon) => authority.split_at(colon),
                None => (authority, ""),
            },
        };
        Self {
            host,
            // The public form omits the default port of https.
            has_port: !port.is_empty(),
            path: path.trim_end_matches('/'),
        }
    }

    /// Reports whether this is Harvester's ingress, with its UI, or its built-in Rancher, on any port.
    fn is_web(&self) -> bool {
        self.path == "/k8s/clusters/local" || (!self.has_port && self.path.is_empty())
    }

    /// Reports whether this is an external Rancher that manages this Harvester: only the built-in one has Harvester as `local`.
    fn is_external_rancher(&self) -> bool {
        let cluster = self.path.strip_prefix(RANCHER_PROXY);
        cluster.is_some_and(|cluster| cluster != "local")
    }
}

/// Returns a finding if the token and the kubeconfig have different namespaces, and no VM is found.
fn namespace(case: &Case<'_>, harvester: &Harvester) -> Option<Finding> {
    let token = case.examination.credentials.token.known()?;
    let TokenFacts::ServiceAccount(account) = &token.kind else {
        return None;
    };
    let forbidden =
        case.observation.candidates.why().map(|why| why.kind) == Some(UnavailableKind::Forbidden);
    let not_found = matches!(case.identity.vm, OwnVm::NotFound(_));
    if account.namespace == harvester.namespace || !(forbidden || not_found) {
        return None;
    }
    let origin = match &case.settings.harvester.namespace {
        Some(_) => "`[harvester] namespace`".to_owned(),
        None => harvester.kubeconfig.display().to_string(),
    };
    let text = format!(
        "the token belongs to namespace {}, {origin} has {}, and no VM there matches this node or can be read",
        account.namespace, harvester.namespace
    );
    Some(Finding::new(Code::CredentialNamespaceDiffers, text))
}

/// Returns a finding for a path that stops the search: the search uses the first path that exists.
fn in_the_way(case: &Case<'_>, places: &[CredentialPlace]) -> Option<Finding> {
    let why = case.observation.harvester.why()?;
    if why.kind != UnavailableKind::Credential {
        return None;
    }
    let is_there = |place: &&CredentialPlace| place.content != CredentialContent::Nothing;
    let place = places.iter().find(is_there)?;
    let path = place.path.display();
    match place.content {
        CredentialContent::Directory => {
            let finding = Finding::new(
                Code::CredentialIsDirectory,
                format!("{path} is a directory"),
            );
            Some(finding)
        }
        CredentialContent::EmptyFile => {
            let text = format!("{path} is empty");
            Some(Finding::new(Code::CredentialIsEmpty, text))
        }
        CredentialContent::Nothing | CredentialContent::File | CredentialContent::Unknown => None,
    }
}

/// Returns a finding for a configured path that does not exist, while the credential in use is elsewhere.
fn named_in_vain(case: &Case<'_>, places: &[CredentialPlace]) -> Option<Finding> {
    let used = &case.observation.harvester.known()?.kubeconfig;
    let place = places
        .iter()
        .find(|place| place.named_in.is_some() && place.content == CredentialContent::Nothing)?;
    let origin = place.named_in.as_ref()?.display();
    let (path, used) = (place.path.display(), used.display());
    let text = format!(
        "`cloud-provider-config` in {origin} is {path}, which does not exist; the kubeconfig in use is {used}"
    );
    let [used, path] = [used, path].map(|path| shell_word(&path.to_string()));
    let command = format!("install -D -m 0600 {used} {path}");
    Some(Finding::new(Code::CredentialNotAtNamedPath, text).with_commands(vec![command]))
}

fn group(api: Api) -> Group {
    match api {
        Api::Harvester => Group::HarvesterCredential,
        Api::Guest => Group::KubeletCredential,
    }
}

/// Returns a finding for a CA or server certificate that expires. The running agent reports the kubelet's client certificate.
fn ends(case: &Case<'_>, certificate: &CertificateFacts) -> Option<Finding> {
    let (End::Over(when) | End::Near(when)) =
        reported(certificate.ends, case.now.wall.unix_timestamp())?;
    let CertificateFacts {
        origin, subject, ..
    } = certificate;
    let subject = subject.strip_prefix("CN=").unwrap_or(subject);
    let (what, group) = match (certificate.role, certificate.api) {
        (CredentialRole::Client, _) => return None,
        (CredentialRole::Authority, api) => (format!("CA {subject}"), group(api)),
        (CredentialRole::Server, api) => {
            let group = match api {
                Api::Harvester => Group::HarvesterApi,
                Api::Guest => Group::Node,
            };
            (format!("{subject} (server)"), group)
        }
    };
    let (renew, step) = remedy(certificate.role, certificate.api);
    let finding = Finding::new(Code::CredentialExpires, format!("{origin}: {what} {when}"));
    let finding = finding.about(group).with_expiry(Expiry {
        at: certificate.ends,
        what,
        origin: origin.clone(),
        renew,
    });
    Some(finding.with_remedy(step))
}

/// Returns how to renew a certificate: in short, and as a step.
fn remedy(role: CredentialRole, api: Api) -> (&'static str, &'static str) {
    match (role, api) {
        (CredentialRole::Authority, Api::Harvester) => (
            "new Harvester kubeconfig",
            "Create a new Harvester kubeconfig, which has the current CA. If the CA of Harvester itself expires, plan its rotation with the Harvester documentation first.",
        ),
        (_, Api::Harvester) => (
            "restart rke2-server (host)",
            "On the Harvester host, restart rke2-server; the setting auto-rotate-rke2-certs renews it automatically.",
        ),
        (CredentialRole::Authority, Api::Guest) => (
            "a CA rotation (cluster)",
            "Rotate the CA of this cluster on its servers (`rke2 certificate rotate-ca --path DIR`, `k3s certificate rotate-ca --path DIR`): it needs new CA files, prepared as in https://docs.rke2.io/security/certificates. Then restart the service on each node.",
        ),
        (_, Api::Guest) => (
            "restart rke2-server or k3s",
            "On the servers of this cluster, restart rke2-server or k3s; with kubeadm: `kubeadm certs renew all`.",
        ),
    }
}

/// Returns a finding if an untrusted server certificate is not valid for the name of the server.
fn misnamed(case: &Case<'_>, certificate: &CertificateFacts) -> Option<Finding> {
    let (failure, group) = match certificate.api {
        Api::Harvester => (case.observation.candidates.why(), Group::HarvesterApi),
        Api::Guest => (case.observation.node.why(), Group::Node),
    };
    let is_distrusted = failure.is_some_and(|why| why.kind == UnavailableKind::Tls);
    let host = Address::of(&certificate.origin).host;
    if certificate.role != CredentialRole::Server
        || !is_distrusted
        || is_for(&certificate.names, host)
    {
        return None;
    }
    let names = match certificate.names.as_slice() {
        [] => "no name".to_owned(),
        names => names.join(", "),
    };
    let text = format!(
        "{}: the certificate is valid for {names}",
        certificate.origin
    );
    Some(Finding::new(Code::ServerNotInCertificate, text).about(group))
}

/// Reports whether one of the names matches this host (RFC 9525, 6.3: a wildcard matches only the leftmost label).
fn is_for(names: &[String], host: &str) -> bool {
    let parent = host.split_once('.').map(|(_, parent)| parent);
    names.iter().any(|name| {
        let starred = name.strip_prefix("*.").zip(parent);
        name.eq_ignore_ascii_case(host)
            || starred.is_some_and(|(named, parent)| named.eq_ignore_ascii_case(parent))
    })
}

#[cfg(test)]
mod tests;
