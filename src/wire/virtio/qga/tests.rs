// SPDX-License-Identifier: Apache-2.0
use super::*;

const NO_OBJECT: &str = "a line must be one JSON object: ";

fn requests(bytes: &[u8]) -> Vec<Request> {
    let mut input = Input::default();
    bytes.iter().filter_map(|byte| input.push(*byte)).collect()
}

/// Returns the `id` of each request, or the text of its error if it has none.
fn taken(bytes: &[u8]) -> Vec<Value> {
    let shown = |request: Request| match request.id {
        Some(id) => id,
        None => json!(request.command.unwrap_err().desc),
    };
    requests(bytes).into_iter().map(shown).collect()
}

fn is_finding(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.starts_with(NO_OBJECT))
}

fn parse(text: &str) -> Request {
    let line = format!("{text}\n");
    let [request] = <[Request; 1]>::try_from(requests(line.as_bytes())).unwrap();
    request
}

#[test]
fn an_object_is_a_request_also_without_a_line_end_and_a_blank_line_is_nothing() {
    let text =
        b"{\"id\":\"}\\\"\xc3\xa4\"}\r\n\n \t\n {\"id\":[1]} \n{\"id\":{}}{\"id\":4}{\"id\":5";
    assert_eq!(
        taken(text),
        [json!("}\"ä"), json!([1]), json!({}), json!(4)]
    );
}

#[test]
fn the_reset_byte_drops_what_is_before_it_in_the_line() {
    assert_eq!(
        taken(b"{\"id\":1}\n{\"b\":\"\xff{\"id\":3}\ngarbage \xff{\"id\":4}\n"),
        [json!(1), json!(3), json!(4)]
    );
    assert_eq!(taken(b"\xff\xff\xff{\"id\":1}\n\xff"), [json!(1)]);
}

#[test]
fn a_line_that_is_no_object_is_answered_once() {
    for broken in [
        &b"garbage and more"[..],
        b"}",
        b"\0",
        b"\"",
        b"nul",
        b"{\"a\":]",
        b"{\"a\":\"b",
        b"{\"a\":\"b\\",
        b"{\"a\" 1",
        b"{\"execute\":\"\xc3\x28\"}",
        b"{\"a\":\"\x01\"}",
        b"{'a':1}",
        b"{\"a\":1e999}",
        b"[]",
        b"[1,2]",
        b"-5",
        b"\"x\"",
        b"null",
    ] {
        let taken = taken(&[broken, b"\n{\"id\":2}\n"].concat());
        let shown = broken.escape_ascii();
        assert_eq!(taken.len(), 2, "{shown} {taken:?}");
        assert!(is_finding(&taken[0]), "{taken:?}");
        assert_eq!(taken[1], json!(2), "{shown}");
    }
}

#[test]
fn a_megabyte_without_an_end_is_one_complaint_and_no_more_memory() {
    for end in [b'\n', RESET] {
        let mut input = Input::default();
        for byte in b"{\"a\":\"".iter().chain(&[b'x'; 1 << 20]) {
            assert!(input.push(*byte).is_none());
            assert!(input.line.capacity() <= 2 * INPUT_MAX);
        }
        let problem = input.push(end).map(|request| request.command.unwrap_err());
        let expected = (end == b'\n').then_some("a line has more than 65536 bytes");
        assert_eq!(problem.as_ref().map(|refusal| &refusal.desc[..]), expected);
        assert!(b"{}\n".iter().any(|byte| input.push(*byte).is_some()));
    }
}

#[test]
fn the_largest_line_that_is_allowed_passes() {
    let text = |length: usize| format!("{{\"id\":\"{}\"}}", "x".repeat(length - 9));
    assert!(parse(&text(INPUT_MAX)).id.is_some());
    let longer = parse(&text(INPUT_MAX + 1));
    assert!(longer.id.is_none() && longer.command.is_err());
}

#[test]
fn deep_nesting_is_refused() {
    let deep = b"{\"a\":[".repeat(10_000);
    let taken = taken(&[deep, b"\n{\"id\":2}\n".to_vec()].concat());
    assert!(is_finding(&taken[0]));
    assert_eq!(taken[1..], [json!(2)]);
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
        assert!(
            refused.is_err_and(|refusal| refusal.class == "GenericError"),
            "{name}"
        );
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
        ("[]", "GenericError", "must be one JSON object"),
        ("5", "GenericError", "must be one JSON object"),
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
        let line = parse(&format!(r#"{{"id":{id},"execute":"guest-ping"}}"#)).reply(Ok(json!({})));
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
