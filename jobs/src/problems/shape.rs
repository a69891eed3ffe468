//! One benchmark shape: its keys in the order in which task.yml writes them.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longest artifact name, in bytes: what common file systems take, with room for a client's own suffix.
const MAX_ARTIFACT_NAME_BYTES: usize = 200;

/// A benchmark's parameters, order kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub Map<String, Value>);

impl Shape {
    /// The line that an evaluator reads: `key: value; key: value`, with Python's spelling of the values.
    #[must_use]
    pub fn spec(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}: {}", python_str(value))).collect();
        parts.join("; ")
    }

    /// `profile.{index}-{key}-{value}-….zip`: a plain file name, unique within a job because it starts with the index.
    #[must_use]
    pub fn artifact_name(&self, index: u32) -> String {
        let mut name = format!("profile.{index}");
        for (key, value) in &self.0 {
            let _ = write!(name, "-{}-{}", slug(key), slug(&python_str(value)));
        }
        // A slug is ASCII, so cutting at a byte cannot split a character.
        name.truncate(MAX_ARTIFACT_NAME_BYTES - ".zip".len());
        let end = name.trim_end_matches(['-', '.']).len();
        name.truncate(end);
        name + ".zip"
    }
}

/// `str(value)` as Python writes it: `True`, `None`, `[80, 176]`.
fn python_str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => python_repr(other),
    }
}

fn python_repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => python_float(float),
            _ => number.to_string(),
        },
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        Value::Array(items) => format!("[{}]", items.iter().map(python_repr).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pairs: Vec<String> =
                map.iter().map(|(k, v)| format!("{}: {}", python_repr(&k.as_str().into()), python_repr(v))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// `repr` of a finite float. Both languages write the shortest digits that read back, but Python's exponent has a sign
/// and at least two digits, and starts at other sizes.
fn python_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    match scientific.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?))) {
        Some((digits, exponent)) if !(-4..16).contains(&exponent) => format!("{digits}e{exponent:+03}"),
        _ => format!("{float:?}"),
    }
}

/// Letters, digits, `.`, `_` and `-` stay; every run of anything else becomes one `-`, and none is left at an end.
fn slug(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
            out.push(c);
        } else if !out.ends_with('-') {
            out.push('-');
        }
    }
    // Only the dashes that stand for something else are trimmed: a negative number keeps its sign.
    if text.starts_with('-') { out.trim_end_matches('-').to_owned() } else { out.trim_matches('-').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(json: &str) -> Shape {
        serde_json::from_str(json).expect("a JSON object")
    }

    #[test]
    fn the_spec_line_keeps_the_order_and_spells_values_as_python_does() {
        let shape = shape(
            r#"{"seed": 1, "batch": 20, "flag": true, "off": false, "none": null, "case": "mixed", "m": [80, 176], "names": ["a"]}"#,
        );
        assert_eq!(
            shape.spec(),
            "seed: 1; batch: 20; flag: True; off: False; none: None; case: mixed; m: [80, 176]; names: ['a']"
        );
    }

    /// The expectations were printed by Python 3.11.
    #[test]
    fn floats_are_spelt_as_python_does() {
        for (json, expected) in [
            ("1e-5", "1e-05"),
            ("1.5e-7", "1.5e-07"),
            ("0.0001", "0.0001"),
            ("0.5", "0.5"),
            ("1.0", "1.0"),
            ("-2.0", "-2.0"),
            ("-0.0", "-0.0"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("123456789012345678.0", "1.2345678901234568e+17"),
            ("1e-300", "1e-300"),
            ("-1e100", "-1e+100"),
        ] {
            assert_eq!(shape(&format!(r#"{{"x": {json}}}"#)).spec(), format!("x: {expected}"));
        }
    }

    #[test]
    fn an_artifact_name_lists_keys_and_values_in_order() {
        let shape = shape(r#"{"batch": 20, "n": 32, "cond": 1, "seed": 43214}"#);
        assert_eq!(shape.artifact_name(0), "profile.0-batch-20-n-32-cond-1-seed-43214.zip");
    }

    #[test]
    fn odd_values_are_slugged_and_signs_kept() {
        let shape = shape(r#"{"m": [80, 176], "k": "../../etc", "x": -3, "u": "é", "s": "a b"}"#);
        assert_eq!(shape.artifact_name(2), "profile.2-m-80-176-k-..-..-etc-x--3-u--s-a-b.zip");
    }

    #[test]
    fn long_names_are_cut_and_stay_distinct() {
        let long = shape(&format!(r#"{{"m": "{}"}}"#, "9".repeat(500)));
        let (first, second) = (long.artifact_name(1), long.artifact_name(11));
        assert!(first.len() <= MAX_ARTIFACT_NAME_BYTES && first.ends_with("9.zip"), "{first}");
        assert_ne!(first, second);
    }
}
