// SPDX-License-Identifier: Apache-2.0
//! `rbac`: prints the roles on Harvester with only the permissions that the agent needs, for `kubectl apply`.

pub mod manifest;
pub mod permissions;

use clap::Args;

use super::answer::{Answer, Exit, Output};
use super::process::Process;
use crate::access::token::{self, TokenKind};
use crate::commands::rbac::manifest::Wanted;
use crate::config::{self, Settings};
use crate::facts::names::{Namespace, ServiceAccount, VmName};
use crate::observe::api_access::{ApiLink, Connections};
use crate::observe::{credentials, distribution};
use crate::sys::escape::{json_text, one_line};
use crate::sys::root::Root;

/// The maximum length of a displayed reason or path, in characters.
const SHOWN_MAX: usize = 1000;

/// The text after the options in the help.
pub const EXAMPLES: &str = "\
Examples:
  Print the roles for the service account in use:
    harvester-node-agent rbac > rbac.yaml
  Apply them with kubectl as an administrator of Harvester:
    kubectl apply -f rbac.yaml
  Revoke them (without --create-account and --addons):
    kubectl delete -f rbac.yaml
  Create a service account with a token that does not expire, also for the
  cloud provider and the CSI driver:
    harvester-node-agent rbac --subject NAMESPACE:harvester-node-agent \\
      --create-account --addons > rbac.yaml
    kubectl apply -f rbac.yaml
  Then create a kubeconfig with that token:
    harvester-node-agent kubeconfig --help

Run it once per guest cluster: its nodes share one service account. The roles allow only what the configuration of this \
node needs: no rule for a source that [topology] sources omits.

Exit status: 0 ok; 1 the service account is unknown; 2 usage error; 78 invalid configuration.";

/// What `rbac` takes. The effective configuration counts too: a source that it omits is not allowed.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Service account on Harvester that gets the roles [default: that of the Harvester kubeconfig]
    #[arg(long, value_name = "NAMESPACE:NAME", value_parser = ServiceAccount::parse)]
    pub subject: Option<ServiceAccount>,
    /// Namespace of the VMs [default: that of the kubeconfig, of the configuration, or of --subject]
    #[arg(long, value_name = "NAMESPACE", value_parser = Namespace::parse)]
    pub namespace: Option<Namespace>,
    /// Allow only this VM; repeat for each VM of the guest cluster
    ///
    /// The agent then cannot search for its VM: each node must have the name of its VM, or `harvester.vm` in its configuration.
    #[arg(long, value_name = "NAME", value_parser = VmName::parse)]
    pub vm: Vec<VmName>,
    /// Also create the service account and a Secret with its token
    #[arg(long, requires = "subject")]
    pub create_account: bool,
    /// Also bind the roles of the Harvester cloud provider and CSI driver, which use the same kubeconfig
    #[arg(long)]
    pub addons: bool,
}

/// Prints the manifest, or the reason why the service account is unknown and how to set it.
pub fn run(process: &Process, options: Options) -> Answer {
    let root = &process.root;
    let settings = match config::load(root, process.config.as_deref()) {
        Ok(loaded) => loaded.settings,
        Err(errors) => return Answer::stderr(format!("{errors}\n"), Exit::Configuration),
    };
    let (account, credentials_namespace) = match options.subject {
        Some(account) => (account, None),
        None => match holder(root, &settings) {
            Ok((account, namespace)) => (account, Some(namespace)),
            Err(stderr) => return Answer::stderr(format!("error: {stderr}\n"), Exit::Failed),
        },
    };
    let namespace = options
        .namespace
        .or(credentials_namespace)
        .or_else(|| settings.harvester.namespace.clone())
        .unwrap_or_else(|| account.namespace.clone());
    let wanted = Wanted {
        account,
        namespace,
        vms: options.vm.into_iter().collect(),
        settings,
        create_account: options.create_account,
        addons: options.addons,
    };
    let objects = manifest::objects(&wanted);
    let text = match process.output {
        Output::Text => manifest::yaml(&wanted, &objects),
        Output::Json => json_text(&manifest::list(objects)),
    };
    Answer::new(text, Exit::Ok)
}

/// Returns the service account of the agent's credential, and the namespace in which the agent searches for its VM.
fn holder(root: &Root, settings: &Settings) -> Result<(ServiceAccount, Namespace), String> {
    let (distributions, _) = distribution::read_distribution(root);
    let mut connections = Connections::default();
    connections.refresh(root, settings, &distributions);
    let link = connections.harvester.link().map_err(|why| {
        format!(
            "{}\nSet the service account (on Harvester: kubectl get serviceaccounts -A):\n  \
             harvester-node-agent rbac --subject NAMESPACE:NAME\n\
             Or set the kubeconfig with its token in the configuration: [harvester] kubeconfig",
            one_line(&why.text, SHOWN_MAX)
        )
    })?;
    let harvester = credentials::harvester(link, settings);
    Ok((account(link, &harvester.namespace)?, harvester.namespace))
}

/// Returns the service account, or a description of the credential if it has none, and how to create one.
fn account(link: &ApiLink, namespace: &Namespace) -> Result<ServiceAccount, String> {
    let observation = match link.credential.token.as_ref().map(token::classify) {
        Some(TokenKind::Jwt(claims)) => match (claims.service_account, claims.subject) {
            (Some(account), _) => return Ok(account),
            (None, Some(subject)) => format!("a token of `{}`", subject.escape_debug()),
            (None, None) => "a token without a subject".to_owned(),
        },
        Some(TokenKind::Rancher { name }) => {
            format!("the Rancher token `{name}`, which belongs to a user and may expire")
        }
        Some(TokenKind::Opaque) => "a token without a subject".to_owned(),
        None => "no token, but a client certificate or a user name".to_owned(),
    };
    let file = link.credential.kubeconfig.to_string_lossy();
    let file = one_line(&file, SHOWN_MAX);
    Err(format!(
        "`{file}` has {observation}; roles are bound to a service account\n\
         Print one with its roles, and those of the cloud provider and the CSI driver, which read the same file:\n  \
         harvester-node-agent rbac --subject {namespace}:harvester-node-agent --create-account --addons\n\
         Then create a kubeconfig with its token: harvester-node-agent kubeconfig --help"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::tree;

    #[test]
    fn the_example_is_what_the_command_prints() {
        let (_dir, root) = tree();
        let options = Options {
            subject: ServiceAccount::parse("default:harvester-node-agent").ok(),
            ..Options::default()
        };
        let text = run(&Process::plain(root), options).text;
        harvester_lab::expected::is_expected("packaging/rbac/example.yaml", &text, str::to_owned);
    }
}
