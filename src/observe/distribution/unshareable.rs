// SPDX-License-Identifier: Apache-2.0
//! Settings that belong to one node and must not be in an image, and their form in the configuration files.
//!
//! With a form other than [`Form::Other`], the lines that a `sed` command deletes must hold the whole setting and nothing else. So
//! each such line is parsed separately, and the result is compared with that of the whole file.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::settings::{
    HOSTNAME_OVERRIDE, KUBELET_ARGUMENT, NODE_LABELS, kubelet_argument, scalars,
};
use crate::facts::distribution::{Form, Matter, Unshareable};
use crate::observe::environment_file::{flags, variables};
use crate::sys::document::yaml::{YamlValue, parse};

/// Keys whose values are secrets: only their presence is recorded.
const SECRET: [&str; 5] = [
    "token",
    "agent-token",
    "vpn-auth",
    "etcd-s3-secret-key",
    "etcd-s3-session-token",
];

/// A key whose value is secret if its URL contains a password.
const DATABASE: &str = "datastore-endpoint";

/// Keys that name a file with a secret.
const SECRET_FILE: [&str; 3] = ["token-file", "agent-token-file", "vpn-auth-file"];

/// The label that identifies the machine. All labels with a topology prefix are also unshareable.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Prefix of topology labels before Kubernetes 1.17.
const OLD_TOPOLOGY: &str = "failure-domain.beta.kubernetes.io/";

/// Checks an entry of a configuration file; `name` is its key without a `+`.
pub(super) fn of_entry(
    name: &str,
    key: &str,
    value: &YamlValue,
    text: &[u8],
    path: &Path,
) -> Option<Unshareable> {
    let values = Zeroizing::new(scalars(value).ok()?);
    let lines = || std::str::from_utf8(text).unwrap_or_default();
    let (matter, form) = if name == "node-label" {
        let topology = values
            .iter()
            .any(|labels| topology(labels).next().is_some());
        (
            topology.then_some(Matter::Topology)?,
            form_of_labels(key, &values, lines()),
        )
    } else if name == KUBELET_ARGUMENT {
        let matter = values.iter().find_map(|argument| of_argument(argument))?;
        (matter, Form::Other)
    } else {
        let joined = Zeroizing::new(values.concat());
        (matter(name, &joined)?, form_of_value(key, &values, lines()))
    };
    Some(unshareable(matter, key, path, form))
}

/// Checks a variable of an environment file; `suffix` is its name without the prefix of the distribution.
pub(super) fn of_variable(
    suffix: &str,
    variable: &str,
    value: &str,
    text: &str,
    path: &Path,
) -> Option<Unshareable> {
    let name = suffix.trim_start_matches('_').replace('_', "-");
    let matter = matter(&name.to_ascii_lowercase(), value)?;
    let is_whole = |line: &str| {
        // An open quote or a backslash at the end of the line continues on the next line.
        let is_even = |quote| line.matches(quote).count() % 2 == 0;
        !line.contains('\\') && is_even('"') && is_even('\'')
    };
    let mut lines = text.lines().filter(|line| {
        let name = line.split_once('=').map(|(name, _)| name.trim());
        name == Some(variable)
    });
    let form = match lines.all(is_whole) {
        true => Form::VariableLine,
        false => Form::Other,
    };
    Some(unshareable(matter, variable, path, form))
}

/// Checks a kubelet flag in an environment file.
pub(super) fn of_flag(flag: &str, value: &str, text: &str, path: &Path) -> Option<Unshareable> {
    let (matter, kept) = match flag {
        "hostname-override" if !value.is_empty() => (Matter::NodeName, String::new()),
        "node-labels" if topology(value).next().is_some() => (Matter::Topology, others(value)),
        _ => return None,
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=,:".contains(&byte);
    let written = [" ", "="]
        .map(|between| format!("--{flag}{between}{value}"))
        .into_iter()
        .find(|written| text.contains(written.as_str()))
        .filter(|_| value.bytes().all(is_plain));
    let new = match kept.as_str() {
        "" => String::new(),
        kept => format!("--{flag}={kept}"),
    };
    // The command replaces text; the flag must be gone when the result is parsed.
    let is_gone = |old: &String| {
        let after = text.replace(old.as_str(), &new);
        let after = variables(&after);
        let mut after = after.iter().flat_map(|(_, line)| flags(line));
        !after.any(|(name, found)| name == flag && found == value)
    };
    let form = match written.filter(is_gone) {
        Some(old) => Form::Flag { old, new },
        None => Form::Other,
    };
    Some(unshareable(matter, &format!("--{flag}"), path, form))
}

fn unshareable(matter: Matter, key: &str, path: &Path, form: Form) -> Unshareable {
    Unshareable {
        matter,
        key: key.to_owned(),
        origin: path.to_owned(),
        form,
    }
}

/// Checks a flag that is passed to the kubelet unchanged.
fn of_argument(argument: &str) -> Option<Matter> {
    match kubelet_argument(argument)? {
        (HOSTNAME_OVERRIDE, name) if !name.is_empty() => Some(Matter::NodeName),
        (NODE_LABELS, labels) => topology(labels).next().map(|_| Matter::Topology),
        _ => None,
    }
}

/// Checks a setting other than a label.
fn matter(name: &str, value: &str) -> Option<Matter> {
    match () {
        () if value.is_empty() => None,
        () if SECRET.contains(&name) => Some(Matter::Secret),
        () if name == DATABASE && has_password(value) => Some(Matter::Secret),
        () if SECRET_FILE.contains(&name) => Some(Matter::SecretFile(PathBuf::from(value))),
        () if name == "node-name" => Some(Matter::NodeName),
        () => None,
    }
}

/// Reports whether the URL of a database contains a password: `scheme://user:password@host`, the same without a scheme (MySQL), or
/// a parameter of PostgreSQL.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let user = rest.rsplit_once('@').map(|(user, _)| user);
    let password = user.and_then(|user| user.split_once(':'));
    password.is_some_and(|(_, password)| !password.is_empty()) || rest.contains("password=")
}

/// Returns the keys of the labels that describe the topology or identity of a machine.
fn topology(labels: &str) -> impl Iterator<Item = &str> {
    let keys = labels.split(',').map(|pair| {
        let key = pair.split_once('=').map_or(pair, |(key, _)| key);
        key.trim()
    });
    keys.filter(|key| {
        (key.starts_with("topology.") && key.contains('/'))
            || key.starts_with(OLD_TOPOLOGY)
            || *key == HOSTNAME_LABEL
    })
}

/// Returns the labels that any machine may have.
fn others(labels: &str) -> String {
    let pairs = labels
        .split(',')
        .filter(|pair| topology(pair).next().is_none());
    pairs.collect::<Vec<_>>().join(",")
}

fn form_of_value(key: &str, values: &[String], text: &str) -> Form {
    let mut lines = text.lines().filter(|line| begins_with_key(line, key));
    match (lines.next(), lines.next()) {
        (Some(line), None) if says(line, key, values) => Form::YamlLine,
        _ => Form::Other,
    }
}

fn form_of_labels(key: &str, values: &[String], text: &str) -> Form {
    let is_topology = |labels: &&String| others(labels).is_empty();
    let gone: Vec<&String> = values.iter().filter(is_topology).collect();
    let is_all = gone.len() == values.len();
    let whole = form_of_value(key, values, text);
    if is_all && whole == Form::YamlLine {
        return whole;
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let labels: Vec<String> = gone
        .iter()
        .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()))
        .filter(|label| label.bytes().all(is_plain))
        .collect();
    // The list items that the command matches, each parsed separately.
    let items = text.lines().filter_map(item).filter(|item| {
        let item = item.trim_start_matches(['"', '\'']);
        let key = item.split_once('=').map(|(key, _)| key);
        key.is_some_and(|key| labels.iter().any(|label| label == key))
    });
    let items = items.map(|item| {
        let value = parse(item.as_bytes()).ok()?;
        scalars(&value).ok()?.into_iter().next()
    });
    let is_each_whole = items.eq(gone.iter().map(|pair| Some((*pair).clone())));
    let key_is_alone = form_of_value(key, &[], text) == Form::YamlLine;
    let mixed = values
        .iter()
        .any(|labels| !others(labels).is_empty() && topology(labels).next().is_some());
    match is_each_whole && key_is_alone && !mixed && labels.len() == gone.len() {
        true => Form::YamlItems { labels, is_all },
        false => Form::Other,
    }
}

/// Reports whether the command that deletes the line of a key matches this line.
fn begins_with_key(line: &str, key: &str) -> bool {
    let is_quote = ['"', '\''];
    let line = line.strip_prefix(is_quote).unwrap_or(line);
    line.strip_prefix(key).is_some_and(|rest| {
        let rest = rest.strip_prefix(is_quote).unwrap_or(rest);
        rest.trim_start().starts_with(':')
    })
}

/// Reports whether a line alone gives the key the same values as the whole file.
fn says(line: &str, key: &str, values: &[String]) -> bool {
    let Ok(YamlValue::Map(entries)) = parse(line.as_bytes()) else {
        return false;
    };
    match entries.as_slice() {
        [(name, value)] => {
            let found = scalars(value).map(Zeroizing::new);
            name == key && found.is_ok_and(|found| *found == values)
        }
        _ => false,
    }
}

/// Returns the text after the dash of a list item.
fn item(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('-')?;
    rest.starts_with(char::is_whitespace)
        .then(|| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(key: &str, text: &str) -> Form {
        let Ok(YamlValue::Map(entries)) = parse(text.as_bytes()) else {
            panic!("{text}");
        };
        let (_, value) = entries.iter().find(|(name, _)| name == key).unwrap();
        let path = Path::new("/f");
        let name = key.trim_end_matches('+');
        of_entry(name, key, value, text.as_bytes(), path)
            .unwrap()
            .form
    }

    #[test]
    fn a_value_that_does_not_stand_whole_on_the_line_of_its_key_is_of_no_simple_form() {
        for text in [
            "token: K10",
            "a: b\ntoken : 'K10'  # ours",
            "\"token\": 12\r\na: b\r\n",
            "token: [K10]",
        ] {
            assert_eq!(form("token", text), Form::YamlLine, "{text}");
        }
        for text in [
            "server: https://x:9345\ntoken: >-\n  K10",
            "server: https://x:9345\ntoken:\n  K10",
            "token: K10\n  more",
            "token: \"K10\n  more\"",
            "token:\n- K10",
            "  token: K10\n  a: b",
            "# ours\n{token: K10, a: b}",
            "# ours\n{\ntoken: K10,\na: b}",
            "{\"token\": \"K10\"}",
            "? token\n: K10",
            "a: |\n  x\n\n\"tok\\u0065n\": K10",
        ] {
            assert_eq!(form("token", text), Form::Other, "{text}");
        }
    }

    #[test]
    fn labels_leave_the_file_with_their_own_lines_or_with_the_file() {
        let zone = "topology.kubernetes.io/zone";
        let items = |is_all| Form::YamlItems {
            labels: vec![zone.to_owned()],
            is_all,
        };
        for (text, expected) in [
            (format!("node-label: {zone}=z"), Form::YamlLine),
            (format!("node-label:\n- {zone}=z\n"), items(true)),
            (
                format!("node-label:\n  - \"{zone}=z\"\n  - a=b\n"),
                items(false),
            ),
            (format!("node-label: [a=b, {zone}=z]"), Form::Other),
            (format!("node-label:\n- a=b,{zone}=z"), Form::Other),
            (format!("node-label:\n- {zone}=z\n  more"), Form::Other),
            (
                format!("node-label:\n- {zone}=z\nx:\n- {zone}=y"),
                Form::Other,
            ),
            (
                format!("node-label: # [\n- >-\n  {zone}=z\n- a=b"),
                Form::Other,
            ),
        ] {
            assert_eq!(form("node-label", &text), expected, "{text}");
        }
    }

    #[test]
    fn a_variable_or_flag_that_goes_on_in_the_next_line_is_of_no_simple_form() {
        let path = Path::new("/f");
        for (text, expected) in [
            ("A=1\n K3S_TOKEN = 'K10'\n", Form::VariableLine),
            ("K3S_TOKEN=\\\nK10", Form::Other),
            ("K3S_TOKEN=\"K10\nmore\"", Form::Other),
        ] {
            let found = of_variable("_TOKEN", "K3S_TOKEN", "K10", text, path);
            assert_eq!(found.unwrap().form, expected, "{text}");
        }
        for (text, is_flag) in [
            ("A=\"--hostname-override=w-1 --v=2\"", true),
            ("A=--hostname-override w-1", true),
            ("A=--hostname-override=\"w-1\"", false),
            ("A=-hostname-override=w-1", false),
            ("A=--hostname-\\\noverride=w-1", false),
        ] {
            let form = of_flag("hostname-override", "w-1", text, path)
                .unwrap()
                .form;
            assert_eq!(form != Form::Other, is_flag, "{text}");
        }
    }

    #[test]
    fn only_an_address_with_a_password_is_a_secret() {
        for (url, has) in [
            ("mysql://user:pass@tcp(192.0.2.1:3306)/k3s", true),
            ("user:pass@tcp(192.0.2.1:3306)/k3s", true),
            ("postgres://user:p@ss@db:5432/k3s", true),
            ("postgres://db:5432/k3s?user=a&password=b", true),
            ("postgres://user@db:5432/k3s", false),
            ("https://192.0.2.1:2379,https://192.0.2.2:2379", false),
            ("sqlite", false),
        ] {
            assert_eq!(has_password(url), has, "{url}");
        }
    }
}
