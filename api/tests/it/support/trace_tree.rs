//! A trace as a tree, for people and for tests.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::otlp::Seen;

/// What stands for a parent that was never told: a span of a process that was killed, or of a client.
const UNTOLD: &str = "(not told)";

/// A line of the tree.
struct Line<'a> {
    /// With its branches.
    name: String,
    span: Option<&'a Seen>,
}

/// The names alone, each below its parent, in the order in which they began.
pub fn names(spans: &[Seen]) -> String {
    lines(spans).iter().fold(String::new(), |text, line| text + &line.name + "\n")
}

/// The names with who told it, when it began after the first one, and how long it took.
pub fn table(spans: &[Seen]) -> String {
    let first = spans.iter().map(|span| span.start).min().unwrap_or_default();
    let lines = lines(spans);
    let width = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for Line { name, span } in lines {
        let Some(span) = span else {
            writeln!(text, "{name}").unwrap();
            continue;
        };
        let (start, took) = (seconds(span.start - first), seconds(span.end - span.start));
        write!(text, "{name:<width$}  {:<10}  {start:>7.3}  {took:>7.3}", span.service).unwrap();
        for (label, attribute) in [("adoption", "ncu_service.adoption"), ("exit code", "process.exit.code")] {
            if let Some(value) = span.attribute(attribute) {
                write!(text, "  {label} {value}").unwrap();
            }
        }
        text.push('\n');
    }
    text
}

fn lines(spans: &[Seen]) -> Vec<Line<'_>> {
    let told: HashSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    let mut spans: Vec<&Seen> = spans.iter().collect();
    spans.sort_by_key(|span| span.start);
    let mut untold: Vec<&str> = Vec::new();
    for span in &spans {
        if !told.contains(span.parent.as_str()) && !untold.contains(&span.parent.as_str()) {
            untold.push(&span.parent);
        }
    }
    let mut lines = Vec::new();
    for parent in untold {
        lines.push(Line { name: UNTOLD.to_owned(), span: None });
        add_children(&mut lines, &spans, parent, "");
    }
    lines
}

fn add_children<'a>(lines: &mut Vec<Line<'a>>, spans: &[&'a Seen], parent: &str, indent: &str) {
    let children: Vec<&Seen> = spans.iter().filter(|span| span.parent == parent).copied().collect();
    for (index, span) in children.iter().enumerate() {
        let (branch, below) = if index + 1 == children.len() { ("└─", "  ") } else { ("├─", "│ ") };
        lines.push(Line { name: format!("{indent}{branch} {}", span.name), span: Some(span) });
        add_children(lines, spans, &span.id, &format!("{indent}{below} "));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a trace lasts seconds")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
