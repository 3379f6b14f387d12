//! Measured values by metric and subject, their medians, and the table of ratios.

use crate::subject::Kind;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What the goal compares, and how a value is shown.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub key: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    pub decimals: usize,
    /// Largest allowed ratio to the reference.
    pub goal: Option<f64>,
    /// Largest allowed ratio to the floor.
    pub floor_goal: Option<f64>,
    /// Largest allowed value.
    pub limit: Option<f64>,
    /// Smallest allowed ratio to the reference, where more is better.
    pub at_least: Option<f64>,
}

const fn metric(key: &'static str, title: &'static str, unit: &'static str, decimals: usize) -> Metric {
    Metric { key, title, unit, decimals, goal: None, floor_goal: None, limit: None, at_least: None }
}

const fn goal(mut metric: Metric, goal: f64) -> Metric {
    metric.goal = Some(goal);
    metric
}

const fn floor_goal(mut metric: Metric, goal: f64) -> Metric {
    metric.floor_goal = Some(goal);
    metric
}

const fn limit(mut metric: Metric, limit: f64) -> Metric {
    metric.limit = Some(limit);
    metric
}

const fn at_least(mut metric: Metric, ratio: f64) -> Metric {
    metric.at_least = Some(ratio);
    metric
}

/// The table's rows in order.
pub const METRICS: &[Metric] = &[
    goal(metric("start", "start to first ack", "ms", 0), 1.0 / 20.0),
    goal(metric("rss_idle", "RSS idle", "MB", 1), 1.0 / 15.0),
    goal(metric("rss_load", "RSS after load", "MB", 1), 1.0 / 10.0),
    goal(metric("rss_load_again", "RSS after repeated load", "MB", 1), 1.0 / 10.0),
    metric("cpu_idle", "CPU idle", "ms per s", 2),
    floor_goal(goal(metric("produce_gb_100", "produce, 100 B: CPU", "s per GB", 3), 1.0 / 3.0), 2.0),
    metric("produce_rec_100", "produce, 100 B: CPU", "ns per record", 0),
    floor_goal(goal(metric("produce_gb_1024", "produce, 1 KiB: CPU", "s per GB", 3), 1.0 / 2.0), 2.0),
    metric("produce_rec_1024", "produce, 1 KiB: CPU", "ns per record", 0),
    goal(metric("consume_gb_100", "consume, 100 B: CPU", "s per GB", 3), 0.8),
    metric("consume_rec_100", "consume, 100 B: CPU", "ns per record", 0),
    goal(metric("consume_gb_1024", "consume, 1 KiB: CPU", "s per GB", 3), 1.0),
    metric("consume_rec_1024", "consume, 1 KiB: CPU", "ns per record", 0),
    goal(metric("single_cpu", "one-record requests: CPU", "µs per record", 1), 1.0 / 4.0),
    metric("single_produce_cpu", "one-record requests without a reader: CPU", "µs per record", 1),
    metric("ack_p50", "one-record requests: ack p50", "ms", 3),
    metric("ack_p99", "one-record requests: ack p99", "ms", 3),
    metric("ack_p999", "one-record requests: ack p99.9", "ms", 3),
    goal(metric("e2e_p50", "one-record requests: end to end p50", "ms", 3), 1.0),
    goal(metric("e2e_p99", "one-record requests: end to end p99", "ms", 3), 1.0 / 2.0),
    metric("e2e_p999", "one-record requests: end to end p99.9", "ms", 3),
    metric("stop", "clean stop", "ms", 0),
    limit(metric("restart_large", "restart over the large log", "ms", 0), 300.0),
    metric("restart_large_read", "restart over the large log: bytes read", "MB", 2),
    metric("create_partitions", "creating the partitions", "s", 2),
    metric("create_partitions_cpu", "creating the partitions: CPU", "s", 2),
    limit(metric("rss_partitions", "RSS with the partitions", "MB", 1), 120.0),
    metric("cpu_idle_partitions", "CPU idle with the partitions", "ms per s", 2),
    goal(metric("restart_partitions", "restart with the partitions after kill -9", "ms", 0), 1.0 / 10.0),
    metric("restart_partitions_cpu", "restart with the partitions: CPU", "s", 2),
    metric("stop_partitions", "clean stop with the partitions", "ms", 0),
    metric("restart_partitions_clean", "restart with the partitions after a clean stop", "ms", 0),
    metric("wide_cpu_1", "produce to 1 partition: CPU", "s per GB", 3),
    metric("wide_mb_1", "produce to 1 partition", "MB/s", 0),
    metric("wide_cpu_100", "produce to 100 partitions: CPU", "s per GB", 3),
    metric("wide_mb_100", "produce to 100 partitions", "MB/s", 0),
    metric("wide_cpu_2000", "produce to 2,000 partitions: CPU", "s per GB", 3),
    metric("wide_mb_2000", "produce to 2,000 partitions", "MB/s", 0),
    at_least(metric("fsync_rate_1", "flush.messages=1, 16 producers, 1 partition", "acks per s", 0), 5.0),
    metric("fsync_p50_1", "flush.messages=1, 1 partition: ack p50", "ms", 3),
    metric("fsync_p99_1", "flush.messages=1, 1 partition: ack p99", "ms", 3),
    metric("fsync_cpu_1", "flush.messages=1, 1 partition: CPU", "µs per record", 1),
    at_least(metric("fsync_rate_16", "flush.messages=1, 16 producers, 16 partitions", "acks per s", 0), 5.0),
    metric("fsync_p50_16", "flush.messages=1, 16 partitions: ack p50", "ms", 3),
    metric("fsync_p99_16", "flush.messages=1, 16 partitions: ack p99", "ms", 3),
    metric("fsync_cpu_16", "flush.messages=1, 16 partitions: CPU", "µs per record", 1),
    goal(metric("recovery", "recovery of the large log after kill -9", "ms", 0), 1.0 / 3.0),
    metric("recovery_cpu", "recovery of the large log: CPU", "s per GB", 3),
    metric("recovery_read", "recovery of the large log: bytes read", "MB", 0),
    metric("cold_mb", "consume from disk", "MB/s", 0),
    metric("cold_cpu", "consume from disk: CPU", "s per GB", 3),
];

/// See the file's header.
#[derive(Default)]
pub struct Results {
    values: BTreeMap<(&'static str, Kind), Vec<f64>>,
}

impl Results {
    pub fn add(&mut self, key: &'static str, kind: Kind, value: f64) {
        debug_assert!(METRICS.iter().any(|metric| metric.key == key), "{key} has no row");
        println!("  {:<9} {key:<24} {value:.3}", kind.name());
        self.values.entry((key, kind)).or_default().push(value);
    }

    fn median(&self, key: &'static str, kind: Kind) -> Option<f64> {
        let mut values = self.values.get(&(key, kind))?.clone();
        values.sort_unstable_by(f64::total_cmp);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        if values.len() % 2 == 1 { Some(upper) } else { Some((values.get(middle - 1)? + upper) / 2.0) }
    }

    /// The table in Markdown; rows that nothing was measured for are left out.
    pub fn table(&self) -> String {
        let mut out = String::from(
            "| | unit | bitacora | kafka | floor | ratio to kafka | goal | ratio to floor | met |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---|\n",
        );
        for metric in METRICS {
            let ours = self.median(metric.key, Kind::Bitacora);
            let kafka = self.median(metric.key, Kind::Kafka);
            if ours.is_none() && kafka.is_none() {
                continue;
            }
            let floor = self.median(metric.key, Kind::Floor);
            let show =
                |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.*}", metric.decimals));
            let ratio = |of: Option<f64>| of.filter(|v| *v > 0.0).and_then(|v| Some(ours? / v));
            let show_ratio = |r: Option<f64>| r.map_or(String::new(), |r| format!("{r:.3}"));
            let checks = [
                metric.goal.zip(ratio(kafka)).map(|(goal, r)| r <= goal),
                metric.floor_goal.zip(ratio(floor)).map(|(goal, r)| r <= goal),
                metric.limit.zip(ours).map(|(limit, value)| value <= limit),
                metric.at_least.zip(ratio(kafka)).map(|(least, r)| r >= least),
            ];
            let met = match (checks.contains(&Some(false)), checks.contains(&Some(true))) {
                (true, _) => "no",
                (false, true) => "yes",
                (false, false) => "",
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {met} |",
                metric.title,
                metric.unit,
                show(ours),
                show(kafka),
                show(floor),
                show_ratio(ratio(kafka)),
                goal_text(metric),
                show_ratio(ratio(floor)),
            );
        }
        out
    }
}

fn goal_text(metric: &Metric) -> String {
    let ratio = metric.goal.map(|goal| match 1.0 / goal {
        n if n > 1.5 => format!("≤ 1/{n:.0}"),
        _ => format!("≤ {goal}"),
    });
    let floor = metric.floor_goal.map(|goal| format!("≤ {goal} × floor"));
    let limit = metric.limit.map(|limit| format!("≤ {limit} {}", metric.unit));
    let least = metric.at_least.map(|ratio| format!("≥ {ratio} ×"));
    [ratio, floor, limit, least].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_medians_ratios_and_whether_goals_are_met() {
        let mut results = Results::default();
        for value in [30.0, 10.0, 20.0] {
            results.add("start", Kind::Bitacora, value);
        }
        results.add("start", Kind::Kafka, 1000.0);
        results.add("restart_large", Kind::Bitacora, 301.0);
        results.add("fsync_rate_1", Kind::Bitacora, 600.0);
        results.add("fsync_rate_1", Kind::Kafka, 100.0);
        let table = results.table();
        assert!(table.contains("| acks per s | 600 | 100 |  | 6.000 | ≥ 5 × |  | yes |"), "{table}");
        assert!(
            table.contains("| start to first ack | ms | 20 | 1000 |  | 0.020 | ≤ 1/20 |  | yes |"),
            "{table}"
        );
        assert!(table.contains("| 301 |  |  |  | ≤ 300 ms |  | no |"), "{table}");
    }
}
