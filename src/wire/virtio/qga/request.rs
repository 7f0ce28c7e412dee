// SPDX-License-Identifier: Apache-2.0
//! The requests of the host, and their replies.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::refusal::{NAME_SHOWN, QgaRefusal, RESET};
use crate::sys::escape::one_line;

/// A known command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QgaCommand {
    /// Returns the number of the request.
    Sync(i64),
    /// Like `Sync`; the reply begins with [`RESET`].
    SyncDelimited(i64),
    /// Checks that the agent responds.
    Ping,
    /// Returns the version and the commands.
    Info,
    /// Returns the agent's last status.
    Status,
    /// Reconciles now.
    Resync,
}

impl QgaCommand {
    /// The names of all commands, in the order of `guest-info`.
    pub const NAMES: [&str; 6] = [
        "guest-info",
        "guest-ping",
        "guest-sync",
        "guest-sync-delimited",
        "node-agent-resync",
        "node-agent-status",
    ];
}

/// A request.
#[derive(Debug)]
pub struct Request {
    /// The client's ID, repeated in the reply.
    id: Option<Value>,
    /// The requested command.
    pub command: Result<QgaCommand, QgaRefusal>,
}

impl Request {
    /// Parses the request in one input value.
    pub fn parse(input: Result<Value, QgaRefusal>) -> Self {
        let (id, command) = match input {
            Ok(Value::Object(mut members)) => (members.remove("id"), command(members)),
            Ok(_) => {
                let problem = "a request must be a JSON object".to_owned();
                (None, Err(QgaRefusal::Invalid(problem)))
            }
            Err(refusal) => (None, Err(refusal)),
        };
        Self { id, command }
    }

    /// Returns the line of the reply.
    pub fn reply(self, outcome: Result<Value, QgaRefusal>) -> Vec<u8> {
        let mut reply = Map::new();
        match outcome {
            Ok(value) => reply.insert("return".to_owned(), value),
            Err(refusal) => {
                let error = json!({"class": refusal.class(), "desc": refusal.to_string()});
                reply.insert("error".to_owned(), error)
            }
        };
        if let Some(id) = self.id {
            reply.insert("id".to_owned(), id);
        }
        let mut line = Vec::new();
        if matches!(self.command, Ok(QgaCommand::SyncDelimited(_))) {
            line.push(RESET);
        }
        line.extend(Value::Object(reply).to_string().into_bytes());
        line.push(b'\n');
        line
    }
}

/// A request without its `id`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    execute: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// The arguments of both kinds of `guest-sync`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SyncArguments {
    id: i64,
}

/// The arguments of all other commands.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

fn command(members: Map<String, Value>) -> Result<QgaCommand, QgaRefusal> {
    let Members { execute, arguments } = parsed(members)?;
    let command = match execute.as_str() {
        "guest-sync" => return Ok(QgaCommand::Sync(parsed::<SyncArguments>(arguments)?.id)),
        "guest-sync-delimited" => {
            let number = parsed::<SyncArguments>(arguments)?.id;
            return Ok(QgaCommand::SyncDelimited(number));
        }
        "guest-ping" => QgaCommand::Ping,
        "guest-info" => QgaCommand::Info,
        "node-agent-status" => QgaCommand::Status,
        "node-agent-resync" => QgaCommand::Resync,
        name => return Err(QgaRefusal::UnknownCommand(shown(name))),
    };
    parsed::<NoArguments>(arguments).map(|NoArguments {}| command)
}

fn parsed<T: DeserializeOwned>(members: Map<String, Value>) -> Result<T, QgaRefusal> {
    T::deserialize(Value::Object(members))
        .map_err(|error| QgaRefusal::Invalid(shown(&error.to_string())))
}

/// Returns a text that may quote the request.
fn shown(text: &str) -> String {
    one_line(text, NAME_SHOWN).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Request {
        Request::parse(Ok(serde_json::from_str(text).unwrap()))
    }

    /// Returns the class and the message of the error, and the ID, as in the reply.
    fn refused(text: &str) -> (String, String, Option<Value>) {
        let request = parse(text);
        let refusal = request.command.clone().unwrap_err();
        let line = request.reply(Err(refusal));
        let reply: Value = serde_json::from_slice(&line).unwrap();
        let word = |key: &str| reply["error"][key].as_str().unwrap().to_owned();
        (word("class"), word("desc"), reply.get("id").cloned())
    }

    #[test]
    fn every_name_is_understood_and_wants_only_its_own_arguments() {
        for name in QgaCommand::NAMES {
            let arguments = if name.contains("sync") && name.starts_with("guest") {
                r#"{"id":-7}"#
            } else {
                "{}"
            };
            let text = format!(r#"{{"execute":"{name}","arguments":{arguments}}}"#);
            parse(&text).command.unwrap();
            let text = format!(r#"{{"execute":"{name}","arguments":{{"id":1,"more":2}}}}"#);
            let refused = parse(&text).command;
            assert!(matches!(refused, Err(QgaRefusal::Invalid(_))), "{name}");
        }
    }

    #[test]
    fn a_refusal_has_the_class_of_qemu_ga_and_names_the_problem() {
        for (text, class, words) in [
            (
                r#"{"execute":"nope"}"#,
                "CommandNotFound",
                "The command nope has not been found",
            ),
            ("{}", "GenericError", "`execute`"),
            ("[]", "GenericError", "must be a JSON object"),
            ("5", "GenericError", "must be a JSON object"),
            (r#"{"execute":5}"#, "GenericError", "expected a string"),
            (
                r#"{"execute":"guest-ping","arguments":[]}"#,
                "GenericError",
                "expected a map",
            ),
            (
                r#"{"execute":"guest-ping","bogus":1}"#,
                "GenericError",
                "`bogus`",
            ),
            (
                r#"{"execute":"guest-ping","arguments":{"x":2}}"#,
                "GenericError",
                "`x`",
            ),
            (
                r#"{"execute":"guest-ping","arguments":{"id":2}}"#,
                "GenericError",
                "unknown field `id`",
            ),
            (
                r#"{"execute":"guest-sync"}"#,
                "GenericError",
                "missing field `id`",
            ),
            (
                r#"{"execute":"guest-sync","arguments":{"id":"x"}}"#,
                "GenericError",
                "expected i64",
            ),
            (
                r#"{"execute":"guest-sync","arguments":{"id":1.0}}"#,
                "GenericError",
                "expected i64",
            ),
            (
                r#"{"execute":"guest-sync","arguments":{"id":18446744073709551615}}"#,
                "GenericError",
                "expected i64",
            ),
        ] {
            let (found, said, id) = refused(text);
            assert_eq!((found.as_str(), id), (class, None), "{text}");
            assert!(said.contains(words), "{text}: {said}");
        }
    }

    #[test]
    fn the_id_comes_back_whatever_it_is_with_an_error_as_well() {
        for id in ["null", "0", "-1.5", "\"x\"", "[1,{}]", r#"{"a":[null]}"#] {
            let expected: Value = serde_json::from_str(id).unwrap();
            let line =
                parse(&format!(r#"{{"id":{id},"execute":"guest-ping"}}"#)).reply(Ok(json!({})));
            assert_eq!(
                serde_json::from_slice::<Value>(&line).unwrap(),
                json!({"return": {}, "id": expected.clone()})
            );
            assert_eq!(refused(&format!(r#"{{"id":{id}}}"#)).2, Some(expected));
        }
    }

    #[test]
    fn a_reply_is_one_line_and_only_the_delimited_one_has_a_mark() {
        let sync = parse(r#"{"execute":"guest-sync","arguments":{"id":9}}"#);
        assert_eq!(sync.reply(Ok(json!(9))), b"{\"return\":9}\n");
        let sync = parse(r#"{"execute":"guest-sync-delimited","arguments":{"id":9},"id":"\n"}"#);
        assert_eq!(
            sync.reply(Ok(json!(9))),
            b"\xff{\"id\":\"\\n\",\"return\":9}\n"
        );
    }

    #[test]
    fn a_hostile_name_comes_back_harmless_and_short() {
        let name = format!("\\u0000\\u001b[31m\\u202e{}", "x".repeat(10_000));
        let (_, words, _) = refused(&format!(r#"{{"execute":"{name}"}}"#));
        assert!(words.contains("\\x00\\x1b[31m\\u{202e}xxx"), "{words}");
        assert!(words.len() < 300, "{}", words.len());
    }
}
