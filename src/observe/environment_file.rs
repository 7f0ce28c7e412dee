// SPDX-License-Identifier: Apache-2.0
//! Environment files of systemd units, and the command lines in them.

/// Parses the assignments of an environment file (systemd.exec(5), `EnvironmentFile=`), in order.
pub fn variables(text: &str) -> Vec<(String, String)> {
    // A backslash at the end of a line continues it on the next line.
    let joined = text.replace("\\\r\n", "").replace("\\\n", "");
    joined
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), words(value.trim()).join(" ")))
        .collect()
}

/// Parses the flags of a command line without their dashes: `--name=value` and `--name value`.
pub fn flags(line: &str) -> Vec<(String, String)> {
    let mut flags = Vec::new();
    let mut words = words(line).into_iter().peekable();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let value = words.next_if(|next| !next.starts_with('-'));
                (flag.to_owned(), value.unwrap_or_default())
            }
        };
        flags.push((name, value));
    }
    flags
}

/// Splits at white space outside quotes, and removes quotes and backslashes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn assignments_are_read_as_systemd_reads_them() {
        let text =
            "# A=1\n;B=2\nC=three\n D = 'four 4' \nE=\"a\\\"b\"\nF=one \\\ntwo\nno assignment\nG=";
        assert_eq!(
            variables(text),
            pairs(&[
                ("C", "three"),
                ("D", "four 4"),
                ("E", "a\"b"),
                ("F", "one two"),
                ("G", ""),
            ])
        );
    }

    #[test]
    fn flags_are_read_in_both_forms() {
        assert_eq!(
            flags("kubelet --a=b=c --d e -f --g \"h i\" j"),
            pairs(&[("a", "b=c"), ("d", "e"), ("f", ""), ("g", "h i")])
        );
    }

    #[test]
    fn open_quotes_and_lonely_backslashes_end() {
        for (text, value) in [
            ("\"", ""),
            ("'a", "a"),
            ("\\", ""),
            ("a\\", "a"),
            ("=", "="),
            ("\"\\", ""),
        ] {
            assert_eq!(variables(&format!("A={text}")), pairs(&[("A", value)]));
            assert_eq!(flags(text), []);
        }
        for text in ["--", "-"] {
            assert_eq!(variables(&format!("A={text}")), pairs(&[("A", text)]));
            assert_eq!(flags(text), pairs(&[("", "")]));
        }
    }
}
