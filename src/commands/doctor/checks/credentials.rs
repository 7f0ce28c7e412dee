// SPDX-License-Identifier: Apache-2.0
//! Does the Harvester credential fit its server and its namespace, and is it where it is searched?

use std::path::{Path, PathBuf};

use crate::access::kubeconfig;
use crate::access::search::{Candidate, harvester_candidates, new_harvester_kubeconfig};
use crate::access::token::{Claims, TokenKind, classify};
use crate::access::trust::is_steered;
use crate::catalog::{Api, Code, Finding};
use crate::commands::doctor::address::Address;
use crate::commands::doctor::case::{Case, Checked};
use crate::commands::doctor::reads::Reads;
use crate::decide::identity::OwnVm;
use crate::facts::observation::{Harvester, Observation};
use crate::facts::{Fact, UnavailableKind};
use crate::sys::escape::shell_path;
use crate::sys::root::Root;

/// The step if another user can choose where a named path leads.
const STEERED: &str = "A symbolic link of another user leads to its directory: correct `cloud-provider-config` in the reported file, and restart rke2-server, rke2-agent, k3s or k3s-agent.";

/// A path where the Harvester credential is searched.
#[derive(Debug, Clone)]
struct Place {
    candidate: Candidate,
    content: Content,
    /// The missing target, if the path is a symbolic link to nothing.
    dangling: Option<PathBuf>,
    /// Whether another user chooses its directory by a link: root must not be told to write there.
    is_steered: bool,
}

impl Place {
    fn read(root: &Root, candidate: Candidate) -> Self {
        let path = &candidate.path;
        Self {
            content: content(root, path),
            dangling: root.dangling(path).filter(|_| !is_steered(root, path)),
            is_steered: path.parent().is_some_and(|above| is_steered(root, above)),
            candidate,
        }
    }
}

/// The content of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Nothing,
    File,
    Other,
}

/// Reads the paths, and what the token says of itself.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let places = places(&reads.case, reads.observer.root());
    let token = token(reads);
    let findings = judge(&reads.case, token.known(), &places);
    checked.findings.extend(findings);
    checked.kubeconfig = path_to_write(reads.observer.root(), reads.case.observation, &places);
}

/// Returns the type of the token, also of one in a file that cannot be used. Absent if the credential has a client certificate
/// instead.
pub(super) fn token(reads: &Reads<'_>) -> Fact<TokenKind> {
    let token = match reads.observer.connections().harvester.link() {
        Ok(link) => Ok(link.credential.token.clone()),
        Err(why) => {
            let root = reads.observer.root();
            let places = places(&reads.case, root);
            let token = file(&places).and_then(|file| kubeconfig::token(root, file));
            token.map(Some).ok_or(why)
        }
    };
    match token {
        Ok(token) => token.map_or(Fact::Absent, |token| Fact::Known(classify(&token))),
        Err(why) => Fact::Failed(why.skipping()),
    }
}

/// Returns each path where the Harvester credential is searched, in the order of the search.
fn places(case: &Case<'_>, root: &Root) -> Vec<Place> {
    let configured = case.settings.harvester.kubeconfig.as_deref();
    let candidates = harvester_candidates(configured, &case.observation.distributions);
    let places = candidates.into_iter();
    places.map(|one| Place::read(root, one)).collect()
}

/// Returns the file that ends the search, unless something else does.
fn file(places: &[Place]) -> Option<&Path> {
    let mut files = places.iter();
    let file = files.find(|place| place.content == Content::File)?;
    Some(&file.candidate.path)
}

fn content(root: &Root, path: &Path) -> Content {
    match root.metadata(path) {
        Ok(metadata) if metadata.is_file() => Content::File,
        Err(error) if error.is_absent() => Content::Nothing,
        Ok(_) | Err(_) => Content::Other,
    }
}

/// Returns the path for a new Harvester kubeconfig: that of the one in use, that of an unusable one, which ends the search, the one
/// that a configuration names, or that of the distribution. `kubeconfig --write` follows no link. `None` if another user chooses the
/// file by a link: root must not be told to replace it.
fn path_to_write(root: &Root, observation: &Observation, places: &[Place]) -> Option<PathBuf> {
    let used = observation.harvester.known();
    let used = used.map(|harvester| harvester.kubeconfig.as_path());
    let unusable = places.iter().find(|one| one.content != Content::Nothing);
    let mut named = places.iter();
    let named = named.find(|one| one.candidate.named_by.is_some());
    let found = unusable.or(named).map(|one| one.candidate.path.as_path());
    let new = new_harvester_kubeconfig(&observation.distributions);
    let path = used.or(found).unwrap_or(&new);
    (!is_steered(root, path)).then(|| root.resolve(path))
}

fn judge(case: &Case<'_>, token: Option<&TokenKind>, places: &[Place]) -> Vec<Finding> {
    let harvester = case.observation.harvester.known();
    let findings = [
        token.and_then(|token| mismatched(case, token, places)),
        harvester.and_then(|harvester| address(case, harvester)),
        harvester.and_then(|harvester| namespace(case, harvester, token?)),
        named_in_vain(case, places),
    ];
    findings.into_iter().flatten().collect()
}

/// Returns a finding if the type of a token does not match its server. The CSI driver and the cloud provider can use a token of
/// Rancher in a file that the agent cannot use.
fn mismatched(case: &Case<'_>, token: &TokenKind, places: &[Place]) -> Option<Finding> {
    let harvester = case.observation.harvester.known();
    let used = harvester.map(|harvester| harvester.kubeconfig.as_path());
    let file = used.or_else(|| file(places))?.display();
    let server = harvester.map_or("", |harvester| harvester.server.as_str());
    let failure = case.failure(Api::Harvester).filter(|_| used.is_some());
    let is_rancher = Address::parse(server).is_some_and(|address| address.is_external_rancher());
    let (code, text) = match (token, failure.map(|why| why.kind)) {
        (TokenKind::Rancher { name }, Some(UnavailableKind::Credential)) => (
            Code::RancherTokenRejected,
            format!("{server} rejects the token `{name}` in {file}"),
        ),
        (TokenKind::Rancher { name }, _) => (
            Code::RancherTokenInUse,
            format!("the token in {file} is `{name}`, issued by Rancher"),
        ),
        (
            TokenKind::Jwt(Claims {
                service_account: Some(account),
                ..
            }),
            Some(UnavailableKind::Credential | UnavailableKind::Tls),
        ) if is_rancher => (
            Code::ServerIsRancher,
            format!("{file} sends the token of service account {account} to Rancher, {server}"),
        ),
        _ => return None,
    };
    Some(Finding::new(code, text))
}

/// Returns a finding for the address of Harvester's UI, which has another CA and may respond with an HTML page.
fn address(case: &Case<'_>, harvester: &Harvester) -> Option<Finding> {
    let kind = case.failure(Api::Harvester)?.kind;
    let is_odd = matches!(kind, UnavailableKind::Tls | UnavailableKind::Refused);
    if !is_odd || !Address::parse(&harvester.server)?.is_web() {
        return None;
    }
    let file = harvester.kubeconfig.display();
    let text = format!("{file} has server {}", harvester.server);
    Some(Finding::new(Code::ServerIsHarvesterUi, text))
}

/// Returns a finding if the token and the kubeconfig have different namespaces, and no VM is found.
fn namespace(case: &Case<'_>, harvester: &Harvester, token: &TokenKind) -> Option<Finding> {
    let TokenKind::Jwt(claims) = token else {
        return None;
    };
    let ours = &claims.service_account.as_ref()?.namespace;
    let failure = case.failure(Api::Harvester).map(|why| why.kind);
    let is_forbidden = failure == Some(UnavailableKind::Forbidden);
    let is_not_found = matches!(case.identity.vm, OwnVm::NotFound(_));
    if *ours == harvester.namespace || !(is_forbidden || is_not_found) {
        return None;
    }
    let origin = match &case.settings.harvester.namespace {
        Some(_) => "`[harvester] namespace`".to_owned(),
        None => harvester.kubeconfig.display().to_string(),
    };
    let text = format!(
        "the token belongs to namespace {ours}, {origin} has {}, and no VM there matches this node or can be read",
        harvester.namespace
    );
    Some(Finding::new(Code::CredentialNamespaceDiffers, text))
}

/// Returns a finding for a configured path that does not exist, while the credential in use is elsewhere.
fn named_in_vain(case: &Case<'_>, places: &[Place]) -> Option<Finding> {
    let used = &case.observation.harvester.known()?.kubeconfig;
    let mut missing = places.iter().filter(|one| one.content == Content::Nothing);
    let (setting, place) = missing.find_map(|one| Some((one.candidate.named_by.as_ref()?, one)))?;
    let path = &place.candidate.path;
    let link = place.dangling.as_ref();
    let link = link.map_or_else(String::new, |target| {
        format!(" is a symbolic link to {}, which", target.display())
    });
    let text = format!(
        "{setting} is {}, which{link} does not exist; the kubeconfig in use is {}",
        path.display(),
        used.display()
    );
    let finding = Finding::new(Code::CredentialNotAtNamedPath, text);
    if place.is_steered {
        return Some(finding.with_remedy(STEERED));
    }
    // `install` would replace the link by a file.
    // Below a file system that is not mounted, no directory may be created.
    let target = place.dangling.as_ref();
    let (path, option) = target.map_or((path, "-D "), |target| (target, ""));
    let [used, path] = [used, path].map(|path| shell_path(path));
    let command = format!("install {option}-T -m 0600 {used} {path}");
    Some(finding.with_commands(vec![command]))
}

#[cfg(test)]
mod tests;
