//! What a group's leader computes: range, round robin and (cooperative) sticky assignments.
//!
//! Pure functions from members and partition counts to partitions per member. Inputs and outputs are ordered, so that the
//! same group always gets the same assignment.

use std::collections::{BTreeMap, BTreeSet};

/// A member as its JoinGroup metadata describes it.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// The static id when there is one, else the member id: what members are ordered by.
    pub order: String,
    pub topics: Vec<String>,
    pub owned: Vec<(String, i32)>,
    pub generation: i32,
}

pub type Members = BTreeMap<String, Member>;
/// Number of partitions by topic.
pub type Counts = BTreeMap<String, i32>;
pub type Assignment = BTreeMap<String, Vec<(String, i32)>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    Range,
    RoundRobin,
    Sticky,
    CooperativeSticky,
}

impl Assignor {
    /// By protocol name or by the reference's class name.
    pub fn parse(name: &str) -> Option<Assignor> {
        match name.rsplit('.').next()? {
            "range" | "RangeAssignor" => Some(Assignor::Range),
            "roundrobin" | "RoundRobinAssignor" => Some(Assignor::RoundRobin),
            "sticky" | "StickyAssignor" => Some(Assignor::Sticky),
            "cooperative-sticky" | "CooperativeStickyAssignor" => Some(Assignor::CooperativeSticky),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
            Assignor::Sticky => "sticky",
            Assignor::CooperativeSticky => "cooperative-sticky",
        }
    }

    pub fn assign(self, members: &Members, counts: &Counts) -> Assignment {
        match self {
            Assignor::Range => range(members, counts),
            Assignor::RoundRobin => round_robin(members, counts),
            Assignor::Sticky => sticky(members, counts),
            Assignor::CooperativeSticky => withhold_owned(members, sticky(members, counts)),
        }
    }
}

fn empty(members: &Members) -> Assignment {
    members.keys().map(|member| (member.clone(), Vec::new())).collect()
}

fn subscribers<'a>(members: &'a Members, topic: &str) -> Vec<&'a String> {
    let subscribed = |member: &Member| member.topics.iter().any(|other| other == topic);
    let mut found: Vec<(&String, &Member)> =
        members.iter().filter(|(_, member)| subscribed(member)).collect();
    found.sort_by_key(|(_, member)| &member.order);
    found.into_iter().map(|(id, _)| id).collect()
}

/// Each topic on its own: consecutive partitions to members in order, the first ones get one more.
fn range(members: &Members, counts: &Counts) -> Assignment {
    let mut assignment = empty(members);
    for (topic, count) in counts {
        let takers = subscribers(members, topic);
        let Ok(takers_count) = i32::try_from(takers.len()) else { continue };
        if takers_count == 0 {
            continue;
        }
        let (share, extra) = (count / takers_count, count % takers_count);
        let mut next = 0;
        for (index, member) in (0..).zip(takers) {
            let size = share + i32::from(index < extra);
            let taken = (next..next + size).map(|partition| (topic.clone(), partition));
            assignment.entry(member.clone()).or_default().extend(taken);
            next += size;
        }
    }
    assignment
}

/// All partitions in turn to all members that want them.
fn round_robin(members: &Members, counts: &Counts) -> Assignment {
    let mut assignment = empty(members);
    let mut ring: Vec<(&String, &Member)> = members.iter().collect();
    ring.sort_by_key(|(_, member)| &member.order);
    let mut at = 0;
    for (topic, count) in counts {
        if !ring.iter().any(|(_, member)| member.topics.contains(topic)) {
            continue;
        }
        for partition in 0..*count {
            while !ring[at % ring.len()].1.topics.contains(topic) {
                at += 1;
            }
            let member = ring[at % ring.len()].0;
            assignment.entry(member.clone()).or_default().push((topic.clone(), partition));
            at += 1;
        }
    }
    assignment
}

/// Members keep what they have as far as the assignment stays balanced.
fn sticky(members: &Members, counts: &Counts) -> Assignment {
    let mut assignment = empty(members);
    let exists = |topic: &String, partition: i32| {
        counts.get(topic).is_some_and(|count| (0..*count).contains(&partition))
    };
    let mut owner: BTreeMap<(String, i32), &String> = BTreeMap::new();
    let mut by_generation: Vec<(&String, &Member)> = members.iter().collect();
    by_generation.sort_by_key(|(_, member)| std::cmp::Reverse(member.generation));
    for (id, member) in by_generation {
        for (topic, partition) in &member.owned {
            if exists(topic, *partition) && member.topics.contains(topic) {
                owner.entry((topic.clone(), *partition)).or_insert(id);
            }
        }
    }
    let mut unassigned = Vec::new();
    for (topic, count) in counts {
        for partition in 0..*count {
            match owner.get(&(topic.clone(), partition)) {
                Some(member) => {
                    assignment.entry((*member).clone()).or_default().push((topic.clone(), partition));
                }
                None => unassigned.push((topic.clone(), partition)),
            }
        }
    }
    for (topic, partition) in unassigned {
        let takers = subscribers(members, &topic);
        let fewest = takers.into_iter().min_by_key(|member| assignment.get(*member).map_or(0, Vec::len));
        if let Some(member) = fewest {
            assignment.entry(member.clone()).or_default().push((topic, partition));
        }
    }
    balance(members, &mut assignment);
    for partitions in assignment.values_mut() {
        partitions.sort();
    }
    assignment
}

/// Moves single partitions from members with more to members with fewer until none differs by two from another that
/// could take one of its partitions. Every move makes the sum of squares smaller, so it ends.
fn balance(members: &Members, assignment: &mut Assignment) {
    loop {
        let mut best: Option<(String, String, usize)> = None;
        for (from, partitions) in assignment.iter() {
            for (index, (topic, _)) in partitions.iter().enumerate().rev() {
                let takers = subscribers(members, topic);
                let to = takers.into_iter().min_by_key(|member| assignment.get(*member).map_or(0, Vec::len));
                let Some(to) = to else { continue };
                if partitions.len() > assignment.get(to).map_or(0, Vec::len) + 1 {
                    best = Some((from.clone(), to.clone(), index));
                    break;
                }
            }
            if best.is_some() {
                break;
            }
        }
        let Some((from, to, index)) = best else { return };
        let Some(partitions) = assignment.get_mut(&from) else { return };
        let moved = partitions.remove(index);
        assignment.entry(to).or_default().push(moved);
    }
}

/// KIP-429: what another member still owns is given only after it has been revoked, in the next rebalance.
fn withhold_owned(members: &Members, mut assignment: Assignment) -> Assignment {
    let owners: BTreeMap<&(String, i32), &String> =
        members.iter().flat_map(|(id, member)| member.owned.iter().map(move |owned| (owned, id))).collect();
    for (member, partitions) in &mut assignment {
        partitions.retain(|partition| owners.get(partition).is_none_or(|owner| *owner == member));
    }
    assignment
}

/// The topics any member wants, of which metadata is needed.
pub fn subscribed_topics(members: &Members) -> Vec<String> {
    let topics: BTreeSet<&String> = members.values().flat_map(|member| &member.topics).collect();
    topics.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(list: &[(&str, &[&str])]) -> Members {
        let member = |(id, topics): &(&str, &[&str])| {
            let topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
            ((*id).to_owned(), Member { order: (*id).to_owned(), topics, ..Default::default() })
        };
        list.iter().map(member).collect()
    }

    fn counts(list: &[(&str, i32)]) -> Counts {
        list.iter().map(|(topic, count)| ((*topic).to_owned(), *count)).collect()
    }

    fn show(assignment: &Assignment) -> String {
        let one = |(member, partitions): (&String, &Vec<(String, i32)>)| {
            let listed: Vec<String> =
                partitions.iter().map(|(topic, number)| format!("{topic}{number}")).collect();
            format!("{member}:{}", listed.join(","))
        };
        assignment.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_assignor_gives_what_the_reference_gives() {
        let group = members(&[("a", &["t", "u"]), ("b", &["t", "u"])]);
        let topics = counts(&[("t", 3), ("u", 3)]);
        assert_eq!(show(&Assignor::Range.assign(&group, &topics)), "a:t0,t1,u0,u1 b:t2,u2");
        assert_eq!(show(&Assignor::RoundRobin.assign(&group, &topics)), "a:t0,t2,u1 b:t1,u0,u2");
        let mixed = members(&[("a", &["t"]), ("b", &["t", "u"])]);
        assert_eq!(show(&Assignor::RoundRobin.assign(&mixed, &topics)), "a:t0,t2 b:t1,u0,u1,u2");
    }

    #[test]
    fn sticky_keeps_what_it_can_and_cooperative_waits_for_revocation() {
        let mut group = members(&[("a", &["t"]), ("b", &["t"])]);
        group.get_mut("a").unwrap().owned = (0..4).map(|number| ("t".to_owned(), number)).collect();
        let topics = counts(&[("t", 4)]);
        assert_eq!(show(&Assignor::Sticky.assign(&group, &topics)), "a:t0,t1 b:t2,t3");
        assert_eq!(show(&Assignor::CooperativeSticky.assign(&group, &topics)), "a:t0,t1 b:");
        group.get_mut("a").unwrap().owned.truncate(2);
        assert_eq!(show(&Assignor::CooperativeSticky.assign(&group, &topics)), "a:t0,t1 b:t2,t3");
    }
}
