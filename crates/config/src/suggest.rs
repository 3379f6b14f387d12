//! Did you mean: the known name nearest to one that is not known.
//!
//! Restricted Damerau–Levenshtein distance with a bound, over a few hundred short names; only ever
//! run for a name that is already wrong.

/// The name of `candidates` nearest to `name`, if it differs by at most a third of its length.
pub fn nearest(name: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let normal = normalise(name);
    let limit = (normal.len() / 3).clamp(1, 8);
    candidates
        .map(|candidate| (distance(&normal, candidate.as_bytes()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Lower case with dots, so that `LOG_DIRS` is near `log.dirs`.
fn normalise(name: &str) -> Vec<u8> {
    name.bytes().map(|b| if matches!(b, b'_' | b'-') { b'.' } else { b.to_ascii_lowercase() }).collect()
}

fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use crate::table::broker_table;

    #[test]
    fn a_misspelt_key_leads_to_the_meant_one() {
        for (name, expected) in [
            ("advertised.listener", Some("advertised.listeners")),
            ("log.dri", Some("log.dir")),
            ("LOG_DIRS", Some("log.dirs")),
            ("log.retention.hour", Some("log.retention.hours")),
            ("auto.create.topic.enable", Some("auto.create.topics.enable")),
            ("zookeeper.connect", None),
            ("my.own.key", None),
        ] {
            assert_eq!(broker_table().nearest(name), expected, "{name}");
        }
    }
}
