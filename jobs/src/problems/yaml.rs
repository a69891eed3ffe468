//! YAML as the loader of `KernelBot` (`PyYAML`, YAML 1.1) reads it, within bounds.
//!
//! Where this reader differs from `PyYAML`: a key that stands twice is an error, and so are `.inf` and `.nan`; `1e-5`
//! without a dot is a number, not text; `1:30` and dates are text; an integer beyond 64 bits becomes a float. Nothing
//! of the kind stands in a benchmark today, and no evaluator would parse it.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::Options;

/// Which plain words are booleans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Booleans {
    /// `true` and `false` alone.
    Strict,
    /// Also `yes`, `no`, `on`, `off`, and `y` and `n`, which `PyYAML` takes for text.
    Lenient,
}

/// Reads one document. The error is one line for the operator's log.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    parse_with(text, Booleans::Lenient)
}

/// Reads one document twice, and gives `values` of it with the booleans that `PyYAML` sees.
///
/// The library does not tell a plain word from a quoted one, but only a plain one differs between the two readings.
pub(super) fn parse_values<T, F>(text: &str, values: F) -> Result<Vec<Value>, String>
where
    T: DeserializeOwned,
    F: Fn(T) -> Vec<Value>,
{
    let strict = values(parse_with(text, Booleans::Strict)?);
    let lenient = values(parse_with(text, Booleans::Lenient)?);
    Ok(strict.into_iter().zip(lenient).map(|(strict, lenient)| settle(strict, lenient)).collect())
}

fn parse_with<T: DeserializeOwned>(text: &str, booleans: Booleans) -> Result<T, String> {
    serde_saphyr::from_str_with_options(text, options(booleans)).map_err(|error| error.to_string().replace('\n', " "))
}

/// A real file has under 1,000 nodes, no alias and a depth of 4.
fn options(booleans: Booleans) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 100_000,
            max_nodes: 50_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_merge_keys: 1_000,
            max_depth: 32,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 50_000,
            max_replay_stack_depth: 8,
        },
        strict_booleans: booleans == Booleans::Strict,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn settle(strict: Value, lenient: Value) -> Value {
    match (strict, lenient) {
        (Value::String(word), Value::Bool(value)) if is_python_boolean(&word) => Value::Bool(value),
        (Value::Array(strict), Value::Array(lenient)) => {
            strict.into_iter().zip(lenient).map(|(strict, lenient)| settle(strict, lenient)).collect()
        }
        (Value::Object(strict), Value::Object(lenient)) => strict
            .into_iter()
            .zip(lenient)
            .map(|((key, strict), (_, lenient))| (key, settle(strict, lenient)))
            .collect(),
        (strict, _) => strict,
    }
}

fn is_python_boolean(word: &str) -> bool {
    matches!(word, "yes" | "Yes" | "YES" | "no" | "No" | "NO" | "on" | "On" | "ON" | "off" | "Off" | "OFF")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(text: &str) -> Result<Vec<Value>, String> {
        parse_values(text, |values: Vec<Value>| values)
    }

    /// The expectations were printed by `PyYAML` 6.0.
    #[test]
    fn plain_words_and_numbers_are_what_python_sees() {
        for (text, expected) in [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("True", json!(true)),
            ("FALSE", json!(false)),
            ("y", json!("y")),
            ("N", json!("N")),
            ("yEs", json!("yEs")),
            ("\"yes\"", json!("yes")),
            ("'off'", json!("off")),
            ("\"true\"", json!("true")),
            ("~", json!(null)),
            ("null", json!(null)),
            ("mixed", json!("mixed")),
            ("12", json!(12)),
            ("-3", json!(-3)),
            ("+3", json!(3)),
            ("1_000", json!(1000)),
            ("0x10", json!(16)),
            ("010", json!(8)),
            ("\"12\"", json!("12")),
            ("1.0", json!(1.0)),
            ("1.0e-5", json!(1.0e-5)),
            ("[1, [yes, \"no\"], {a: on}]", json!([1, [true, "no"], {"a": true}])),
        ] {
            assert_eq!(values(&format!("- {text}\n")), Ok(vec![expected]), "{text}");
        }
    }

    #[test]
    fn the_order_of_keys_is_kept_and_words_as_keys_stay_words() {
        let read = values(r#"[{"z": 1, "n": 2, y: 3, "a": 4, on: 5}]"#).unwrap();
        assert_eq!(read[0].to_string(), r#"{"z":1,"n":2,"y":3,"a":4,"on":5}"#);
    }

    #[test]
    fn anchors_and_merges_work() {
        assert_eq!(
            values("- &a {m: 1, seed: 2}\n- *a\n- {<<: *a, seed: 3}\n"),
            Ok(vec![json!({"m": 1, "seed": 2}), json!({"m": 1, "seed": 2}), json!({"m": 1, "seed": 3})])
        );
    }

    #[test]
    fn a_mark_at_the_start_and_windows_line_ends_are_no_obstacle() {
        assert_eq!(values("\u{feff}- {a: 1}\r\n- {b: x}\r\n"), Ok(vec![json!({"a": 1}), json!({"b": "x"})]));
    }

    #[test]
    fn what_no_file_should_hold_is_refused_in_one_line() {
        let levels = (1..10).map(|level| format!("- &a{level} [{}]", vec![format!("*a{}", level - 1); 10].join(", ")));
        let bomb = ["- &a0 [x, x]".to_owned()].into_iter().chain(levels).collect::<Vec<_>>().join("\n");
        let deep = format!("- {}{}\n", "[".repeat(40), "]".repeat(40));
        for (what, text) in [
            ("a key twice", "- {a: 1, a: 2}\n"),
            ("a bomb of aliases", bomb.as_str()),
            ("too deep", deep.as_str()),
            ("an alias of itself", "- &a [*a]\n"),
            ("a tab as indentation", "- a:\n\t- b\n"),
            ("two documents", "- 1\n---\n- 2\n"),
            ("no end", "- {a: 1\n"),
            ("not a number", "- .nan\n"),
            ("no list", "a: 1\n"),
        ] {
            let error = values(text).expect_err(what);
            assert!(!error.contains('\n'), "{what}: {error}");
        }
    }
}
