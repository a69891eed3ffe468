//! Floating-point work against memory traffic, with the roofs of the device: what `ncu`'s own roofline chart is made of.

use serde::{Deserialize, Serialize};

use super::number::Kind;
use super::raw::RawLaunch;

/// A kernel under the roof of one precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Roofline {
    /// `fp32` or `fp64`.
    pub precision: String,
    /// Floating-point operations a second; a multiply-add is two. Work of the tensor pipe is not in it.
    pub flops_per_second: f64,
    /// Operations for each byte of memory traffic.
    pub flops_per_byte: f64,
    /// The most operations a second, at the clocks of the measurement.
    pub peak_flops_per_second: f64,
    /// The most memory traffic, at the clocks of the measurement.
    pub peak_bytes_per_second: f64,
}

impl Roofline {
    /// Every precision of which the launch has all that is needed.
    pub(super) fn all(raw: &RawLaunch) -> Vec<Self> {
        [("fp32", 'f'), ("fp64", 'd')].into_iter().filter_map(|(name, letter)| Self::new(raw, name, letter)).collect()
    }

    fn new(raw: &RawLaunch, precision: &str, letter: char) -> Option<Self> {
        let per_cycle = |operation: &str| {
            let base = format!("smsp__sass_thread_inst_executed_op_{letter}{operation}_pred_on");
            raw.number(&format!("{base}.sum.per_cycle_elapsed"))
        };
        // ncu collects the multiply-adds either as they are or doubled.
        let doubled = || raw.number(&format!("derived__smsp__sass_thread_inst_executed_op_{letter}fma_pred_on_x2"));
        let fused = per_cycle("fma").map(|count| 2.0 * count).or_else(doubled)?;
        let work_per_cycle = per_cycle("add")? + per_cycle("mul")? + fused;
        let hertz = |name: &str| raw.get(&format!("{name}__cycles_elapsed.avg.per_second"), Kind::Frequency);
        let peak = format!("sm__sass_thread_inst_executed_op_{letter}fma_pred_on.sum.peak_sustained");
        let flops_per_second = work_per_cycle * hertz("smsp").or_else(|| hertz("sm"))?;
        let found = Self {
            precision: precision.to_owned(),
            flops_per_second,
            flops_per_byte: flops_per_second / raw.get("dram__bytes.sum.per_second", Kind::ByteRate)?,
            peak_flops_per_second: 2.0 * raw.number(&peak)? * hertz("sm")?,
            peak_bytes_per_second: raw.number("dram__bytes.sum.peak_sustained")? * hertz("dram")?,
        };
        let numbers =
            [found.flops_per_second, found.flops_per_byte, found.peak_flops_per_second, found.peak_bytes_per_second];
        // A kernel without such work has no place on the chart, and a forged number none either.
        numbers.iter().all(|number| number.is_finite() && *number > 0.0).then_some(found)
    }
}
