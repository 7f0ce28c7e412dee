// SPDX-License-Identifier: Apache-2.0
//! The requests of the host, and their replies.

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
    /// Returns the kernel's host name.
    HostName,
    /// Returns the agent's last status.
    Status,
    /// Returns the last states of scheduled events.
    Events,
    /// Reconciles now.
    Resync,
}

impl QgaCommand {
    /// The names of all commands, in the order of `guest-info`.
    pub const NAMES: [&str; 8] = [
        "guest-get-host-name",
        "guest-info",
        "guest-ping",
        "guest-sync",
        "guest-sync-delimited",
        "node-agent-events",
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
            Ok(_) => (None, Err(QgaRefusal::NotAnObject)),
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

/// Returns the command of a request without its `id`.
fn command(mut members: Map<String, Value>) -> Result<QgaCommand, QgaRefusal> {
    let name = match members.remove("execute") {
        Some(Value::String(name)) => Some(name),
        Some(_) => {
            return Err(QgaRefusal::MemberType {
                name: "execute",
                expected: "a string",
            });
        }
        None => None,
    };
    let mut arguments = match members.remove("arguments") {
        Some(Value::Object(arguments)) => arguments,
        Some(_) => {
            return Err(QgaRefusal::MemberType {
                name: "arguments",
                expected: "an object",
            });
        }
        None => Map::new(),
    };
    if let Some(name) = members.keys().next() {
        return Err(QgaRefusal::UnexpectedMember(shown(name)));
    }
    let name = name.ok_or(QgaRefusal::NoCommand)?;
    let command = match name.as_str() {
        "guest-sync" => QgaCommand::Sync(number(&mut arguments)?),
        "guest-sync-delimited" => QgaCommand::SyncDelimited(number(&mut arguments)?),
        "guest-ping" => QgaCommand::Ping,
        "guest-info" => QgaCommand::Info,
        "guest-get-host-name" => QgaCommand::HostName,
        "node-agent-events" => QgaCommand::Events,
        "node-agent-status" => QgaCommand::Status,
        "node-agent-resync" => QgaCommand::Resync,
        _ => return Err(QgaRefusal::UnknownCommand(shown(&name))),
    };
    match arguments.keys().next() {
        Some(name) => Err(QgaRefusal::UnexpectedParameter(shown(name))),
        None => Ok(command),
    }
}

/// Returns the number in the arguments of both kinds of `guest-sync`.
fn number(arguments: &mut Map<String, Value>) -> Result<i64, QgaRefusal> {
    let id = arguments
        .remove("id")
        .ok_or(QgaRefusal::MissingParameter("id"))?;
    id.as_i64().ok_or(QgaRefusal::ParameterType {
        name: "id",
        expected: "integer",
    })
}

fn shown(name: &str) -> String {
    one_line(name, NAME_SHOWN).into_owned()
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
            assert!(
                matches!(
                    parse(&text).command,
                    Err(QgaRefusal::UnexpectedParameter(_))
                ),
                "{name}"
            );
        }
    }

    #[test]
    fn a_refusal_has_the_class_and_the_words_of_qemu_ga() {
        // Recorded from qemu-ga 7.2.22.
        for (text, class, words) in [
            (
                r#"{"execute":"nope"}"#,
                "CommandNotFound",
                "The command nope has not been found",
            ),
            ("{}", "GenericError", "QMP input lacks member 'execute'"),
            ("[]", "GenericError", "QMP input must be a JSON object"),
            ("5", "GenericError", "QMP input must be a JSON object"),
            (
                r#"{"execute":5}"#,
                "GenericError",
                "QMP input member 'execute' must be a string",
            ),
            (
                r#"{"execute":"guest-ping","arguments":[]}"#,
                "GenericError",
                "QMP input member 'arguments' must be an object",
            ),
            (
                r#"{"execute":"guest-ping","bogus":1}"#,
                "GenericError",
                "QMP input member 'bogus' is unexpected",
            ),
            (
                r#"{"execute":"guest-ping","arguments":{"x":2}}"#,
                "GenericError",
                "Parameter 'x' is unexpected",
            ),
            (
                r#"{"execute":"guest-sync"}"#,
                "GenericError",
                "Parameter 'id' is missing",
            ),
            (
                r#"{"execute":"guest-sync","arguments":{"id":"x"}}"#,
                "GenericError",
                "Invalid parameter type for 'id', expected: integer",
            ),
            (
                r#"{"execute":"guest-sync","arguments":{"id":1.0}}"#,
                "GenericError",
                "Invalid parameter type for 'id', expected: integer",
            ),
            (
                r#"{"execute":"guest-sync","arguments":{"id":18446744073709551615}}"#,
                "GenericError",
                "Invalid parameter type for 'id', expected: integer",
            ),
        ] {
            assert_eq!(
                refused(text),
                (class.to_owned(), words.to_owned(), None),
                "{text}"
            );
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
