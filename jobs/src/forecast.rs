//! When a job will start and end, going by how long such work took lately.
//!
//! The queue is played through once: each waiting job goes to the worker that is free first. A shape takes its mean, and what it
//! may take less or more is the distance from that to its tenth and its ninetieth percentile. Over several shapes these distances
//! add up as their squares do, since one shape's luck is not the next one's: for one shape alone the spread is exactly from the
//! tenth to the ninetieth percentile, that is where four of five lie.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use crate::ids::JobId;

/// Fewer measurements of a shape say less than those of its whole leaderboard.
const ENOUGH: i64 = 5;

/// What a duration is looked up by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Work {
    /// The problem's folder.
    pub problem_dir: String,
    /// The shape, as the database spells it.
    pub shape: String,
}

/// How long something took, of late. Without a shape: any of the leaderboard. Without a problem either: any at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Took {
    /// The problem's folder.
    pub problem_dir: Option<String>,
    /// The shape, as the database spells it.
    pub shape: Option<String>,
    /// Measurements.
    pub count: i64,
    /// Their mean, in seconds.
    pub mean_secs: f64,
    /// Their tenth percentile, in seconds.
    pub p10_secs: f64,
    /// Their ninetieth percentile, in seconds.
    pub p90_secs: f64,
}

/// Everything that runs and waits.
#[derive(Debug, Clone)]
pub struct Load {
    /// When it was so.
    pub at: DateTime<Utc>,
    /// Whether no job is claimed.
    pub is_paused: bool,
    /// Workers that take jobs, or will when their present one ends.
    pub workers: usize,
    /// Those that run, then those that wait, in the order of the queue.
    pub jobs: Vec<LoadJob>,
}

/// A job that runs or waits.
#[derive(Debug, Clone)]
pub struct LoadJob {
    /// Its id.
    pub id: JobId,
    /// Whether it runs.
    pub is_running: bool,
    /// Its shapes that have not ended.
    pub shapes: Vec<LoadShape>,
}

/// A shape that has not ended.
#[derive(Debug, Clone)]
pub struct LoadShape {
    /// What it is.
    pub work: Work,
    /// For how long it has run, where it does.
    pub elapsed: Option<Duration>,
}

/// A time that is not known well: the most likely one, and between which two it lies four times out of five.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Seldom earlier.
    pub earliest: DateTime<Utc>,
    /// The estimate.
    pub likely: DateTime<Utc>,
    /// Seldom later.
    pub latest: DateTime<Utc>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its place in the queue, from 1.
    pub queue_position: Option<i64>,
    /// When it will start; none where it runs, and where that depends on an operator.
    pub start: Option<Estimate>,
    /// When it will end.
    pub end: Option<Estimate>,
}

/// Where every job stands.
#[must_use]
pub fn forecast(load: &Load, measured: &[Took]) -> HashMap<JobId, Standing> {
    let times = Times::new(measured);
    let mut standings = HashMap::new();
    // When each worker is free.
    let mut free: Vec<Span> = Vec::new();
    let (running, waiting): (Vec<_>, Vec<_>) = load.jobs.iter().partition(|job| job.is_running);
    for job in running {
        let Some(left) = times.of(job) else { continue };
        standings.insert(job.id, Standing { end: Some(left.after(load.at)), ..Standing::default() });
        free.push(left);
    }
    // A worker that drains is one of those, and takes no other.
    free.sort_by(|one, other| one.mean.total_cmp(&other.mean));
    free.resize(load.workers, Span::default());
    for (position, job) in (1..).zip(waiting) {
        let mut standing = Standing { queue_position: Some(position), ..Standing::default() };
        let first = free.iter_mut().min_by(|one, other| one.mean.total_cmp(&other.mean)).filter(|_| !load.is_paused);
        if let (Some(free), Some(takes)) = (first, times.of(job)) {
            standing.start = Some(free.after(load.at));
            *free = free.and(takes);
            standing.end = Some(free.after(load.at));
        }
        standings.insert(job.id, standing);
    }
    standings
}

/// Seconds from now, with the squares of what they may be less and more.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    mean: f64,
    less: f64,
    more: f64,
}

impl Span {
    fn of(mean: f64, low: f64, high: f64) -> Self {
        Self { mean, less: (mean - low).max(0.0).powi(2), more: (high - mean).max(0.0).powi(2) }
    }

    fn and(self, other: Self) -> Self {
        Self { mean: self.mean + other.mean, less: self.less + other.less, more: self.more + other.more }
    }

    fn after(self, at: DateTime<Utc>) -> Estimate {
        // Milliseconds of a year and more fit well.
        #[expect(clippy::cast_possible_truncation, reason = "a cast of a float stops at the largest number")]
        let later = |secs: f64| {
            at.checked_add_signed(TimeDelta::milliseconds((secs.clamp(0.0, 3e8) * 1000.0) as i64)).unwrap_or(at)
        };
        Estimate {
            earliest: later(self.mean - self.less.sqrt()),
            likely: later(self.mean),
            latest: later(self.mean + self.more.sqrt()),
        }
    }
}

struct Times<'a>(HashMap<(Option<&'a str>, Option<&'a str>), &'a Took>);

impl<'a> Times<'a> {
    fn new(measured: &'a [Took]) -> Self {
        Self(measured.iter().map(|took| ((took.problem_dir.as_deref(), took.shape.as_deref()), took)).collect())
    }

    /// What is left of a job; nothing where nobody knows.
    fn of(&self, job: &LoadJob) -> Option<Span> {
        let left = job.shapes.iter().map(|shape| {
            let took = self.look_up(&shape.work)?;
            let Some(elapsed) = shape.elapsed.map(|elapsed| elapsed.as_secs_f64()) else {
                return Some(Span::of(took.mean_secs, took.p10_secs, took.p90_secs));
            };
            // One that is past its usual time ends at any moment, or it is one of those that take long.
            let (low, high) = ((took.p10_secs - elapsed).max(0.0), (took.p90_secs - elapsed).max(0.0));
            Some(Span::of((took.mean_secs - elapsed).max(high / 2.0), low, high))
        });
        left.reduce(|one, other| Some(one?.and(other?))).unwrap_or(Some(Span::default()))
    }

    /// The closest measurements of which there are enough, or else the closest.
    fn look_up(&self, work: &Work) -> Option<&'a Took> {
        let (dir, shape) = (Some(work.problem_dir.as_str()), Some(work.shape.as_str()));
        let levels = [(dir, shape), (dir, None), (None, None)].map(|key| self.0.get(&key).copied());
        let found = || levels.iter().flatten().copied();
        found().find(|took| took.count >= ENOUGH).or_else(|| found().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(problem_dir: Option<&str>, shape: Option<&str>, count: i64, secs: [f64; 3]) -> Took {
        let [p10_secs, mean_secs, p90_secs] = secs;
        let text = |word: Option<&str>| word.map(str::to_owned);
        Took { problem_dir: text(problem_dir), shape: text(shape), count, mean_secs, p10_secs, p90_secs }
    }

    fn job(is_running: bool, shapes: &[(&str, Option<u64>)]) -> LoadJob {
        let shape = |&(shape, elapsed): &(&str, Option<u64>)| LoadShape {
            work: Work { problem_dir: "qr".to_owned(), shape: shape.to_owned() },
            elapsed: elapsed.map(Duration::from_secs),
        };
        LoadJob { id: JobId::random(), is_running, shapes: shapes.iter().map(shape).collect() }
    }

    fn secs(load: &Load, estimate: Option<Estimate>) -> [i64; 3] {
        let estimate = estimate.unwrap();
        [estimate.earliest, estimate.likely, estimate.latest].map(|at| (at - load.at).num_seconds())
    }

    fn load(workers: usize, jobs: Vec<LoadJob>) -> Load {
        Load { at: Utc::now(), is_paused: false, workers, jobs }
    }

    #[test]
    fn jobs_go_to_the_worker_that_is_free_first() {
        let measured = [took(Some("qr"), Some("a"), 9, [40.0, 60.0, 80.0]), took(Some("qr"), Some("b"), 9, [10.0; 3])];
        let jobs = vec![
            job(true, &[("a", Some(30)), ("b", None)]),
            job(true, &[("a", Some(10))]),
            job(false, &[("b", None)]),
            job(false, &[("a", None)]),
        ];
        let load = load(2, jobs);
        let standings = forecast(&load, &measured);
        let of = |index: usize| standings[&load.jobs[index].id];
        assert_eq!(secs(&load, of(0).end), [20, 40, 60]);
        assert_eq!(secs(&load, of(1).end), [30, 50, 70]);
        assert_eq!((of(2).queue_position, of(3).queue_position), (Some(1), Some(2)));
        assert_eq!(secs(&load, of(2).start), [20, 40, 60]);
        assert_eq!(secs(&load, of(2).end), [30, 50, 70]);
        // Both are free after fifty seconds.
        assert_eq!(secs(&load, of(3).start)[1], 50);
        // Two shapes in a row spread by the root of the sum of squares.
        assert_eq!(secs(&load, of(3).end), [81, 110, 138]);
    }

    #[test]
    fn an_idle_worker_starts_at_once_and_without_one_nobody_knows() {
        let measured = [took(None, None, 1, [5.0, 6.0, 9.0])];
        let busy = load(1, vec![job(false, &[("x", None)])]);
        let standing = forecast(&busy, &measured)[&busy.jobs[0].id];
        assert_eq!((secs(&busy, standing.start), secs(&busy, standing.end)), ([0; 3], [5, 6, 9]));
        for nobody in [Load { workers: 0, ..busy.clone() }, Load { is_paused: true, ..busy.clone() }] {
            let standing = forecast(&nobody, &measured)[&nobody.jobs[0].id];
            assert_eq!(standing, Standing { queue_position: Some(1), ..Standing::default() });
        }
        assert_eq!(forecast(&busy, &[])[&busy.jobs[0].id].end, None, "nothing was ever measured");
    }

    #[test]
    fn a_few_measurements_of_a_shape_give_way_to_many_of_its_leaderboard() {
        let measured = [
            took(Some("qr"), Some("new"), 2, [1.0; 3]),
            took(Some("qr"), None, 50, [7.0; 3]),
            took(None, None, 90, [100.0; 3]),
        ];
        let load = load(1, vec![job(false, &[("new", None)])]);
        assert_eq!(secs(&load, forecast(&load, &measured)[&load.jobs[0].id].end), [7; 3]);
    }

    #[test]
    fn a_shape_that_takes_longer_than_usual_ends_at_any_moment() {
        let measured = [took(Some("qr"), Some("a"), 9, [40.0, 60.0, 80.0])];
        let load = load(1, vec![job(true, &[("a", Some(70))]), job(true, &[("a", Some(500))])]);
        let standings = forecast(&load, &measured);
        assert_eq!(secs(&load, standings[&load.jobs[0].id].end), [0, 5, 10]);
        assert_eq!(secs(&load, standings[&load.jobs[1].id].end), [0, 0, 0]);
    }
}
