//! `docs/openapi.yaml`, which every answer of every test is held against.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex};

use reqwest::Method;
use serde_json::{Map, Value};

use super::Answer;

static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("../../../../docs/openapi.yaml")).unwrap());

/// What was seen of what is described: method, path as described, status.
static SEEN: Mutex<BTreeSet<Operation>> = Mutex::new(BTreeSet::new());

pub type Operation = (String, String, u16);

/// The described paths.
pub fn paths() -> BTreeSet<String> {
    object(&DESCRIPTION["paths"]).keys().cloned().collect()
}

/// Whether a path is described to take a method.
pub fn takes(path: &str, method: &Method) -> bool {
    DESCRIPTION["paths"][path].get(method.as_str().to_lowercase()).is_some()
}

/// Every described answer.
pub fn operations() -> BTreeSet<Operation> {
    let mut all = BTreeSet::new();
    for (path, methods) in object(&DESCRIPTION["paths"]) {
        for (method, operation) in object(methods).iter().filter(|(method, _)| *method != "parameters") {
            for status in object(&operation["responses"]).keys() {
                all.insert((method.clone(), path.clone(), status.parse().unwrap()));
            }
        }
    }
    all
}

/// Panics where the description is none: a reference that leads nowhere, an operation without a name of its own, a parameter of a
/// path that nobody declares, a scheme of security that is not there.
pub fn holds_together() {
    fn references(value: &'static Value) {
        match value {
            Value::Object(fields) => {
                resolve(value);
                fields.values().for_each(references);
            }
            Value::Array(values) => values.iter().for_each(references),
            _ => {}
        }
    }
    references(&DESCRIPTION);
    assert_eq!(DESCRIPTION["openapi"], "3.1.0");
    let schemes = object(&DESCRIPTION["components"]["securitySchemes"]);
    let mut names = BTreeSet::new();
    for (path, methods) in object(&DESCRIPTION["paths"]) {
        let shared = methods.get("parameters").and_then(Value::as_array);
        for (method, operation) in object(methods).iter().filter(|(method, _)| *method != "parameters") {
            let name = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no name"));
            assert!(names.insert(name), "{name} is the name of two operations");
            assert!(operation["summary"].is_string(), "{name} has no summary");
            let own = operation.get("parameters").and_then(Value::as_array);
            let declared: Vec<&Value> = shared.into_iter().chain(own).flatten().map(resolve).collect();
            for parameter in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
                let is_it = |declared: &&Value| {
                    declared["in"] == "path" && declared["name"] == parameter && declared["required"] == true
                };
                assert!(declared.iter().any(is_it), "{name} declares no {parameter}");
            }
            for scheme in operation.get("security").and_then(Value::as_array).into_iter().flatten().flat_map(object) {
                assert!(schemes.contains_key(scheme.0), "{name}: no scheme {}", scheme.0);
            }
        }
    }
}

/// What this process has seen so far.
pub fn seen() -> BTreeSet<Operation> {
    SEEN.lock().unwrap().clone()
}

/// Holds an answer against the description; panics where the two differ.
pub fn check(method: &Method, path: &str, answer: &Answer) {
    // The operators' paths are described elsewhere.
    if (path == "/admin" || path.starts_with("/admin/")) && answer.status != 404 {
        return;
    }
    let context = format!("{method} {path}: {answer:?}");
    let refused = |status: u16| {
        assert_eq!(answer.status, status, "{context}");
        if method != Method::HEAD {
            matches(&DESCRIPTION["components"]["schemas"]["Error"], &answer.json(), &context);
        }
    };
    let Some(described) = described(path) else {
        return refused(404);
    };
    if !takes(described, method) {
        return refused(405);
    }
    let method = method.as_str().to_lowercase();
    let responses = &DESCRIPTION["paths"][described][&method]["responses"];
    let response = responses.get(answer.status.as_str()).unwrap_or_else(|| panic!("not described: {context}"));
    let response = resolve(response);
    for (name, header) in response.get("headers").map(object).into_iter().flatten() {
        assert!(header["required"] != true || answer.headers.contains_key(name), "no {name}: {context}");
    }
    match response.get("content").map(object) {
        Some(kinds) => {
            let kind = answer.headers["content-type"].to_str().unwrap();
            let media = kinds.get(kind).unwrap_or_else(|| panic!("{kind} is not described: {context}"));
            if let Some(schema) = media.get("schema") {
                matches(schema, &answer.json(), &context);
            }
        }
        None => assert!(answer.bytes.is_empty(), "{context}"),
    }
    SEEN.lock().unwrap().insert((method, described.to_owned(), answer.status.as_u16()));
}

/// The described path that a path is one of.
fn described(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').collect();
    object(&DESCRIPTION["paths"]).keys().map(String::as_str).find(|described| {
        let described: Vec<&str> = described.split('/').collect();
        // The router takes no empty parameter.
        let same = |(described, part): (&&str, &&str)| {
            if described.starts_with('{') { !part.is_empty() } else { described == part }
        };
        // A file of an archive may lie in folders of it.
        let has_length = if described.last() == Some(&"{entry}") {
            parts.len() >= described.len()
        } else {
            parts.len() == described.len()
        };
        has_length && described.iter().zip(&parts).all(same)
    })
}

fn resolve(value: &'static Value) -> &'static Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(reference) => {
            DESCRIPTION.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference}"))
        }
        None => value,
    }
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}"))
}

/// Panics where a value is not what a schema says. A keyword that is not known here is a fault, too: it would be ignored.
fn matches(schema: &'static Value, value: &Value, context: &str) {
    let wrong = |why: &str| -> ! { panic!("{why}: {value} in {context}") };
    let empty = Map::new();
    for (keyword, expected) in object(schema) {
        match keyword.as_str() {
            "$ref" => matches(resolve(schema), value, context),
            "type" => {
                let types = expected.as_array().map_or_else(|| vec![expected], |all| all.iter().collect());
                if !types.iter().any(|expected| is(value, expected.as_str().unwrap())) {
                    wrong("of another type");
                }
            }
            "const" if value != expected => wrong("another value"),
            "enum" if !expected.as_array().unwrap().contains(value) => wrong("none of the values"),
            "description" | "const" | "enum" => {}
            "minimum" => {
                // It says nothing of what is no number.
                if value.as_f64().is_some_and(|number| Some(number) < expected.as_f64()) {
                    wrong("too small");
                }
            }
            "pattern" => {
                assert_eq!(expected, "^[0-9a-f]{32}$", "a pattern that this test does not know");
                if value.as_str().unwrap().parse::<jobs::ids::JobId>().is_err() {
                    wrong("no job id");
                }
            }
            // These three say nothing of what is no object, and items nothing of what is no array.
            "required" => {
                let fields = value.as_object();
                if fields.is_some_and(|fields| {
                    expected.as_array().unwrap().iter().any(|name| !fields.contains_key(name.as_str().unwrap()))
                }) {
                    wrong("a field is missing");
                }
            }
            "properties" => {
                for (name, value) in value.as_object().unwrap_or(&empty) {
                    if let Some(schema) = expected.get(name) {
                        matches(schema, value, context);
                    }
                }
            }
            "additionalProperties" => {
                let known = object(&schema["properties"]);
                if *expected == false
                    && value.as_object().unwrap_or(&empty).keys().any(|name| !known.contains_key(name))
                {
                    wrong("a field more");
                }
            }
            "items" => {
                let items = value.as_array().into_iter().flatten();
                items.for_each(|item| matches(expected, item, context));
            }
            other => panic!("{other} is a keyword that this test does not know"),
        }
    }
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}
