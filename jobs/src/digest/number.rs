//! The numbers of an export, in one unit a kind: nanoseconds, bytes, bytes a second, hertz, percent.

use std::fmt::Write as _;

/// Longest text that is read as a number, in bytes: `ncu` prints some twenty.
const MAX_BYTES: usize = 64;

/// What a number measures, once its unit is a base unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nanoseconds.
    Time,
    /// Bytes, of a block where the unit says so.
    Bytes,
    /// Bytes a second.
    ByteRate,
    /// Hertz.
    Frequency,
    /// Percent.
    Percent,
    /// Anything else: cycles, warps, registers, ratios.
    Other,
}

/// A finite number and what it measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// The number, in the base unit of its kind.
    pub value: f64,
    /// Its kind.
    pub kind: Kind,
}

/// A metric in the base unit of its kind, where it is a finite number: `ncu` groups digits with commas and writes `n/a` or `nan`
/// where it has none. It scales units to a value's size: 3.23 `us`, 29.31 `Gbyte/s`.
#[must_use]
pub fn quantity(value: &str, unit: &str) -> Option<Quantity> {
    let (kind, exponent) = base(unit);
    scaled(value, exponent).map(|value| Quantity { value, kind })
}

/// The kind of a unit, and the power of ten that leads to its base unit. `ncu` counts a Kbyte as 1,000 bytes.
fn base(unit: &str) -> (Kind, i32) {
    match unit {
        "%" => return (Kind::Percent, 0),
        "ns" | "nsecond" => return (Kind::Time, 0),
        "us" | "usecond" => return (Kind::Time, 3),
        "ms" | "msecond" => return (Kind::Time, 6),
        "s" | "second" => return (Kind::Time, 9),
        _ => {}
    }
    let (quantity, per) = unit.split_once('/').unwrap_or((unit, ""));
    let (exponent, name) = match quantity.as_bytes().first() {
        Some(b'K') => (3, &quantity[1..]),
        Some(b'M') => (6, &quantity[1..]),
        Some(b'G') => (9, &quantity[1..]),
        Some(b'T') => (12, &quantity[1..]),
        _ => (0, quantity),
    };
    match (name, per) {
        ("byte", "" | "block") => (Kind::Bytes, exponent),
        ("byte", "s" | "second") => (Kind::ByteRate, exponent),
        ("hz", "") | ("cycle", "s" | "second") => (Kind::Frequency, exponent),
        _ => (Kind::Other, 0),
    }
}

/// A number times a power of ten. The power becomes part of the text, so that 3.23 thousands are 3230 and not
/// 3229.9999999999995.
fn scaled(text: &str, exponent: i32) -> Option<f64> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut digits: String = text.trim().chars().filter(|&c| c != ',').collect();
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+'));
    let factor = if is_plain && exponent != 0 {
        let _ = write!(digits, "e{exponent}");
        1.0
    } else {
        10_f64.powi(exponent)
    };
    // Minus nothing is nothing.
    digits.parse::<f64>().ok().map(|number| number * factor + 0.0).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_become_base_units_without_a_tail_of_digits() {
        for (value, unit, expected, kind) in [
            ("3.23", "us", 3230.0, Kind::Time),
            ("364.48", "us", 364_480.0, Kind::Time),
            ("1.5", "second", 1.5e9, Kind::Time),
            ("29.31", "Gbyte/s", 29.31e9, Kind::ByteRate),
            ("287.97", "Mbyte/s", 287.97e6, Kind::ByteRate),
            ("4,800", "byte/second", 4800.0, Kind::ByteRate),
            ("2.08", "Kbyte/block", 2080.0, Kind::Bytes),
            ("31.00", "Mbyte", 31e6, Kind::Bytes),
            ("1.48", "Ghz", 1.48e9, Kind::Frequency),
            ("1,830,000,000", "hz", 1.83e9, Kind::Frequency),
            ("4e3", "Kbyte", 4e6, Kind::Bytes),
            ("77.78", "%", 77.78, Kind::Percent),
            ("1,378,496", "inst", 1_378_496.0, Kind::Other),
            ("7", "Mparsec", 7.0, Kind::Other),
            ("-0", "%", 0.0, Kind::Percent),
        ] {
            assert_eq!(quantity(value, unit), Some(Quantity { value: expected, kind }), "{value} {unit}");
        }
    }

    #[test]
    fn what_is_no_finite_number_is_none() {
        let long = "9".repeat(400);
        for value in ["nan", "-nan", "inf", "n/a", "", "1e999", "abc", "(80, 1, 1)", "=1+1", "\u{1b}[31m7", &long] {
            assert_eq!(quantity(value, "us"), None, "{value}");
        }
        assert_eq!(quantity("1e308", "Gbyte"), None);
        assert_eq!(quantity("é", "é"), None);
    }
}
