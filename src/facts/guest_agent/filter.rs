// SPDX-License-Identifier: Apache-2.0
//! The commands (RPCs) that the configuration of qemu-ga blocks.
//!
//! qemu-ga merges two lists from its configuration file and its command line (`config_load`, `config_parse` in qga/main.c):
//! allowed commands, so that all others are blocked, and blocked commands. Distributions put the command line into variables of a
//! file that their unit names, so these files are parsed like systemd does, without a shell.

use std::collections::BTreeMap;

/// The configuration file of qemu-ga.
pub const CONFIGURATION: &str = "/etc/qemu/qemu-ga.conf";

/// The command-line variables of distributions, for a unit that cannot be read: EL 7 and 8, EL 9, EL >= 9.4, Fedora.
pub const WITHOUT_SYSTEMD: [&str; 4] = [
    "--block-rpcs=${BLACKLIST_RPC}",
    "--block-rpcs=${BLOCK_RPCS}",
    "$FILTER_RPC_ARGS",
    "$QEMU_GA_ARGS",
];

/// Variables by name.
pub type Variables = BTreeMap<String, Variable>;

/// A variable in a file such as `/etc/sysconfig/qemu-ga`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The value, without quotes.
    pub value: String,
    /// The file.
    pub file: &'static str,
}

/// A command in a list, and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The command, such as `guest-exec`.
    pub rpc: String,
    /// The origin as text: the key and the file.
    pub origin: String,
}

/// The two lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RpcFilter {
    /// The allowed commands. Unless empty, all others are blocked.
    pub allowed: Vec<Listed>,
    /// The blocked commands.
    pub blocked: Vec<Listed>,
}

/// The reason why a command is blocked, with the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Block<'a> {
    /// The command is in the list of blocked commands.
    Listed(&'a str),
    /// The command is not in the list of allowed commands.
    NotAllowed(&'a str),
}

/// One of the two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RpcList {
    Allowed,
    Blocked,
}

impl RpcFilter {
    /// Returns the reason why `rpc` is blocked; `None` if it is allowed.
    pub fn block(&self, rpc: &str) -> Option<Block<'_>> {
        let named = |list: &'_ &Listed| list.rpc == rpc;
        if let Some(listed) = self.blocked.iter().find(named) {
            return Some(Block::Listed(&listed.origin));
        }
        match self.allowed.first() {
            Some(first) if !self.allowed.iter().any(|listed| listed.rpc == rpc) => {
                Some(Block::NotAllowed(&first.origin))
            }
            _ => None,
        }
    }

    /// Adds the lists of the configuration file.
    pub fn add_configuration(&mut self, text: &str) {
        for (key, value) in assignments_of_group(text, "general") {
            let list = match key {
                "block-rpcs" | "blacklist" => RpcList::Blocked,
                "allow-rpcs" => RpcList::Allowed,
                _ => continue,
            };
            self.add(list, &value, &format!("`{key}` in {CONFIGURATION}"));
        }
    }

    /// Adds the lists of a command line. `variables` are those of its unit.
    pub fn add_arguments(&mut self, arguments: &[&str], variables: &Variables) {
        let mut wanting = None;
        for argument in arguments {
            for (word, origin) in expand(argument, variables) {
                let origin = origin.unwrap_or_else(|| "the command line of its unit".to_owned());
                if let Some(list) = wanting.take() {
                    self.add(list, &word, &origin);
                    continue;
                }
                match option(&word) {
                    Some((list, Some(value))) => self.add(list, value, &origin),
                    Some((list, None)) => wanting = Some(list),
                    None => {}
                }
            }
        }
    }

    fn add(&mut self, list: RpcList, commands: &str, origin: &str) {
        let commands = commands.split(',').map(str::trim);
        let listed = commands.filter(|rpc| !rpc.is_empty()).map(|rpc| Listed {
            rpc: rpc.to_owned(),
            origin: origin.to_owned(),
        });
        match list {
            RpcList::Allowed => self.allowed.extend(listed),
            RpcList::Blocked => self.blocked.extend(listed),
        }
    }
}

/// Parses a word of the command line. Returns the list, and its commands unless they are in the next word (getopt_long(3)).
fn option(word: &str) -> Option<(RpcList, Option<&str>)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        return match name {
            "block-rpcs" | "blacklist" => Some((RpcList::Blocked, value)),
            "allow-rpcs" => Some((RpcList::Allowed, value)),
            _ => None,
        };
    }
    let (list, rest) = match (word.strip_prefix("-b"), word.strip_prefix("-a")) {
        (Some(rest), _) => (RpcList::Blocked, rest),
        (_, Some(rest)) => (RpcList::Allowed, rest),
        _ => return None,
    };
    Some((list, Some(rest).filter(|rest| !rest.is_empty())))
}

/// Splits an argument into words like systemd (systemd.service(5), "Command lines"): `$NAME` alone is split at whitespace,
/// `${NAME}` within a word is not. Returns each word with the variable and file of its origin.
fn expand(argument: &str, variables: &Variables) -> Vec<(String, Option<String>)> {
    let origin = |name: &str, file: &str| Some(format!("`{name}` in {file}"));
    if let Some(name) = argument.strip_prefix('$').filter(|name| is_name(name)) {
        return match variables.get(name) {
            Some(Variable { value, file }) => value
                .split_whitespace()
                .map(|word| (word.to_owned(), origin(name, file)))
                .collect(),
            None => Vec::new(),
        };
    }
    let mut word = String::new();
    let mut from = None;
    let mut rest = argument;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}').filter(|(name, _)| is_name(name)) else {
            break;
        };
        word.push_str(before);
        if let Some(Variable { value, file }) = variables.get(name) {
            word.push_str(value);
            from = from.or_else(|| origin(name, file));
        }
        rest = tail;
    }
    word.push_str(rest);
    vec![(word, from)]
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the keys of a group of a key file (GLib's `GKeyFile`).
fn assignments_of_group<'a>(text: &'a str, group: &str) -> impl Iterator<Item = (&'a str, String)> {
    let mut inside = false;
    text.lines().map(str::trim).filter_map(move |line| {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            inside = name == group;
            return None;
        }
        let (key, value) = line
            .split_once('=')
            .filter(|_| inside && !line.starts_with('#'))?;
        Some((key.trim(), value.trim().to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin<'a>(filter: &'a RpcFilter, rpc: &str) -> Option<&'a str> {
        filter.block(rpc).map(|block| match block {
            Block::Listed(origin) | Block::NotAllowed(origin) => origin,
        })
    }

    fn variables(set: &[(&str, &str)]) -> Variables {
        let file = "/etc/sysconfig/qemu-ga";
        set.iter()
            .map(|(name, value)| {
                let value = (*value).to_owned();
                ((*name).to_owned(), Variable { value, file })
            })
            .collect()
    }

    #[test]
    fn every_distribution_says_it_in_its_own_way() {
        for (arguments, set, blocked, by) in [
            // EL 7 and 8.
            (
                &[
                    "/usr/bin/qemu-ga",
                    "--blacklist=${BLACKLIST_RPC}",
                    "-F${HOOK}",
                ][..],
                &[("BLACKLIST_RPC", "guest-exec,guest-info")][..],
                "guest-info",
                "`BLACKLIST_RPC` in /etc/sysconfig/qemu-ga",
            ),
            // EL 9.
            (
                &["/usr/bin/qemu-ga", "--block-rpcs=${BLOCK_RPCS}"],
                &[("BLOCK_RPCS", "guest-exec, guest-ping")],
                "guest-ping",
                "`BLOCK_RPCS` in /etc/sysconfig/qemu-ga",
            ),
            // EL >= 9.4.
            (
                &["/usr/bin/qemu-ga", "$FILTER_RPC_ARGS"],
                &[("FILTER_RPC_ARGS", "--allow-rpcs=guest-ping,guest-info")],
                "guest-get-osinfo",
                "`FILTER_RPC_ARGS` in /etc/sysconfig/qemu-ga",
            ),
            // Fedora.
            (
                &["/usr/bin/qemu-ga", "$QEMU_GA_ARGS"],
                &[("QEMU_GA_ARGS", "-v -b guest-get-users")],
                "guest-get-users",
                "`QEMU_GA_ARGS` in /etc/sysconfig/qemu-ga",
            ),
            (
                &["qemu-ga", "-bguest-shutdown"],
                &[],
                "guest-shutdown",
                "the command line of its unit",
            ),
            (
                &["qemu-ga", "--block-rpcs", "guest-shutdown"],
                &[],
                "guest-shutdown",
                "the command line of its unit",
            ),
        ] {
            let mut filter = RpcFilter::default();
            filter.add_arguments(arguments, &variables(set));
            assert_eq!(origin(&filter, blocked), Some(by), "{arguments:?}");
            assert_eq!(
                origin(&filter, "guest-ping").is_some(),
                blocked == "guest-ping"
            );
        }
    }

    #[test]
    fn the_configuration_file_counts_in_its_group_only_and_both_sources_add_up() {
        let mut filter = RpcFilter::default();
        filter.add_configuration(
            "[other]\nblock-rpcs=guest-ping\n[general]\n#block-rpcs=guest-info\nblock-rpcs = guest-exec,guest-get-fsinfo\n",
        );
        filter.add_arguments(&["qemu-ga", "-b", "guest-get-users"], &Variables::new());
        for rpc in ["guest-exec", "guest-get-fsinfo", "guest-get-users"] {
            assert!(origin(&filter, rpc).is_some(), "{rpc}");
        }
        for rpc in ["guest-ping", "guest-info"] {
            assert_eq!(origin(&filter, rpc), None);
        }
        assert_eq!(
            origin(&filter, "guest-exec"),
            Some("`block-rpcs` in /etc/qemu/qemu-ga.conf")
        );
    }

    #[test]
    fn a_block_beside_an_allowance_wins() {
        let mut filter = RpcFilter::default();
        filter.add_configuration("[general]\nallow-rpcs=guest-ping,guest-info\n");
        filter.add_arguments(&["qemu-ga", "-bguest-info"], &Variables::new());
        assert_eq!(origin(&filter, "guest-ping"), None);
        assert_eq!(
            origin(&filter, "guest-info"),
            Some("the command line of its unit")
        );
        assert!(origin(&filter, "guest-shutdown").is_some());
    }

    #[test]
    fn unknown_variables_and_hostile_text_expand_to_nothing_and_end() {
        let mut filter = RpcFilter::default();
        let arguments = [
            "--block-rpcs=${NOT_SET}",
            "$NOT_SET",
            "${",
            "${}",
            "$",
            "-b",
        ];
        filter.add_arguments(&arguments, &Variables::new());
        filter.add_configuration("[general\nblock-rpcs\n[]\n=\n");
        assert_eq!(filter, RpcFilter::default());
    }
}
