//! What holds for every page: it is well-formed, stands alone, and nothing that a stranger wrote is markup.

#![allow(clippy::panic, clippy::expect_used, reason = "what stops here is a finding")]

/// Elements that have no end.
const VOID: [&str; 4] = ["meta", "input", "br", "hr"];
/// Every other element that pages are made of.
const KNOWN: [&str; 41] = [
    "html", "head", "title", "style", "body", "header", "main", "section", "nav", "div", "span", "p", "a", "h1", "h2",
    "h3", "strong", "code", "label", "dl", "dt", "dd", "ul", "li", "details", "summary", "table", "caption", "thead",
    "tbody", "tr", "th", "td", "svg", "rect", "line", "text", "path", "polyline", "circle", "g",
];

/// Panics where a page is not sound.
pub(crate) fn is_sound(page: &str) {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a document type");
    let mut open: Vec<&str> = Vec::new();
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>') || open.last() == Some(&"style"), "a stray > in {text:?}");
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("an end of a tag");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "an end without its begin");
            continue;
        }
        let name = tag.split(' ').next().unwrap_or_default();
        attributes(&tag[name.len()..]);
        if !VOID.contains(&name) {
            assert!(KNOWN.contains(&name), "<{name}>");
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest:?}");
    for forbidden in ["@import", "url(", "javascript:"] {
        let styles = page.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next()).unwrap_or_default();
        assert!(!styles.contains(forbidden), "{forbidden}");
    }
}

/// Every attribute is quoted, runs nothing, and leads nowhere but into the page.
fn attributes(text: &str) {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(['=', ' ']).unwrap_or(rest.len());
        let name = &rest[..end];
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "an attribute {name:?}");
        assert!(
            !name.starts_with("on") && !["src", "srcset", "style", "action"].contains(&name),
            "an attribute {name:?}"
        );
        rest = &rest[end..];
        if let Some(quoted) = rest.strip_prefix("=\"") {
            let (value, after) = quoted.split_once('"').expect("a quoted value");
            assert!(name != "href" || value.starts_with('#'), "a link to {value:?}");
            assert!(
                !["x", "y", "width", "height", "cx", "cy", "x1", "x2", "y1", "y2", "points", "d"].contains(&name)
                    || !(value.contains("NaN") || value.contains("inf")),
                "{name} is {value:?}"
            );
            rest = after;
        }
        rest = rest.trim_start();
    }
}
