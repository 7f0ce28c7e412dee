// SPDX-License-Identifier: Apache-2.0
//! Facts of a credential without its secrets: the name of our Node, our namespace, the service account and the expiry.

use crate::access::certificate::{self, NodeIdentity};
use crate::access::token::{self, Claims, TokenKind};
use crate::config::Settings;
use crate::facts::names::Namespace;
use crate::facts::observation::{Harvester, Kubelet};
use crate::facts::{Unavailable, UnavailableKind};
use crate::observe::api_access::ApiLink;

/// Returns the kubelet's credential without its secrets. The certificate names the Node, or else our configuration.
pub fn kubelet(link: &ApiLink, settings: &Settings) -> Result<Kubelet, Unavailable> {
    let certificate = link.credential.client_certificate.as_ref();
    let chain_of = certificate.map(|certificate| certificate.chain.as_slice());
    let file = link.credential.kubeconfig.display();
    let malformed = |text: String| Unavailable::new(UnavailableKind::Credential, text);
    let named = chain_of.map(certificate::node_name);
    let node_name = match (&settings.guest.node_name, named) {
        (_, Some(Ok(NodeIdentity::Node(name)))) => name,
        (Some(name), _) => name.clone(),
        (None, named) => {
            let problem = match named {
                Some(Ok(NodeIdentity::NotANode { common_name })) => {
                    format!("the certificate of `{file}` is for `{common_name}`, not for a node")
                }
                Some(Ok(_)) => format!(
                    "the certificate of `{file}` is shared by all nodes (RKE1) and has no node name"
                ),
                Some(Err(problem)) => return Err(malformed(format!("`{file}`: {problem}"))),
                None => format!("`{file}` has no client certificate"),
            };
            let text = format!("{problem}; set `guest_cluster.node_name`");
            return Err(malformed(text));
        }
    };
    let claims = claims(link).filter(|_| chain_of.is_none());
    let claims = claims.unwrap_or_default();
    let expires = chain_of.and_then(|chain| certificate::expires(chain).ok());
    Ok(Kubelet {
        kubeconfig: link.credential.kubeconfig.clone(),
        server: link.client.server().to_owned(),
        node_name,
        expires: expires.or(claims.expires),
        account: claims.subject,
    })
}

/// Returns the claims of the token, if it has any.
fn claims(link: &ApiLink) -> Option<Claims> {
    match token::classify(link.credential.token.as_ref()?) {
        TokenKind::Jwt(claims) => Some(claims),
        TokenKind::Rancher { .. } | TokenKind::Opaque => None,
    }
}

/// Returns the Harvester credential without its secrets.
pub fn harvester(link: &ApiLink, settings: &Settings) -> Harvester {
    let claims = claims(link).unwrap_or_default();
    let account = claims.service_account.as_ref();
    let configured = settings.harvester.namespace.as_ref();
    let namespace = configured.or(link.credential.namespace.as_ref());
    let namespace = namespace.or(account.map(|account| &account.namespace));
    let namespace = namespace.cloned().unwrap_or_else(Namespace::of_kubeconfig);
    Harvester {
        kubeconfig: link.credential.kubeconfig.clone(),
        server: link.client.server().to_owned(),
        namespace,
        account: claims.subject,
        expires: claims.expires,
        secret: claims.secret,
    }
}
