//! Which options come of which launches.

use super::*;

/// A trace out of (name, launches in a row, nanoseconds of each launch).
fn trace(runs: &[(&str, u64, u64)]) -> Trace {
    let mut trace = Trace::default();
    for &(name, count, ns) in runs {
        let known = trace.groups.iter().position(|group| group.name == name.as_bytes());
        let group = known.unwrap_or(trace.groups.len());
        if known.is_none() {
            let name = name.as_bytes().to_vec();
            trace.groups.push(Group { name, grid: [1; 3], block: [1; 3], count: 0, total_ns: 0 });
        }
        trace.groups[group].count += count;
        trace.groups[group].total_ns += count * ns;
        trace.runs.push(Run { group, count });
    }
    trace
}

fn chosen(mode: CaptureMode, max_launches: u32, trace: &Trace) -> (String, Choice) {
    let (options, choice) = choose(Selection { mode, max_launches }, false, trace);
    (options.join(" "), choice)
}

fn percent(choice: &Choice) -> Option<f64> {
    choice.coverage.map(|coverage| (coverage * 1000.0).round() / 10.0)
}

#[test]
fn a_window_is_the_first_launches_and_says_what_they_hold() {
    let trace = trace(&[("set_up", 40, 1), ("heavy", 1, 960)]);
    let (options, choice) = chosen(CaptureMode::Window, 10, &trace);
    assert_eq!((options.as_str(), percent(&choice)), ("--launch-count 10", Some(4.0)));
    assert_eq!((choice.mode, choice.fallback), (CaptureMode::Window, None));
    assert_eq!(percent(&chosen(CaptureMode::Window, 41, &trace).1), Some(100.0));
}

#[test]
fn distinct_counts_no_further_than_there_are_kernels() {
    let trace = trace(&[("a", 5, 1), ("b", 1, 1), ("a", 5, 1), ("c", 1, 89)]);
    let (options, choice) = chosen(CaptureMode::Distinct, 10, &trace);
    assert_eq!(
        (options.as_str(), percent(&choice)),
        ("--kernel-name-base mangled --kernel-id :::1 --launch-count 3", Some(100.0))
    );
    let (options, choice) = chosen(CaptureMode::Distinct, 2, &trace);
    assert_eq!(
        (options.as_str(), percent(&choice)),
        ("--kernel-name-base mangled --kernel-id :::1 --launch-count 2", Some(11.0))
    );
}

const HOT: &str = "--kernel-name-base mangled --kernel-name";
const EACH_SIZE: &str = "--filter-mode per-launch-config --launch-count 1";

#[test]
fn hot_takes_the_longest_kernels_until_they_hold_enough() {
    let trace = trace(&[("set_up", 40, 1), ("heavy", 1, 500), ("warm", 2, 220), ("cold", 1, 20)]);
    let (options, choice) = chosen(CaptureMode::Hot, 10, &trace);
    assert_eq!(options, format!("{HOT} regex:^(heavy|warm)$ {EACH_SIZE}"));
    assert_eq!((choice.mode, percent(&choice)), (CaptureMode::Hot, Some(94.0)));
    let (options, choice) = chosen(CaptureMode::Hot, 1, &trace);
    assert_eq!(options, format!("{HOT} regex:^(heavy)$ {EACH_SIZE}"));
    assert_eq!(percent(&choice), Some(50.0));
}

/// `kernel` with `sizes` launch sizes, of which the last takes the time.
fn sized(kernel: &str, sizes: u32) -> Trace {
    let mut trace = Trace::default();
    for size in 1..=sizes {
        let total_ns = if size == sizes { 1000 } else { 1 };
        let name = kernel.as_bytes().to_vec();
        trace.groups.push(Group { name, grid: [size, 1, 1], block: [1; 3], count: 1, total_ns });
        trace.runs.push(Run { group: trace.runs.len(), count: 1 });
    }
    trace
}

const BY_NUMBER: &str = "--kernel-name-base mangled --kernel-id";

#[test]
fn hot_takes_each_launch_size_once_and_the_heaviest_where_there_are_too_many() {
    let (options, choice) = chosen(CaptureMode::Hot, 10, &sized("a", 10));
    assert_eq!((options, percent(&choice)), (format!("{HOT} regex:^(a)$ {EACH_SIZE}"), Some(100.0)));
    let (options, choice) = chosen(CaptureMode::Hot, 10, &sized("a", 12));
    let expected = format!("{BY_NUMBER} ::regex:^(a)$:1|2|3|4|5|6|7|8|9|12 --launch-count 10");
    assert_eq!((options, percent(&choice)), (expected, Some(100.0)));
}

#[test]
fn a_number_counts_for_every_hot_kernel_and_no_more_launches_are_captured_than_asked_for() {
    // 12 sizes of one kernel, the last the heaviest, and 20 launches of another.
    let mut trace = sized("a", 12);
    trace.groups.push(Group { name: b"b".to_vec(), grid: [1; 3], block: [1; 3], count: 20, total_ns: 900 });
    trace.runs.push(Run { group: 12, count: 20 });
    let options = |max| chosen(CaptureMode::Hot, max, &trace).0;
    assert_eq!(options(10), format!("{BY_NUMBER} ::regex:^(a|b)$:1|2|3|4|12 --launch-count 10"));
    assert_eq!(options(4), format!("{BY_NUMBER} ::regex:^(a|b)$:1|12 --launch-count 4"));
    assert_eq!(options(3), format!("{BY_NUMBER} ::regex:^(a|b)$:1 --launch-count 2"), "each kernel once comes first");
}

#[test]
fn a_filter_holds_no_kernel_for_which_too_many_launches_are_watched() {
    // Other kernels' launches match no filter, so however many there are, they cost nothing.
    let near = trace(&[("a", 3, 20), ("other", 100 * MAX_WATCHED, 0), ("b", 1, 400), ("a", MAX_WATCHED - 4, 1)]);
    assert_eq!(chosen(CaptureMode::Hot, 10, &near).0, format!("{HOT} regex:^(b|a)$ {EACH_SIZE}"));
    // All of them are watched for one more launch size, but the first of each kernel is near.
    let many = trace(&[("a", 3, 20), ("b", 1, 400), ("a", MAX_WATCHED, 1)]);
    assert_eq!(chosen(CaptureMode::Hot, 10, &many).0, format!("{BY_NUMBER} ::regex:^(b|a)$:1 --launch-count 2"));
    // Too far: the kernel that holds more of the time is taken, and the coverage says what that leaves.
    let far = trace(&[("a", MAX_WATCHED, 1), ("b", 1, 3 * MAX_WATCHED), ("c", 1, 100)]);
    let (options, choice) = chosen(CaptureMode::Hot, 10, &far);
    assert_eq!((options, percent(&choice)), (format!("{HOT} regex:^(b|c)$ {EACH_SIZE}"), Some(76.9)));
}

#[test]
fn set_up_of_any_length_does_not_keep_the_heavy_kernel_out() {
    let ticks = [("tick", 1, 1), ("tock", 1, 1)].repeat(10_000);
    let trace = trace(&[[("fill", 1, 1)].as_slice(), &ticks, &[("heavy", 3, 20_000), ("last", 1, 10)]].concat());
    let (options, choice) = chosen(CaptureMode::Hot, 10, &trace);
    assert_eq!((options, percent(&choice)), (format!("{HOT} regex:^(heavy|last|fill)$ {EACH_SIZE}"), Some(75.0)));
    let (options, choice) = chosen(CaptureMode::Distinct, 10, &trace);
    let expected = format!("{BY_NUMBER} ::regex:^(heavy|last|fill)$:1 --launch-count 3");
    assert_eq!((options, percent(&choice)), (expected, Some(75.0)));
}

#[test]
fn distinct_takes_the_kernels_that_come_early_where_these_hold_more_of_the_time() {
    let trace = trace(&[("a", MAX_WATCHED, 10), ("b", MAX_WATCHED, 9), ("c", 1, 1)]);
    let (options, choice) = chosen(CaptureMode::Distinct, 10, &trace);
    assert_eq!(
        (options.as_str(), percent(&choice)),
        ("--kernel-name-base mangled --kernel-id :::1 --launch-count 1", Some(52.6))
    );
}

#[test]
fn a_kernel_whose_place_in_the_order_was_not_kept_is_captured_where_it_can_be_met() {
    let mut trace = trace(&[("a", 20, 1), ("b", 1, 1000)]);
    trace.runs.truncate(1);
    let by_size = format!("{HOT} regex:^(b|a)$ {EACH_SIZE}");
    assert_eq!(chosen(CaptureMode::Hot, 2, &trace).0, format!("{HOT} regex:^(b)$ {EACH_SIZE}"));
    trace.groups[0].total_ns = 900;
    assert_eq!(chosen(CaptureMode::Hot, 2, &trace).0, by_size);
    // Two sizes of `a` and one of `b`, of which two launches are wanted.
    let mut sized = sized("a", 2);
    sized.groups.push(Group { name: b"b".to_vec(), grid: [1; 3], block: [1; 3], count: 5, total_ns: 900 });
    assert_eq!(chosen(CaptureMode::Hot, 2, &sized).0, format!("{BY_NUMBER} ::regex:^(a|b)$:1 --launch-count 2"));
    // With so many launches nobody knows how long the wait is.
    trace.groups[0].count = MAX_WATCHED;
    let (options, choice) = chosen(CaptureMode::Hot, 2, &trace);
    assert_eq!((options, percent(&choice)), (format!("{HOT} regex:^(b)$ {EACH_SIZE}"), Some(52.6)));
}

#[test]
fn nothing_in_a_name_has_a_meaning_in_the_filter() {
    assert_eq!(pattern(b"_ZN2at6native29vectorizedILi4E"), "_ZN2at6native29vectorizedILi4E");
    assert_eq!(pattern(b"a$b|c)(^.*\"'\\\n,:;\xc3\xa9 -"), "a.b.c................");
    let long = [b'k'; 5000];
    assert_eq!(pattern(&long), format!("{}.*", "k".repeat(1000)));

    let hostile = trace(&[("x)$|^(.*", 1, 10), ("--help", 1, 10), ("\n--kernel-id\n:::1", 1, 10)]);
    let (options, _) = choose(Selection { mode: CaptureMode::Hot, max_launches: 10 }, false, &hostile);
    let expected = ["--kernel-name-base", "mangled", "--kernel-name", "regex:^(x.......|..help|...kernel.id....1)$"];
    assert_eq!(options[..4], expected);
    assert_eq!(options[4..].join(" "), EACH_SIZE);
}

#[test]
fn a_filter_stays_short_however_long_the_names_are() {
    let names: Vec<String> = (0..64).map(|index| format!("{index:0900}")).collect();
    let runs: Vec<_> = names.iter().map(|name| (name.as_str(), 1, 1)).collect();
    let (options, choice) = chosen(CaptureMode::Hot, 64, &trace(&runs));
    assert!(options.len() < MAX_FILTER_CHARS + 200 && options.ends_with(EACH_SIZE), "{}", options.len());
    assert_eq!(percent(&choice), Some(26.6));
}

#[test]
fn without_an_overview_and_with_a_filter_of_ones_own_the_window_is_taken_and_says_why() {
    for mode in [CaptureMode::Distinct, CaptureMode::Hot] {
        let (options, choice) = chosen(mode, 10, &Trace::default());
        assert_eq!((options.as_str(), choice.coverage), ("--launch-count 10", None));
        assert!(choice.fallback.unwrap().contains("saw no launch"));

        let selection = Selection { mode, max_launches: 3 };
        let (options, choice) = choose(selection, true, &trace(&[("a", 1, 1)]));
        assert_eq!((options.join(" ").as_str(), choice.mode), ("--launch-count 3", CaptureMode::Window));
        assert!(choice.coverage.is_none() && choice.fallback.unwrap().contains("filter"));
    }
    assert_eq!(chosen(CaptureMode::Window, 10, &Trace::default()).1.fallback, None);
}

#[test]
fn launches_without_a_name_of_their_own_are_no_hot_kernel() {
    let (options, choice) = chosen(CaptureMode::Hot, 10, &trace(&[("", 9, 10), ("a", 1, 10)]));
    assert!(options.contains("regex:^(a)$"), "{options}");
    assert_eq!(percent(&choice), Some(10.0));
    assert_eq!(chosen(CaptureMode::Hot, 10, &trace(&[("", 9, 90)])).1.mode, CaptureMode::Window);
}

#[test]
fn time_that_was_not_measured_is_no_division_by_zero() {
    let (options, choice) = chosen(CaptureMode::Hot, 2, &trace(&[("a", 1, 0), ("b", 1, 0), ("c", 1, 0)]));
    assert!(options.contains("regex:^(a|b)$"), "{options}");
    assert_eq!(choice.coverage, Some(0.0));
}
