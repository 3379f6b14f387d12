//! Dates and durations as the reference's tools read and print them.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

fn local(ms: i64) -> Zoned {
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::system())
}

/// `2026-01-31 23:59:59,123`: the date of a log line.
pub fn log_date(ms: i64) -> String {
    let at = local(ms);
    format!("{},{:03}", at.strftime("%Y-%m-%d %H:%M:%S"), ms.rem_euclid(1000))
}

/// Formats with the letters of Java's SimpleDateFormat that the tools use (`yyyy-MM-dd HH:mm:ss:SSS` and the like).
pub fn format_date(pattern: &str, ms: i64) -> String {
    let at = local(ms);
    let mut text = String::new();
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        let mut count = 1;
        while letters.next_if_eq(&letter).is_some() {
            count += 1;
        }
        match letter {
            'y' if count == 2 => text.push_str(&format!("{:02}", at.year().rem_euclid(100))),
            'y' => text.push_str(&format!("{:0count$}", at.year())),
            'M' if count == 3 => text.push_str(&at.strftime("%b").to_string()),
            'M' if count > 3 => text.push_str(&at.strftime("%B").to_string()),
            'M' => text.push_str(&format!("{:0count$}", at.month())),
            'd' => text.push_str(&format!("{:0count$}", at.day())),
            'H' => text.push_str(&format!("{:0count$}", at.hour())),
            'm' => text.push_str(&format!("{:0count$}", at.minute())),
            's' => text.push_str(&format!("{:0count$}", at.second())),
            'S' => text.push_str(&format!("{:0count$}", ms.rem_euclid(1000))),
            '\'' => text.extend(letters.by_ref().take_while(|c| *c != '\'')),
            other => text.extend(std::iter::repeat_n(other, count)),
        }
    }
    text
}

/// `YYYY-MM-DDThh:mm:ss[.sss][Z|±hh[:]mm]`, in UTC when no zone is given (KIP-122). Returns epoch milliseconds.
pub fn parse_datetime(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let zone_at = time.find(['Z', '+', '-']);
    let (clock, zone) = time.split_at(zone_at.unwrap_or(time.len()));
    let zone = match zone {
        "" | "Z" => "+00:00".to_owned(),
        zone if zone.contains(':') => zone.to_owned(),
        zone if zone.len() == 3 => format!("{zone}:00"),
        zone => format!("{}:{}", zone.get(..3)?, zone.get(3..)?),
    };
    let timestamp: Timestamp = format!("{date}T{clock}{zone}").parse().ok()?;
    Some(timestamp.as_millisecond())
}

/// Java's `Duration.parse`: `PnDTnHnMn.nS`, every part optional and signed. Returns milliseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let rest = rest.strip_prefix(['P', 'p'])?;
    let (days, time) = match rest.split_once(['T', 't']) {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return None,
        None => (rest, ""),
    };
    let mut total: i64 = 0;
    let mut found = false;
    for (part, units) in
        [(days, &[('D', 86_400_000i64)][..]), (time, &[('H', 3_600_000), ('M', 60_000), ('S', 1000)])]
    {
        let mut part = part;
        for (unit, factor) in units {
            if let Some(at) = part.find([*unit, unit.to_ascii_lowercase()]) {
                let number = part.get(..at)?;
                total = total.checked_add(scaled(number, *factor)?)?;
                part = part.get(at + 1..)?;
                found = true;
            }
        }
        if !part.is_empty() {
            return None;
        }
    }
    found.then_some(sign * total)
}

fn scaled(number: &str, factor: i64) -> Option<i64> {
    match number.split_once('.') {
        None => number.parse::<i64>().ok()?.checked_mul(factor),
        Some((whole, fraction)) => {
            let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
            let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
            let millis: i64 = digits.parse().ok()?;
            let signed = if number.starts_with('-') { -millis } else { millis };
            whole.checked_mul(factor)?.checked_add(signed * factor / 1000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_iso_8601() {
        let table = [
            ("PT0S", Some(0)),
            ("P1DT2H3M4.5S", Some(93_784_500)),
            ("-PT1M", Some(-60_000)),
            ("PT-2H", Some(-7_200_000)),
            ("P1D", Some(86_400_000)),
            ("P", None),
            ("PT", None),
            ("1H", None),
            ("PT1H1D", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
    }

    #[test]
    fn datetimes_are_utc_unless_they_say_otherwise() {
        let table = [
            ("1970-01-01T00:00:01.000", Some(1000)),
            ("1970-01-01T00:00:01Z", Some(1000)),
            ("1970-01-01T02:00:00.000+02:00", Some(0)),
            ("1970-01-01T02:00:00.000+0200", Some(0)),
            ("1970-01-01", None),
            ("yesterday", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_datetime(text), expected, "{text}");
        }
    }
}
