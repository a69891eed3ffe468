//! The charts, as SVG made here. What they show stands beside them as text, too.

use maud::{Markup, html};

use crate::digest::format::{figures, flop_rate, or_none, percent, time};
use crate::digest::{Digest, Roofline};

/// Colours that tell kernels apart; the last one is of all others.
const COLOURS: usize = 8;

/// A share of a hundred, as a bar with its number. A share beyond that fills the bar.
pub fn bar(label: &str, share: Option<f64>) -> Markup {
    let filled = share.unwrap_or(0.0).clamp(0.0, 100.0);
    let text = or_none(share, percent);
    html! {
        div.bar {
            span { (label) }
            svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
                rect.rail x="0" y="0" width="100" height="10" {}
                rect.fill x="0" y="0" width=(format!("{filled:.2}")) height="10" {}
            }
            span { (text) }
        }
    }
}

/// The colour of each launch: one for each kernel, in the order in which they first appear.
pub fn colours(digest: &Digest) -> Vec<usize> {
    let mut names: Vec<&str> = Vec::new();
    let mut colours = Vec::with_capacity(digest.kernels.len());
    for kernel in &digest.kernels {
        let at = names.iter().position(|name| *name == kernel.name).unwrap_or_else(|| {
            names.push(&kernel.name);
            names.len() - 1
        });
        colours.push(at.min(COLOURS - 1));
    }
    colours
}

/// A square in a launch's colour.
pub fn swatch(colour: usize) -> Markup {
    html! { svg.swatch viewBox="0 0 10 10" aria-hidden="true" { rect class=(format!("k{colour}")) width="10" height="10" {} } }
}

/// The captured launches in their order, each as wide as its time.
pub fn timeline(digest: &Digest, colours: &[usize]) -> Markup {
    let times = || digest.kernels.iter().map(|kernel| kernel.duration_ns.unwrap_or(0.0).max(0.0));
    let total: f64 = times().sum();
    let scale = if total > 0.0 && total.is_finite() { 1000.0 / total } else { 0.0 };
    let mut left = 0.0;
    let pieces: Vec<(f64, f64)> = times()
        .map(|time| {
            let piece = (left, time * scale);
            left += piece.1;
            piece
        })
        .collect();
    let label = format!("{} launches that took {} together", digest.kernels.len(), time(total));
    html! {
        svg.timeline viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label=(label) {
            @for ((kernel, (x, width)), colour) in digest.kernels.iter().zip(&pieces).zip(colours) {
                rect class=(format!("k{colour}")) x=(format!("{x:.2}")) y="0" width=(format!("{width:.2}")) height="20" {
                    title { (kernel.short_name) ": " (or_none(kernel.duration_ns, time)) }
                }
            }
        }
    }
}

/// Work against traffic, both logarithmic, under the roofs of the device.
pub fn roofline(roofline: &Roofline) -> Markup {
    let (left, right, top, bottom) = (60.0, 500.0, 15.0, 245.0);
    // No device and no kernel is beyond these, but a forged number can be, and the chart stays finite.
    let sane = |number: f64| number.clamp(1e-9, 1e21);
    let (work, intensity) = (sane(roofline.flops_per_second), sane(roofline.flops_per_byte));
    let (peak_work, peak_traffic) = (sane(roofline.peak_flops_per_second), sane(roofline.peak_bytes_per_second));
    let ridge = sane(peak_work / peak_traffic);
    let decades = |low: f64, high: f64| (low.log10().floor(), high.log10().ceil());
    let (x_low, x_high) = decades(intensity.min(ridge) / 3.0, intensity.max(ridge) * 3.0);
    let (y_low, y_high) = decades(work / 3.0, peak_work.max(work));
    let x = |value: f64| left + (value.log10() - x_low) / (x_high - x_low).max(1.0) * (right - left);
    let y =
        |value: f64| (bottom - (value.log10() - y_low) / (y_high - y_low).max(1.0) * (bottom - top)).clamp(top, bottom);
    // Where the slope of the memory enters the chart: at its left or at its bottom edge.
    let slope_from = 10_f64.powf(x_low).max(10_f64.powf(y_low) / peak_traffic).min(ridge);
    let at = |value: f64, flops: f64| format!("{:.1},{:.1}", x(value), y(flops));
    let roof =
        [at(slope_from, slope_from * peak_traffic), at(ridge, peak_work), format!("{right:.1},{:.1}", y(peak_work))];
    // Of many decades a few get a line.
    let ticks = |low: f64, high: f64| {
        let step = ((high - low) / 6.0).ceil().max(1.0);
        std::iter::successors(Some(low), move |tick| Some(tick + step)).take_while(move |tick| *tick <= high)
    };
    let label = format!(
        "Roofline of {}: {} at {} operations for each byte, of at most {}",
        roofline.precision,
        flop_rate(roofline.flops_per_second),
        figures(roofline.flops_per_byte),
        flop_rate(roofline.peak_flops_per_second),
    );
    html! {
        svg.roofline viewBox="0 0 520 290" role="img" aria-label=(label) {
            @for tick in ticks(x_low, x_high) {
                @let at = format!("{:.1}", x(10_f64.powf(tick)));
                line.tick x1=(at) x2=(at) y1=(top) y2=(bottom) {}
                text x=(at) y="260" text-anchor="middle" { (figures(10_f64.powf(tick))) }
            }
            @for tick in ticks(y_low, y_high) {
                @let at = y(10_f64.powf(tick));
                line.tick x1=(left) x2=(right) y1=(format!("{at:.1}")) y2=(format!("{at:.1}")) {}
                text x=(left - 4.0) y=(format!("{:.1}", at + 4.0)) text-anchor="end" { (flop_rate(10_f64.powf(tick)).replace("flop/s", "")) }
            }
            path.axis d=(format!("M{left},{top} V{bottom} H{right}")) {}
            polyline.roof points=(roof.join(" ")) {}
            circle.point cx=(format!("{:.1}", x(intensity))) cy=(format!("{:.1}", y(work))) r="5" {
                title { (label) }
            }
            text x=(f64::midpoint(left, right)) y="280" text-anchor="middle" { "operations for each byte of memory traffic" }
            text x=(left + 4.0) y="11" { "flop/s" }
        }
    }
}
