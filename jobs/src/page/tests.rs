//! Pages of real and of hostile digests.

use super::*;
use crate::digest::compare::Comparison;
use crate::digest::fuzzing::provenance;
use crate::digest::{Digest, Overview, Pages};

const CSV: &str = include_str!("../../tests/fixtures/h200-qr_v2-0/ncu-details.csv");

fn digest(csv: &str) -> Digest {
    let launches = crate::report::summarise(csv.as_bytes()).unwrap().launches;
    Digest::new(Pages::read(csv.as_bytes()).unwrap(), &Overview::default(), launches, false, provenance())
}

#[test]
fn a_report_has_every_finding_of_every_launch_beside_its_facts() {
    let made = digest(CSV);
    let page = report(std::slice::from_ref(&made));
    is_sound(&page);
    assert_eq!(page.matches("<span class=\"kind\">").count(), 52);
    assert_eq!(page.matches("<details class=\"kernel\"").count(), 4);
    // Of one shape there is nothing to choose.
    assert!(!page.contains("type=\"radio\""));
    let memory = page.split("<h3>Memory</h3>").nth(1).unwrap().split("<h3>").next().unwrap();
    assert!(memory.contains("only 4.0 of the 32 bytes") || memory.contains("L2 Compression"), "{memory}");
    assert!(page.contains("<title>qr_v2: Nsight Compute report</title>"));
}

#[test]
fn the_report_of_a_job_has_a_tab_for_each_shape_and_none_without_shapes() {
    let shape = |index: u32| {
        let mut made = digest(CSV);
        made.provenance.benchmark_index = index;
        made
    };
    let page = report(&[shape(0), shape(3)]);
    is_sound(&page);
    assert_eq!((page.matches("type=\"radio\"").count(), page.matches(" checked").count()), (2, 1));
    assert!(page.contains("<label for=\"tab-1\">Shape 3</label>"), "{page}");
    // Every link leads to something, and every id is there once.
    for link in page.split("href=\"#").skip(1) {
        let id = link.split('"').next().unwrap();
        assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
    }
    let many: Vec<Digest> = (0..20).map(shape).collect();
    let page = report(&many);
    is_sound(&page);
    assert!(!page.contains("type=\"radio\""), "the styles know sixteen tabs");
    is_sound(&report(&[]));
}

#[test]
fn what_strangers_wrote_is_text() {
    let evil = r#"<img src=x onerror=alert(1)>""</style><script>alert(2)</script>"#;
    let header = CSV.lines().next().unwrap();
    let rows = format!(
        "{header}\n\"0\",\"1\",\"p\",\"h\",\"\",\"\",\"{evil}\",\"1\",\"7\",\"(1, 1, 1)\",\"(1, 1, 1)\",\"0\",\"9.0\",\"{evil}\",\"\",\"\",\"\",\"{evil}\",\"OPT\",\"{evil}\",\"global\",\"1e300\"\n"
    );
    let mut made = digest(&rows);
    made.provenance.leaderboard = evil.to_owned();
    made.provenance.file_name = evil.to_owned();
    made.provenance.gpus = vec![evil.to_owned()];
    let page = report(&[made]);
    is_sound(&page);
    assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(2)"), "{page}");
}

#[test]
fn forged_numbers_stay_within_their_charts() {
    let roofline = |flops_per_second: f64, peak_flops_per_second: f64| crate::digest::Roofline {
        precision: "fp32".to_owned(),
        flops_per_second,
        flops_per_byte: 1e-300,
        peak_flops_per_second,
        peak_bytes_per_second: 1e-300,
    };
    let mut made = digest(CSV);
    made.kernels[0].roofline = vec![roofline(1e300, 1e-300), roofline(1e-300, 1e300)];
    made.kernels[0].duration_ns = Some(1e308);
    made.kernels[1].duration_ns = Some(1e308);
    made.kernels[2].duration_ns = Some(-5.0);
    let page = report(&[made]);
    is_sound(&page);
    assert!(page.len() < 200_000, "{} bytes", page.len());
}

#[test]
fn a_comparison_shows_what_got_better_and_what_got_worse() {
    let (before, mut after) = (digest(CSV), digest(CSV));
    after.kernels[3].duration_ns = Some(182_240.0);
    after.kernels[3].verdict.bound = crate::digest::Bound::Memory;
    after.kernels[0].duration_ns = Some(6_460.0);
    after.provenance.file_name = "<script>alert(1)</script>.py".to_owned();
    let found = Comparison::new(&[before], &[after]).unwrap();
    let page = comparison(&found);
    is_sound(&page);
    assert!(page.contains("<span class=\"better\">-50.0 % better</span>"), "{page}");
    assert!(page.contains("<span class=\"worse\">+100 % worse</span>"), "{page}");
    assert!(page.contains("launch bound → memory bound"), "{page}");
}
