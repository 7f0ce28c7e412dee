// SPDX-License-Identifier: Apache-2.0
//! Checks the type, server, path and expiration of the credentials.

use std::path::Path;

use super::Case;
use crate::access::token::{Claims, TokenKind};
use crate::catalog::{Code, Expiry, Finding, Group};
use crate::commands::doctor::address::Address;
use crate::commands::doctor::facts::credentials::{
    CertificateFacts, CredentialContent, CredentialPlace, CredentialRole,
};
use crate::decide::findings::expiry::{End, reported};
use crate::decide::identity::OwnVm;
use crate::facts::UnavailableKind;
use crate::facts::observation::{Api, Harvester};
use crate::sys::escape::shell_word;

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
        findings.extend(unusable(case, places));
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
    let is_rancher =
        Address::parse(&harvester.server).is_some_and(|address| address.is_external_rancher());
    match (token, failure) {
        (TokenKind::Rancher { name }, Some(UnavailableKind::Credential)) => {
            let text = format!("{} rejects the token `{name}` in {file}", harvester.server);
            Some(Finding::new(Code::RancherTokenRejected, text))
        }
        (TokenKind::Rancher { name }, _) => Some(of_rancher(&harvester.kubeconfig, name)),
        (
            TokenKind::Jwt(Claims {
                service_account: Some(account),
                ..
            }),
            Some(UnavailableKind::Credential | UnavailableKind::Tls),
        ) if is_rancher => {
            let text = format!(
                "{file} sends the token of service account {account} to Rancher, {}",
                harvester.server
            );
            Some(Finding::new(Code::ServerIsRancher, text))
        }
        _ => None,
    }
}

fn of_rancher(file: &Path, name: &str) -> Finding {
    let text = format!(
        "the token in {} is `{name}`, issued by Rancher",
        file.display()
    );
    Finding::new(Code::RancherTokenInUse, text)
}

/// Returns a finding for a token of Rancher in a file that the agent cannot use, but the CSI driver and the cloud provider can.
fn unusable(case: &Case<'_>, places: &[CredentialPlace]) -> Option<Finding> {
    case.observation.harvester.why()?;
    let TokenKind::Rancher { name } = case.examination.credentials.token.known()? else {
        return None;
    };
    let mut files = places.iter();
    let file = files.find(|place| place.content == CredentialContent::File)?;
    Some(of_rancher(&file.path, name))
}

/// Returns a finding for the address of Harvester's UI, which has another CA and may respond with an HTML page.
fn address(case: &Case<'_>, harvester: &Harvester) -> Option<Finding> {
    let kind = case.observation.candidates.why()?.kind;
    let is_odd = matches!(kind, UnavailableKind::Tls | UnavailableKind::Refused);
    let is_web = Address::parse(&harvester.server).is_some_and(|address| address.is_web());
    if !is_odd || !is_web {
        return None;
    }
    let file = harvester.kubeconfig.display();
    let text = format!("{file} has server {}", harvester.server);
    Some(Finding::new(Code::ServerIsHarvesterUi, text))
}

/// Returns a finding if the token and the kubeconfig have different namespaces, and no VM is found.
fn namespace(case: &Case<'_>, harvester: &Harvester) -> Option<Finding> {
    let token = case.examination.credentials.token.known()?;
    let TokenKind::Jwt(Claims {
        service_account: Some(account),
        ..
    }) = token
    else {
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
    let address = Address::parse(&certificate.origin)?;
    if certificate.role != CredentialRole::Server
        || !is_distrusted
        || is_for(&certificate.names, address.host())
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
