//! Why the oldest record of a partition is still there, when it goes, and how much that frees.
//!
//! Pure: facts in, words out. The rule is Apache Kafka's: whole segments go, the oldest first, when the newest record of
//! the segment is older than `retention.ms` or the log without it is still not smaller than `retention.bytes`, and
//! only below the high watermark; the active segment is no exception.

use serde_json::{Value, json};

/// The topic's and its broker's settings.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub delete: bool,
    pub compact: bool,
    pub retention_ms: i64,
    pub retention_bytes: i64,
    /// `segment.ms`, or the shorter `max.compaction.lag.ms` of a compacted topic.
    pub segment_ms: i64,
    pub segment_bytes: i64,
    pub check_interval_ms: i64,
    pub file_delete_delay_ms: i64,
}

/// The segment that the oldest record is in, as far as it can be told from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldestSegment {
    pub oldest_timestamp: i64,
    /// Largest timestamp of its first batch, which its age for rolling is counted from; -1: none.
    pub first_timestamp: i64,
    /// -1: its records have none.
    pub largest_timestamp: i64,
    pub next_offset: i64,
    pub bytes: u64,
    /// Nothing came after it: it is the one that is written to.
    pub is_active: bool,
    /// Its end was seen, not estimated.
    pub is_exact: bool,
}

#[derive(Clone, Debug)]
pub struct Facts {
    pub partition: i32,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    /// Bytes of the leader's replica, where it tells them.
    pub size: Option<u64>,
    /// `None`: the partition is empty.
    pub segment: Option<OldestSegment>,
}

/// The verdict on one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// For programs.
    pub reasons: Vec<&'static str>,
    pub why: String,
    /// Wall clock, ms; `None`: never, or not by time.
    pub goes_at_ms: Option<i64>,
    pub goes: String,
    pub frees: Option<u64>,
}

impl Explanation {
    fn of(reason: &'static str, why: impl Into<String>, goes: impl Into<String>) -> Self {
        Explanation {
            reasons: vec![reason],
            why: why.into(),
            goes_at_ms: None,
            goes: goes.into(),
            frees: None,
        }
    }

    pub fn value(&self) -> Value {
        json!({
            "reasons": self.reasons,
            "why": self.why,
            "goesAt": self.goes_at_ms,
            "goes": self.goes,
            "frees": self.frees,
        })
    }
}

pub fn explain(facts: &Facts, rules: &Rules, now_ms: i64) -> Explanation {
    let Some(segment) = &facts.segment else {
        return Explanation::of("empty", "the partition is empty", "-");
    };
    if !rules.delete {
        return match rules.compact {
            true => Explanation::of(
                "compacted",
                "cleanup.policy=compact: age and size remove nothing",
                "when compaction finds a newer record of its key",
            ),
            false => Explanation::of("no-policy", "cleanup.policy is empty: nothing is removed", "never"),
        };
    }
    let by_time = by_time(segment, rules, now_ms);
    let by_size = facts.size.map_or(Size::NoLimit, |size| by_size(segment, rules, size));
    let frees = Some(segment.bytes);
    if facts.high_watermark < segment.next_offset && !segment.is_active {
        let why = format!(
            "its segment reaches offset {}, and only what lies below the high watermark {} may go",
            segment.next_offset, facts.high_watermark
        );
        return Explanation {
            frees,
            ..Explanation::of("high-watermark", why, "when the in-sync replicas have caught up")
        };
    }
    if by_time.is_due || matches!(by_size, Size::Exceeded) {
        let limit = if by_time.is_due { "retention.ms" } else { "retention.bytes" };
        let why = format!("{limit} is exceeded: its segment goes with the next check");
        let goes = format!("within {}", duration(rules.check_interval_ms));
        let goes_at_ms = Some(now_ms.saturating_add(rules.check_interval_ms));
        return Explanation { frees, goes_at_ms, ..Explanation::of("due", why, goes) };
    }
    let mut explanation = Explanation { frees, ..kept_by_time(segment, rules, now_ms, &by_time) };
    match by_size {
        Size::NoLimit => {}
        Size::Exceeded => {}
        Size::Missing(bytes) => {
            explanation.reasons.push("below-retention-bytes");
            explanation.why.push_str("; retention.bytes is not exceeded by a whole segment");
            let sooner = format!("when {} more are written", size_text(bytes));
            explanation.goes = match explanation.goes_at_ms {
                Some(_) => format!("{}, or {sooner}", explanation.goes),
                None => sooner,
            };
        }
    }
    explanation
}

struct Time {
    is_due: bool,
    /// The moment it becomes due when nothing is added to the segment.
    due_at_ms: Option<i64>,
}

fn by_time(segment: &OldestSegment, rules: &Rules, now_ms: i64) -> Time {
    if rules.retention_ms < 0 || segment.largest_timestamp < 0 {
        return Time { is_due: false, due_at_ms: None };
    }
    let due_at = segment.largest_timestamp.saturating_add(rules.retention_ms).saturating_add(1);
    Time { is_due: now_ms >= due_at, due_at_ms: Some(due_at) }
}

fn kept_by_time(segment: &OldestSegment, rules: &Rules, now_ms: i64, time: &Time) -> Explanation {
    let limit = duration(rules.retention_ms);
    let active = if segment.is_active { "active-segment" } else { "segment-not-old-enough" };
    let Some(due_at) = time.due_at_ms else {
        return if rules.retention_ms < 0 {
            Explanation::of("no-time-limit", "retention.ms=-1: age removes nothing", "never")
        } else {
            Explanation::of(
                "no-timestamps",
                "its segment has no timestamps: its age is that of the file's last change",
                format!("{limit} after the file's last change"),
            )
        };
    };
    let (reasons, why) = if segment.largest_timestamp > now_ms {
        let why =
            format!("its segment holds a record of the future ({})", time_text(segment.largest_timestamp));
        (vec!["future-timestamp"], why)
    } else if segment.oldest_timestamp >= 0 && now_ms - segment.oldest_timestamp > rules.retention_ms {
        let which = if segment.is_active { "its segment, the active one," } else { "its segment" };
        let why = format!(
            "it is older than retention.ms ({limit}), but {which} holds records up to {} and goes as a whole",
            time_text(segment.largest_timestamp)
        );
        (vec![active], why)
    } else {
        (vec!["retention-ms-not-reached"], format!("retention.ms ({limit}) is not reached"))
    };
    let mut goes = time_text(due_at);
    if segment.is_active && segment.first_timestamp >= 0 {
        let rolls_at = segment.first_timestamp.saturating_add(rules.segment_ms);
        let at_the_latest = rolls_at.saturating_add(rules.retention_ms).saturating_add(1);
        if at_the_latest > due_at && at_the_latest < i64::MAX {
            goes = format!("{goes} if nothing more is written, at the latest {}", time_text(at_the_latest));
        }
    }
    Explanation { reasons, why, goes_at_ms: Some(due_at), goes, frees: None }
}

enum Size {
    NoLimit,
    Exceeded,
    /// Bytes to be written before the segment may go.
    Missing(u64),
}

fn by_size(segment: &OldestSegment, rules: &Rules, size: u64) -> Size {
    let Ok(limit) = u64::try_from(rules.retention_bytes) else { return Size::NoLimit };
    let needed = limit.saturating_add(segment.bytes);
    if size >= needed { Size::Exceeded } else { Size::Missing(needed - size) }
}

/// UTC, to the second.
pub fn time_text(ms: i64) -> String {
    match jiff::Timestamp::from_second(ms.div_euclid(1000)) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// The two largest units.
pub fn duration(ms: i64) -> String {
    if ms < 0 {
        return format!("-{}", duration(ms.saturating_neg()));
    }
    let units = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];
    let mut rest = ms;
    let mut parts = Vec::new();
    for (name, unit) in units {
        if rest >= unit || (name == "ms" && parts.is_empty()) {
            parts.push(format!("{} {name}", rest / unit));
        } else if !parts.is_empty() {
            break;
        }
        rest %= unit;
        if parts.len() == 2 || rest == 0 && !parts.is_empty() {
            break;
        }
    }
    parts.join(" ")
}

pub fn size_text(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes >= 1 << shift);
    match unit {
        Some((name, shift)) => {
            let tenths = (bytes >> (shift - 10)) * 10 / 1024;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;
    const DAY: i64 = 86_400_000;

    fn rules() -> Rules {
        Rules {
            delete: true,
            retention_ms: 7 * DAY,
            retention_bytes: -1,
            segment_ms: 7 * DAY,
            segment_bytes: 1 << 30,
            check_interval_ms: 300_000,
            file_delete_delay_ms: 60_000,
            ..Rules::default()
        }
    }

    fn facts(oldest: i64, largest: i64, is_active: bool) -> Facts {
        let segment = OldestSegment {
            oldest_timestamp: oldest,
            first_timestamp: oldest,
            largest_timestamp: largest,
            next_offset: 100,
            bytes: 1000,
            is_active,
            is_exact: true,
        };
        Facts {
            partition: 0,
            log_start_offset: 0,
            high_watermark: 500,
            size: Some(5000),
            segment: Some(segment),
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn every_reason_is_found() {
        let old = NOW - 10 * DAY;
        let sized = |bytes| Rules { retention_bytes: bytes, ..rules() };
        let cases: Vec<(&str, Facts, Rules, Vec<&str>, Option<i64>)> = vec![
            ("empty", Facts { segment: None, ..facts(0, 0, true) }, rules(), vec!["empty"], None),
            (
                "compact",
                facts(old, old, false),
                Rules { delete: false, compact: true, ..rules() },
                vec!["compacted"],
                None,
            ),
            (
                "no policy",
                facts(old, old, false),
                Rules { delete: false, ..rules() },
                vec!["no-policy"],
                None,
            ),
            (
                "no limit",
                facts(old, old, false),
                Rules { retention_ms: -1, ..rules() },
                vec!["no-time-limit"],
                None,
            ),
            ("due", facts(old, NOW - 8 * DAY, false), rules(), vec!["due"], Some(NOW + 300_000)),
            ("due and active", facts(old, NOW - 8 * DAY, true), rules(), vec!["due"], Some(NOW + 300_000)),
            (
                "not yet",
                facts(NOW - 6 * DAY, NOW - 5 * DAY, false),
                rules(),
                vec!["retention-ms-not-reached"],
                Some(NOW + 2 * DAY + 1),
            ),
            (
                "due to the millisecond",
                facts(old, NOW - 7 * DAY, false),
                rules(),
                vec!["segment-not-old-enough"],
                Some(NOW + 1),
            ),
            (
                "held by a newer record",
                facts(old, NOW - DAY, false),
                rules(),
                vec!["segment-not-old-enough"],
                Some(NOW + 6 * DAY + 1),
            ),
            (
                "held by the active segment",
                facts(old, NOW - DAY, true),
                rules(),
                vec!["active-segment"],
                Some(NOW + 6 * DAY + 1),
            ),
            (
                "future",
                facts(old, NOW + 365 * DAY, true),
                rules(),
                vec!["future-timestamp"],
                Some(NOW + 372 * DAY + 1),
            ),
            ("without timestamps", facts(-1, -1, true), rules(), vec!["no-timestamps"], None),
            (
                "not replicated",
                Facts { high_watermark: 50, ..facts(old, NOW - 8 * DAY, false) },
                rules(),
                vec!["high-watermark"],
                None,
            ),
            ("too large", facts(NOW, NOW, false), sized(4000), vec!["due"], Some(NOW + 300_000)),
            (
                "not large enough",
                facts(NOW, NOW, false),
                sized(4001),
                vec!["retention-ms-not-reached", "below-retention-bytes"],
                Some(NOW + 7 * DAY + 1),
            ),
        ];
        for (name, facts, rules, reasons, goes_at) in cases {
            let explanation = explain(&facts, &rules, NOW);
            assert_eq!(explanation.reasons, reasons, "{name}: {explanation:?}");
            assert_eq!(explanation.goes_at_ms, goes_at, "{name}: {explanation:?}");
        }
    }

    #[test]
    fn what_an_active_segment_may_still_get_is_told() {
        let explanation = explain(&facts(NOW - 3 * DAY, NOW - DAY, true), &rules(), NOW);
        assert_eq!(
            explanation.goes,
            format!(
                "{} if nothing more is written, at the latest {}",
                time_text(NOW + 6 * DAY),
                time_text(NOW + 11 * DAY)
            )
        );
    }

    #[test]
    fn durations_and_sizes_are_short() {
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (90_000, "1 min 30 s"),
            (3_600_000, "1 h"),
            (7 * DAY, "7 d"),
            (7 * DAY + 3_600_000 + 5, "7 d 1 h"),
            (-1000, "-1 s"),
        ] {
            assert_eq!(duration(ms), text, "{ms}");
        }
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (3 << 29, "1.5 GiB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
