// SPDX-License-Identifier: Apache-2.0
//! Reads the data about the credential files: the content of their paths, the type and claims of the token, the certificates. No
//! secret leaves this file.

use std::path::Path;

use super::{Given, request};
use crate::access::kubeconfig;
use crate::access::search::harvester_candidates;
use crate::access::token::classify;
use crate::access::x509;
use crate::commands::doctor::facts::credentials::{
    CertificateFacts, CredentialContent, CredentialPlace, CredentialRole, Credentials,
};
use crate::facts::distribution::Configured;
use crate::facts::observation::Api;
use crate::facts::{Fact, Prerequisite};
use crate::observe::api_access::ApiLink;
use crate::sys::escape::one_line;
use crate::sys::root::Root;
use crate::wire::kubeapi::ResourceAttributes;

/// The maximum length of a name in a certificate, in characters.
const NAME_MAX: usize = 253;

/// The maximum number of names of a certificate.
const NAMES_MAX: usize = 64;

/// Reads the facts about the credentials.
pub(super) async fn read(given: &Given<'_>) -> Credentials {
    let harvester = given.connections.harvester.link();
    let guest = given.connections.guest.link();
    let links = || {
        let harvester = harvester.iter().map(|link| (Api::Harvester, *link));
        harvester.chain(guest.iter().map(|link| (Api::Guest, *link)))
    };
    let places = places(given);
    // The type of the token may explain a file that cannot be used.
    let unusable = || {
        let mut files = places.iter();
        let file = files.find(|place| place.content == CredentialContent::File)?;
        kubeconfig::token(given.root, &file.path)
    };
    Credentials {
        token: match &harvester {
            Ok(link) => {
                let token = link.credential.token.as_ref();
                token.map_or(Fact::Absent, |token| Fact::Known(classify(token)))
            }
            Err(why) => match unusable() {
                Some(token) => Fact::Known(classify(&token)),
                None => Fact::Failed(why.skipping(Prerequisite::Kubeconfig(Api::Harvester))),
            },
        },
        places: Fact::Known(places),
        certificates: Fact::Known(
            links()
                .flat_map(|(api, link)| certificates(api, link))
                .collect(),
        ),
        csi_role: csi_role(given).await,
    }
}

/// Checks a permission that the role `harvesterhci.io:csi-driver` has in every release, not limited to one storage class.
async fn csi_role(given: &Given<'_>) -> Fact<bool> {
    if given.settings.harvester.kubeconfig.is_some() {
        return Fact::Absent;
    }
    let right = ResourceAttributes {
        verb: "get".to_owned(),
        group: "storage.k8s.io".to_owned(),
        resource: "storageclasses".to_owned(),
        ..ResourceAttributes::default()
    };
    let review = request(&given.harvester, async |client| client.may(&right).await);
    review.await.map(|review| review.allowed)
}

/// Returns each path where the Harvester credential is searched, with its content.
fn places(given: &Given<'_>) -> Vec<CredentialPlace> {
    let distributions = &given.observation.distributions;
    let configured = given.settings.harvester.kubeconfig.as_deref();
    let named = |path: &Path| {
        let mut named = distributions
            .iter()
            .filter_map(|one| one.cloud_provider_config.as_ref());
        let found = named.find(|Configured { value, .. }| value == path);
        found.map(|Configured { origin, .. }| origin.clone())
    };
    let candidates = harvester_candidates(configured, distributions);
    let places = candidates.into_iter().map(|candidate| CredentialPlace {
        named_in: named(&candidate.path),
        content: content(given.root, &candidate.path),
        path: candidate.path,
    });
    places.collect()
}

fn content(root: &Root, path: &Path) -> CredentialContent {
    match root.metadata(path) {
        Ok(metadata) if metadata.is_dir() => CredentialContent::Directory,
        Ok(metadata) if metadata.is_file() && metadata.len() == 0 => CredentialContent::EmptyFile,
        Ok(metadata) if metadata.is_file() => CredentialContent::File,
        Ok(_) => CredentialContent::Unknown,
        Err(error) if error.is_absent() => CredentialContent::Nothing,
        Err(_) => CredentialContent::Unknown,
    }
}

/// Returns the certificates of a credential. One that cannot be parsed is not used elsewhere either.
fn certificates(api: Api, link: &ApiLink) -> Vec<CertificateFacts> {
    let credential = &link.credential;
    let origin = credential.kubeconfig.display().to_string();
    let authorities = credential.certificate_authorities.iter();
    let authorities = authorities.map(|der| (CredentialRole::Authority, der));
    let client = credential.client_certificate.iter();
    let client = client.filter_map(|client| Some((CredentialRole::Client, client.chain.first()?)));
    let all = authorities.chain(client);
    let read = all.filter_map(|(role, der)| {
        let read = x509::Certificate::parse(der).ok()?;
        Some(certificate(api, role, &origin, &read))
    });
    read.collect()
}

/// Converts a certificate to the facts about it.
pub(super) fn certificate(
    api: Api,
    role: CredentialRole,
    origin: &str,
    read: &x509::Certificate,
) -> CertificateFacts {
    let line = |text: &str| one_line(text, NAME_MAX).into_owned();
    let names = read.alternative_names.iter().take(NAMES_MAX);
    CertificateFacts {
        api,
        role,
        origin: origin.to_owned(),
        subject: line(&read.subject.to_string()),
        begins: read.not_before,
        ends: read.not_after,
        names: names.map(|name| line(name)).collect(),
    }
}
