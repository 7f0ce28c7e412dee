// SPDX-License-Identifier: Apache-2.0
//! Reads the identity and the expiry of a client certificate.

use rustls::pki_types::CertificateDer;

use crate::access::x509::Certificate;
use crate::facts::names::NodeName;
use crate::sys::escape::one_line;

/// The prefix of a kubelet's common name; the Node name follows.
const NODE_PREFIX: &str = "system:node:";

/// The common name of all kubelets in RKE1.
const SHARED_NODE: &str = "system:node";

/// The organization of all kubelets.
const NODE_GROUP: &str = "system:nodes";

/// The maximum number of characters of a common name that is shown: that of a Node name.
const NAME_SHOWN: usize = 253;

/// The owner of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeIdentity {
    /// The kubelet of this node; the API server compares exactly this name.
    Node(NodeName),
    /// RKE1's kubelets share one certificate, which has no Node name.
    SharedRke1,
    /// The certificate is not a kubelet's.
    NotANode {
        /// The common name, in one line, truncated.
        common_name: String,
    },
}

const NONE: &str = "there is no certificate";
const MALFORMED: &str = "the certificate cannot be parsed";
const NO_COMMON_NAME: &str = "the certificate has no common name";
const NOT_A_NODE_NAME: &str =
    "the common name of the certificate is `system:node:` without a valid Node name";

/// Reads the Node name from the leaf of a kubelet's chain.
pub fn node_name(chain: &[CertificateDer<'_>]) -> Result<NodeIdentity, &'static str> {
    let leaf = leaf(chain)?;
    // The API server uses the last one.
    let common_name = leaf
        .subject
        .common_names()
        .next_back()
        .ok_or(NO_COMMON_NAME)?;
    let is_node = leaf.subject.organizations().any(|name| name == NODE_GROUP);
    match common_name.strip_prefix(NODE_PREFIX) {
        Some(name) if is_node => NodeName::parse(name)
            .map(NodeIdentity::Node)
            .map_err(|_| NOT_A_NODE_NAME),
        None if is_node && common_name == SHARED_NODE => Ok(NodeIdentity::SharedRke1),
        _ => Ok(NodeIdentity::NotANode {
            common_name: one_line(common_name, NAME_SHOWN).into_owned(),
        }),
    }
}

/// Returns the last second of the leaf's validity, since 1970.
pub fn expires(chain: &[CertificateDer<'_>]) -> Result<i64, &'static str> {
    Ok(leaf(chain)?.not_after)
}

fn leaf(chain: &[CertificateDer<'_>]) -> Result<Certificate, &'static str> {
    let leaf = chain.first().ok_or(NONE)?;
    Certificate::parse(leaf).ok_or(MALFORMED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::{Authority, NOT_AFTER};

    fn identity(common_name: &str, organisation: &str) -> Result<NodeIdentity, &'static str> {
        let client = Authority::new("guest-ca").client(common_name, organisation);
        node_name(&[client.der])
    }

    fn not_a_node(common_name: &str) -> Result<NodeIdentity, &'static str> {
        Ok(NodeIdentity::NotANode {
            common_name: common_name.to_owned(),
        })
    }

    #[test]
    fn the_node_name_follows_system_node() {
        let name = NodeName::parse("pool1-abcde").unwrap();
        assert_eq!(
            identity("system:node:pool1-abcde", "system:nodes"),
            Ok(NodeIdentity::Node(name))
        );
    }

    #[test]
    fn others_are_no_nodes() {
        assert_eq!(
            identity("system:node", "system:nodes"),
            Ok(NodeIdentity::SharedRke1)
        );
        assert_eq!(
            identity("system:admin", "system:masters"),
            not_a_node("system:admin")
        );
        assert_eq!(
            identity("system:node:a", "system:masters"),
            not_a_node("system:node:a")
        );
        assert_eq!(identity("a\nb", "x"), not_a_node("a\\nb"));
        let long = "x".repeat(100_000);
        let shown = format!("{}…", &long[..NAME_SHOWN - 1]);
        assert_eq!(identity(&long, "x"), not_a_node(&shown));
        for name in ["system:node:", "system:node:A", "system:node:../a"] {
            assert_eq!(identity(name, "system:nodes"), Err(NOT_A_NODE_NAME));
        }
    }

    #[test]
    fn the_life_and_the_names_are_those_of_the_leaf() {
        let authority = Authority::new("guest-ca");
        let client = authority.client("system:node:a", "system:nodes");
        let chain = [client.der, authority.der()];
        assert_eq!(expires(&chain), Ok(NOT_AFTER));
    }

    #[test]
    fn rubbish_is_an_error_and_no_panic() {
        assert_eq!(node_name(&[]), Err(NONE));
        let der = Authority::new("guest-ca").der();
        for end in [0, 1, 10, der.len() - 1] {
            let cut = CertificateDer::from(der[..end].to_vec());
            assert_eq!(expires(&[cut]), Err(MALFORMED));
        }
    }
}
