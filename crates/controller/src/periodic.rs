//! Work that the active controller does by the clock: one deadline per task.
//!
//! Invariants: nothing is due while the controller is not active; a task that did only part of its work comes back
//! soon, so that it never holds up requests for long.

use std::time::Duration;

use record::Time;

/// How soon a task comes back that had more to do.
const IMMEDIATE_PERIOD: Duration = Duration::from_millis(10);

/// A task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    WriteNoOpRecord,
    FenceStaleBroker,
    ElectPreferred,
    ElectUnclean,
}

/// The tasks, how often they run, and when they run next.
#[derive(Debug, Clone)]
pub(crate) struct PeriodicTasks {
    tasks: Vec<(Task, Duration, Option<Duration>)>,
}

impl PeriodicTasks {
    pub(crate) fn new(tasks: impl IntoIterator<Item = (Task, Option<Duration>)>) -> Self {
        Self { tasks: tasks.into_iter().filter_map(|(task, period)| Some((task, period?, None))).collect() }
    }

    pub(crate) fn activate(&mut self, now: Time) {
        for (_, period, next) in &mut self.tasks {
            *next = Some(now.monotonic + *period);
        }
    }

    pub(crate) fn deactivate(&mut self) {
        for (_, _, next) in &mut self.tasks {
            *next = None;
        }
    }

    /// The task that is due longest.
    pub(crate) fn due(&self, now: Time) -> Option<Task> {
        let due = self.tasks.iter().filter_map(|(task, _, next)| Some((*task, (*next)?)));
        due.filter(|(_, next)| *next <= now.monotonic).min_by_key(|(_, next)| *next).map(|(task, _)| task)
    }

    pub(crate) fn reschedule(&mut self, now: Time, task: Task, more: bool) {
        for (candidate, period, next) in &mut self.tasks {
            if *candidate == task && next.is_some() {
                *next = Some(now.monotonic + if more { IMMEDIATE_PERIOD } else { *period });
            }
        }
    }

    /// When something is due next, on the monotonic clock.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.tasks.iter().filter_map(|(_, _, next)| *next).min()
    }
}
