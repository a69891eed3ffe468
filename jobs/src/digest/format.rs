//! Numbers for people: three figures and a unit.

/// `3.23 us`.
#[must_use]
pub fn time(nanoseconds: f64) -> String {
    scaled(nanoseconds, &["ns", "us", "ms", "s"])
}

/// `94.7 kB`: thousands, as `ncu` counts them.
#[must_use]
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, &["B", "kB", "MB", "GB", "TB"])
}

/// `29.3 GB/s`.
#[must_use]
pub fn byte_rate(bytes_per_second: f64) -> String {
    bytes(bytes_per_second) + "/s"
}

/// `1.2 Tflop/s`.
#[must_use]
pub fn flop_rate(flops_per_second: f64) -> String {
    scaled(flops_per_second, &["flop/s", "kflop/s", "Mflop/s", "Gflop/s", "Tflop/s", "Pflop/s"])
}

/// `12.5 %`.
#[must_use]
pub fn percent(percent: f64) -> String {
    figures(percent) + " %"
}

/// `(80, 1, 1)`.
#[must_use]
pub fn size([x, y, z]: super::Size) -> String {
    format!("({x}, {y}, {z})")
}

/// A number's text, or `n/a`.
#[must_use]
pub fn or_none(number: Option<f64>, text: impl Fn(f64) -> String) -> String {
    number.map_or_else(|| "n/a".to_owned(), text)
}

fn scaled(number: f64, units: &[&str]) -> String {
    let mut number = number;
    for (at, unit) in units.iter().enumerate() {
        // What would be shown as 1000 belongs to the next unit.
        if number.abs() < 999.5 || at + 1 == units.len() {
            return format!("{} {unit}", figures(number));
        }
        number /= 1000.0;
    }
    figures(number)
}

/// Three figures, or the whole number where it has more.
#[must_use]
pub fn figures(number: f64) -> String {
    let size = number.abs();
    let digits = match size {
        _ if size == 0.0 => 0,
        _ if size < 9.995 => 2,
        _ if size < 99.95 => 1,
        _ if size < 1e15 => 0,
        _ => return format!("{number:.2e}"),
    };
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_figures_and_the_unit_that_fits() {
        assert_eq!(time(3230.0), "3.23 us");
        assert_eq!(time(364_480.0), "364 us");
        assert_eq!(time(999_700.0), "1.00 ms");
        assert_eq!(time(12.0), "12.0 ns");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(byte_rate(29.31e9), "29.3 GB/s");
        assert_eq!(percent(0.005), "0.01 %");
        assert_eq!(percent(203.08), "203 %");
        assert_eq!(figures(1e300), "1.00e300");
        assert_eq!(or_none(None, percent), "n/a");
    }
}
