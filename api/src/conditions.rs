//! Conditional requests and ranges of RFC 9110, as far as a file that never changes needs them: its tag is its digest.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Which part of a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// From the first byte to the last one, both included.
    Range {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: u64,
    },
    /// Nothing of it lies in the range.
    Unsatisfiable,
}

/// A strong tag for a content of that name.
#[must_use]
pub fn tag(content: &str) -> HeaderValue {
    // Digests are plain.
    HeaderValue::try_from(format!("\"{content}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Whether the client has the content of this tag already (`If-None-Match`).
#[must_use]
pub fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let tags = headers.get_all(header::IF_NONE_MATCH).iter().flat_map(|value| value.as_bytes().split(|&b| b == b','));
    tags.map(<[u8]>::trim_ascii)
        .any(|known| known == b"*" || known.strip_prefix(b"W/").unwrap_or(known) == tag.as_bytes())
}

/// The part that is asked for (`Range`), of a content of that tag and length. What is no range of bytes, or is several of them,
/// counts as none, as does one that is asked for another content (`If-Range`).
#[must_use]
pub fn part(headers: &HeaderMap, tag: &HeaderValue, length: u64) -> Part {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return Part::Whole };
    if headers.get(header::IF_RANGE).is_some_and(|wanted| wanted != tag) {
        return Part::Whole;
    }
    range.to_str().ok().and_then(bounds).map_or(Part::Whole, |bounds| bounds.of(length))
}

/// Both ends as they are written; at least one is there.
struct Bounds(Option<u64>, Option<u64>);

impl Bounds {
    fn of(self, length: u64) -> Part {
        let end = length.checked_sub(1);
        match (self, end) {
            (Self(Some(first), last), Some(end)) if first <= end => {
                Part::Range { first, last: last.map_or(end, |last| last.min(end)) }
            }
            (Self(None, Some(suffix)), Some(end)) if suffix > 0 => {
                Part::Range { first: length.saturating_sub(suffix), last: end }
            }
            _ => Part::Unsatisfiable,
        }
    }
}

fn bounds(range: &str) -> Option<Bounds> {
    let (unit, range) = range.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let number = |digits: &str| match digits.trim() {
        "" => Some(None),
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => Some(Some(digits.parse().unwrap_or(u64::MAX))),
        _ => None,
    };
    match (number(first)?, number(last)?) {
        (None, None) => None,
        (Some(first), Some(last)) if last < first => None,
        (first, last) => Some(Bounds(first, last)),
    }
}

/// The field that says which part of a file an answer holds.
#[must_use]
pub fn content_range(part: Part, length: u64) -> Option<(HeaderName, HeaderValue)> {
    let text = match part {
        Part::Whole => return None,
        Part::Range { first, last } => format!("bytes {first}-{last}/{length}"),
        Part::Unsatisfiable => format!("bytes */{length}"),
    };
    Some((header::CONTENT_RANGE, HeaderValue::try_from(text).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_range_is_read_as_the_standard_says() {
        let of = |range| part(&headers(&[(header::RANGE, range)]), &tag("a"), 10);
        let range = |first, last| Part::Range { first, last };
        for (text, expected) in [
            ("bytes=0-0", range(0, 0)),
            ("bytes=2-", range(2, 9)),
            ("bytes=2-99999999999999999999", range(2, 9)),
            ("bytes=-3", range(7, 9)),
            ("bytes=-30", range(0, 9)),
            ("Bytes= 1 - 2", range(1, 2)),
            ("bytes=10-", Part::Unsatisfiable),
            ("bytes=99999999999999999999-", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=3-2", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("", Part::Whole),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
        assert_eq!(part(&headers(&[(header::RANGE, "bytes=0-")]), &tag("a"), 0), Part::Unsatisfiable);
        let mut twice = headers(&[(header::RANGE, "bytes=0-0")]);
        twice.append(header::RANGE, HeaderValue::from_static("bytes=1-1"));
        assert_eq!(part(&twice, &tag("a"), 10), Part::Whole);
        assert_eq!(part(&headers(&[]), &tag("a"), 10), Part::Whole);
    }

    #[test]
    fn a_range_of_another_content_is_none() {
        let of = |wanted| part(&headers(&[(header::RANGE, "bytes=1-"), (header::IF_RANGE, wanted)]), &tag("a"), 3);
        assert_eq!(of("\"a\""), Part::Range { first: 1, last: 2 });
        for other in ["\"b\"", "W/\"a\"", "Mon, 30 Nov 2026 20:00:00 GMT"] {
            assert_eq!(of(other), Part::Whole, "{other}");
        }
    }

    #[test]
    fn a_content_that_the_client_has_is_known_by_any_of_its_tags() {
        let known = |value| is_known(&headers(&[(header::IF_NONE_MATCH, value)]), &tag("a"));
        for value in ["\"a\"", "\"b\", \"a\"", "W/\"a\"", "*"] {
            assert!(known(value), "{value}");
        }
        assert!(!known("\"b\"") && !known("a") && !is_known(&HeaderMap::new(), &tag("a")));
    }
}
