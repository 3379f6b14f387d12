//! Reads verdicts, test by test, from what the runners of several languages print.

use super::Verdict;

/// `ok 1 - name` and `not ok 2 - name`, top level only.
pub fn tap(text: &str) -> Vec<(String, Verdict)> {
    text.lines()
        .filter_map(|line| {
            let (verdict, rest) = match line.strip_prefix("ok ") {
                Some(rest) => (Verdict::Passed, rest),
                None => (Verdict::Failed, line.strip_prefix("not ok ")?),
            };
            let name = rest.split_once(" - ")?.1;
            let skipped = name.contains("# SKIP");
            Some((name.split(" # ").next()?.to_owned(), if skipped { Verdict::Skipped } else { verdict }))
        })
        .collect()
}

/// The lines of pytest's `-rA` summary.
pub fn pytest(text: &str) -> Vec<(String, Verdict)> {
    text.lines()
        .filter_map(|line| {
            let (word, rest) = line.split_once(' ')?;
            let verdict = match word {
                "PASSED" => Verdict::Passed,
                "FAILED" | "ERROR" => Verdict::Failed,
                "SKIPPED" => Verdict::Skipped,
                _ => return None,
            };
            // A verdict alone, with the share done so far, belongs to the line before.
            let (_, name) = rest.split(" - ").next()?.rsplit_once("::").or_else(|| {
                let is_skip_with_reason = verdict == Verdict::Skipped && rest.starts_with("[1]");
                is_skip_with_reason.then_some(("", rest))
            })?;
            Some((name.to_owned(), verdict))
        })
        .collect()
}

/// The lines of `go test -v`, subtests included.
pub fn go(text: &str) -> Vec<(String, Verdict)> {
    text.lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let (verdict, rest) = if let Some(rest) = line.strip_prefix("--- PASS: ") {
                (Verdict::Passed, rest)
            } else if let Some(rest) = line.strip_prefix("--- FAIL: ") {
                (Verdict::Failed, rest)
            } else {
                (Verdict::Skipped, line.strip_prefix("--- SKIP: ")?)
            };
            Some((rest.split(' ').next()?.to_owned(), verdict))
        })
        .collect()
}

/// The rows of the summary of librdkafka's test-runner. Local tests, which it leaves out by its flags, are none.
pub fn librdkafka(text: &str) -> Vec<(String, Verdict)> {
    text.lines()
        .filter_map(|line| {
            let plain = without_colours(line);
            let mut cells = plain.strip_prefix('|')?.split('|').map(str::trim);
            let (name, state) = (cells.next()?, cells.next()?);
            let verdict = match state {
                "PASSED" => Verdict::Passed,
                "SKIPPED" => Verdict::Skipped,
                "FAILED" | "RUNNING" | "NOT STARTED" => Verdict::Failed,
                _ => return None,
            };
            let is_local = plain.contains("Filtered due to negative test flags");
            (name != "<MAIN>" && !is_local).then(|| (name.to_owned(), verdict))
        })
        .collect()
}

/// Without escape sequences of the form `ESC [ … m`.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain
}
