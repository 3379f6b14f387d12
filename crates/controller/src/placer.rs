//! Where the replicas of new partitions go: striped over racks and over the brokers of each rack, fenced brokers last.
//!
//! Invariants: no partition has two replicas on one broker; the first replica is on an unfenced broker; racks take
//! turns. Randomness is an argument, so that the same seed gives the same placement.

use std::collections::BTreeMap;

use protocol::ErrorCode;

use crate::api::{ApiError, SeededRandom};

/// A broker that can be given partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsableBroker {
    /// The broker.
    pub id: i32,
    /// Its rack, if any.
    pub rack: Option<String>,
    /// Whether it is fenced: it may follow but not lead.
    pub fenced: bool,
}

fn invalid(message: String) -> ApiError {
    ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, message)
}

/// The replicas of `partitions` new partitions, the preferred leader first.
pub fn place(
    random: &mut SeededRandom,
    brokers: impl IntoIterator<Item = UsableBroker>,
    partitions: usize,
    replication_factor: i16,
) -> Result<Vec<Vec<i32>>, ApiError> {
    let mut racks = RackList::new(random, brokers);
    if replication_factor <= 0 {
        return Err(invalid(format!(
            "Invalid replication factor {replication_factor}: the replication factor must be positive."
        )));
    }
    if racks.num_unfenced == 0 {
        return Err(invalid(
            "All brokers are currently fenced, or have all their log directories cordoned.".to_owned(),
        ));
    }
    let replicas = usize::from(replication_factor.unsigned_abs());
    if replicas > racks.num_total {
        return Err(invalid(format!(
            "The target replication factor of {replication_factor} cannot be reached because only {} broker(s) \
             are registered or some brokers have all their log directories cordoned.",
            racks.num_total
        )));
    }
    Ok((0..partitions).map(|_| racks.place(random, replicas)).collect())
}

/// Brokers in a random order that moves on by one with every epoch.
#[derive(Debug, Default)]
struct BrokerList {
    brokers: Vec<i32>,
    index: usize,
    offset: usize,
    epoch: usize,
}

impl BrokerList {
    fn initialize(&mut self, random: &mut SeededRandom) {
        self.brokers.sort_unstable();
        self.offset = random.below(self.brokers.len());
    }

    fn next(&mut self, epoch: usize) -> Option<i32> {
        if self.brokers.is_empty() {
            return None;
        }
        if self.epoch != epoch {
            self.epoch = epoch;
            self.index = 0;
            self.offset = (self.offset + 1) % self.brokers.len();
        }
        if self.index >= self.brokers.len() {
            return None;
        }
        let broker = self.brokers.get((self.index + self.offset) % self.brokers.len()).copied();
        self.index += 1;
        broker
    }
}

#[derive(Debug, Default)]
struct Rack {
    unfenced: BrokerList,
    fenced: BrokerList,
}

struct RackList {
    racks: Vec<Rack>,
    num_total: usize,
    num_unfenced: usize,
    epoch: usize,
    offset: usize,
}

impl RackList {
    fn new(random: &mut SeededRandom, brokers: impl IntoIterator<Item = UsableBroker>) -> Self {
        let mut by_name: BTreeMap<Option<String>, Rack> = BTreeMap::new();
        let (mut num_total, mut num_unfenced) = (0, 0);
        for broker in brokers {
            let rack = by_name.entry(broker.rack).or_default();
            num_total += 1;
            if broker.fenced {
                rack.fenced.brokers.push(broker.id);
            } else {
                num_unfenced += 1;
                rack.unfenced.brokers.push(broker.id);
            }
        }
        let mut racks: Vec<Rack> = by_name.into_values().collect();
        for rack in &mut racks {
            rack.fenced.initialize(random);
            rack.unfenced.initialize(random);
        }
        let offset = random.below(racks.len());
        Self { racks, num_total, num_unfenced, epoch: 0, offset }
    }

    fn shuffle(&mut self, random: &mut SeededRandom) {
        random.shuffle(&mut self.racks);
        for rack in &mut self.racks {
            random.shuffle(&mut rack.fenced.brokers);
            random.shuffle(&mut rack.unfenced.brokers);
        }
    }

    /// The replicas of one partition. The caller has checked that there are enough brokers and one is unfenced.
    fn place(&mut self, random: &mut SeededRandom, replicas: usize) -> Vec<i32> {
        if self.epoch == self.num_unfenced && self.num_unfenced > 1 {
            self.shuffle(random);
            self.epoch = 0;
        }
        if self.offset == self.racks.len() {
            self.offset = 0;
        }
        let count = self.racks.len();
        let epoch = self.epoch;
        let mut result = Vec::with_capacity(replicas);
        // The first replica comes from the first rack, from this partition's on, that has an unfenced broker.
        let mut first_rack = None;
        for step in 0..count {
            let index = (self.offset + step) % count;
            if let Some(broker) = self.racks.get_mut(index).and_then(|r| r.unfenced.next(epoch)) {
                result.push(broker);
                first_rack = Some(index);
                break;
            }
        }
        // The others take turns from this partition's rack on, passing the first replica's rack over once.
        let mut index = self.offset;
        let mut fruitless = 0;
        while result.len() < replicas && fruitless <= count {
            fruitless += 1;
            if first_rack == Some(index) {
                first_rack = None;
            } else if let Some(rack) = self.racks.get_mut(index)
                && let Some(broker) = rack.unfenced.next(epoch).or_else(|| rack.fenced.next(epoch))
            {
                result.push(broker);
                fruitless = 0;
            }
            index = (index + 1) % count;
        }
        self.epoch += 1;
        self.offset += 1;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn broker(id: i32, rack: &str, fenced: bool) -> UsableBroker {
        UsableBroker { id, rack: (!rack.is_empty()).then(|| rack.to_owned()), fenced }
    }

    fn placed(brokers: &[UsableBroker], partitions: usize, factor: i16, seed: u64) -> Vec<Vec<i32>> {
        let mut random = SeededRandom::new([seed, 1, 2, 3]);
        place(&mut random, brokers.to_vec(), partitions, factor).unwrap()
    }

    #[test]
    fn leaders_are_spread_evenly_and_replicas_are_distinct() {
        let brokers: Vec<_> = (0..4).map(|i| broker(i, "", false)).collect();
        for seed in 0..50 {
            let partitions = placed(&brokers, 200, 3, seed);
            let mut leads = [0; 4];
            for replicas in &partitions {
                assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 3);
                leads[replicas[0] as usize] += 1;
            }
            assert_eq!(leads, [50; 4], "seed {seed}");
        }
    }

    #[test]
    fn replicas_are_on_different_racks_while_there_are_enough() {
        let brokers: Vec<_> = (0..6).map(|i| broker(i, ["a", "b", "c"][i as usize % 3], false)).collect();
        for seed in 0..50 {
            for replicas in placed(&brokers, 60, 3, seed) {
                let racks: BTreeSet<_> = replicas.iter().map(|b| b % 3).collect();
                assert_eq!(racks.len(), 3, "{replicas:?} with seed {seed}");
            }
            for replicas in placed(&brokers, 60, 5, seed) {
                assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 5);
            }
        }
    }

    #[test]
    fn fenced_brokers_follow_but_never_come_first() {
        let brokers = [broker(0, "a", false), broker(1, "a", true), broker(2, "b", true)];
        for seed in 0..20 {
            for replicas in placed(&brokers, 10, 3, seed) {
                assert_eq!(replicas[0], 0);
                assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 3);
            }
        }
    }

    #[test]
    fn what_cannot_be_placed_is_refused_with_the_reference_message() {
        let check = |brokers: &[UsableBroker], factor: i16, expected: &str| {
            let error = place(&mut SeededRandom::new([1; 4]), brokers.to_vec(), 1, factor).unwrap_err();
            assert_eq!(error.code, ErrorCode::INVALID_REPLICATION_FACTOR);
            assert_eq!(error.message.as_deref(), Some(expected));
        };
        let up = [broker(1, "", false)];
        check(&up, 0, "Invalid replication factor 0: the replication factor must be positive.");
        check(
            &[broker(1, "", true)],
            1,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        );
        check(
            &up,
            2,
            "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or some \
             brokers have all their log directories cordoned.",
        );
    }
}
