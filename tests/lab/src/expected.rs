// SPDX-License-Identifier: Apache-2.0
//! Compares texts with files. To write the files anew, run the tests with `WRITE_EXPECTED=1`, and review the change.

use std::path::Path;

/// Holds that a text is that of a file of the repository, as far as `part` returns the part that each run has in common.
///
/// # Panics
/// When they differ.
pub fn is_expected(file: &str, text: &str, part: impl Fn(&str) -> String) {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let path = root.join(file);
    if std::env::var_os("WRITE_EXPECTED").is_some() {
        std::fs::write(&path, text).expect("the directory of the expected text");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(part(text), part(&expected), "{file}:\n{text}");
}

/// Holds that `report` returns of each case of a file the lines that follow it, which begin with `>>> `. An empty line separates cases;
/// lines that begin with `# ` are comments.
///
/// # Panics
/// When they differ, or there is no such file.
pub fn cases_are_expected(file: &str, report: impl Fn(&str) -> String) {
    const REPORT: &str = ">>> ";
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(file);
    let cases = std::fs::read_to_string(path).expect("the file of the cases");
    assert!(cases.contains(REPORT), "{file}");
    let whole = |case: &str| {
        let lines = case.lines().filter(|line| !line.starts_with(REPORT));
        let lines: Vec<&str> = lines.collect();
        let case = lines.join("\n");
        assert!(!case.contains(REPORT.trim_end()), "{file}: {case}");
        let input = lines.iter().filter(|line| !line.starts_with("# "));
        let input: Vec<&str> = input.copied().collect();
        let report = report(&input.join("\n"));
        let report = report.lines().map(|line| format!("\n{REPORT}{line}"));
        format!("{case}{}\n", report.collect::<String>())
    };
    let reports: Vec<String> = cases.split("\n\n").map(whole).collect();
    is_expected(file, &reports.join("\n"), str::to_owned);
}
