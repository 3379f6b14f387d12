//! Topics resolved before and after the coordinator: names, ids, rights, versions.

use coordinator_group::*;
use protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use protocol::messages::offset_fetch_request::*;
use protocol::messages::offset_fetch_response::*;
use protocol::messages::*;
use protocol::{ErrorCode, Uuid};

const T: Uuid = Uuid([1; 16]);
const SECRET: Uuid = Uuid([2; 16]);
const GONE: Uuid = Uuid([3; 16]);

/// `t` with two partitions, and `secret`, which may not be seen.
struct Topics;

impl TopicResolver for Topics {
    fn topic_name(&self, topic_id: Uuid) -> Option<String> {
        [(T, "t"), (SECRET, "secret")].iter().find(|(id, _)| *id == topic_id).map(|(_, name)| (*name).into())
    }

    fn topic_id(&self, topic: &str) -> Uuid {
        match topic {
            "t" => T,
            "secret" => SECRET,
            _ => Uuid::ZERO,
        }
    }

    fn has_partition(&self, topic: &str, partition: i32) -> bool {
        matches!(topic, "t" | "secret") && (0..2).contains(&partition)
    }

    fn may_read(&self, topic: &str) -> bool {
        topic != "secret"
    }

    fn may_describe(&self, topic: &str) -> bool {
        topic != "secret"
    }
}

fn commit(topics: &[(&str, Uuid, &[i32])]) -> OffsetCommitRequest {
    let topics = topics.iter().map(|(name, topic_id, partitions)| OffsetCommitRequestTopic {
        name: (*name).into(),
        topic_id: *topic_id,
        partitions: partitions
            .iter()
            .map(|index| OffsetCommitRequestPartition { partition_index: *index, ..Default::default() })
            .collect(),
    });
    OffsetCommitRequest { group_id: "g".into(), topics: topics.collect(), ..Default::default() }
}

fn accept(request: OffsetCommitRequest) -> OffsetCommitResponse {
    let topics = request.topics.into_iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|p| OffsetCommitResponsePartition { partition_index: p.partition_index, error_code: 0 })
            .collect(),
    });
    OffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

fn errors(response: &OffsetCommitResponse) -> Vec<(&str, Uuid, Vec<(i32, ErrorCode)>)> {
    let topics = response.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|p| (p.partition_index, ErrorCode(p.error_code)));
        (&*topic.name, topic.topic_id, partitions.collect())
    });
    topics.collect()
}

#[test]
fn a_commit_by_name_is_refused_where_the_topic_is_unknown_or_forbidden() {
    let request =
        commit(&[("t", Uuid::ZERO, &[0, 7]), ("secret", Uuid::ZERO, &[0]), ("gone", Uuid::ZERO, &[0])]);
    let mut plan = OffsetCommitPlan::new(9, request, &Topics);
    let asked = plan.request.take().unwrap();
    assert_eq!((asked.topics.len(), asked.topics[0].topic_id), (1, T), "the coordinator learns the id");
    let answer = plan.finish(Some(accept(asked)));
    assert_eq!(
        errors(&answer),
        [
            ("t", T, vec![(7, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), (0, ErrorCode::NONE)]),
            ("secret", Uuid::ZERO, vec![(0, ErrorCode::TOPIC_AUTHORIZATION_FAILED)]),
            ("gone", Uuid::ZERO, vec![(0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)]),
        ]
    );
}

#[test]
fn a_commit_by_id_is_refused_where_the_id_is_unknown() {
    let mut plan = OffsetCommitPlan::new(10, commit(&[("", GONE, &[0]), ("", T, &[1])]), &Topics);
    let asked = plan.request.take().unwrap();
    assert_eq!(asked.topics[0].name, "t");
    let answer = plan.finish(Some(accept(asked)));
    assert_eq!(
        errors(&answer),
        [("", GONE, vec![(0, ErrorCode::UNKNOWN_TOPIC_ID)]), ("t", T, vec![(1, ErrorCode::NONE)])]
    );
    let plan = OffsetCommitPlan::new(10, commit(&[("", GONE, &[0])]), &Topics);
    assert!(plan.request.is_none(), "nothing is left to ask");
}

#[test]
fn a_fetch_hides_what_may_not_be_seen() {
    let group = |topics: Option<Vec<(&str, Uuid)>>| OffsetFetchRequestGroup {
        group_id: "g".into(),
        topics: topics.map(|topics| {
            let topics = topics.into_iter().map(|(name, topic_id)| OffsetFetchRequestTopics {
                name: name.into(),
                topic_id,
                partition_indexes: vec![0],
            });
            topics.collect()
        }),
        ..Default::default()
    };
    let answer = |names: &[&str]| OffsetFetchResponseGroup {
        group_id: "g".into(),
        topics: names
            .iter()
            .map(|name| OffsetFetchResponseTopics { name: (*name).into(), ..Default::default() })
            .collect(),
        ..Default::default()
    };
    let named = group(Some(vec![("", GONE), ("", SECRET), ("", T)]));
    let plan = OffsetFetchPlan::new(10, named, &Topics);
    assert_eq!(plan.group.topics.as_ref().unwrap().len(), 1);
    let whole = plan.finish(answer(&["t"]), &Topics);
    let shown: Vec<(&str, i16)> =
        whole.topics.iter().map(|t| (&*t.name, t.partitions.first().map_or(0, |p| p.error_code))).collect();
    assert_eq!(
        shown,
        [
            ("t", 0),
            ("", ErrorCode::UNKNOWN_TOPIC_ID.code()),
            ("secret", ErrorCode::TOPIC_AUTHORIZATION_FAILED.code())
        ]
    );
    for (version, names) in [(9, vec!["gone", "t"]), (10, vec!["t"])] {
        let plan = OffsetFetchPlan::new(version, group(None), &Topics);
        let whole = plan.finish(answer(&["gone", "secret", "t"]), &Topics);
        assert_eq!(whole.topics.iter().map(|t| &*t.name).collect::<Vec<_>>(), names);
    }
    let failed = OffsetFetchResponseGroup { error_code: 16, ..answer(&[]) };
    let plan = OffsetFetchPlan::new(10, group(Some(vec![("", GONE)])), &Topics);
    assert!(plan.finish(failed, &Topics).topics.is_empty(), "an error of the group stands alone");
}

#[test]
fn a_fetch_has_one_group_before_version_8() {
    let request = OffsetFetchRequest { group_id: "g".into(), topics: None, ..Default::default() };
    let groups = offset_fetch_groups(7, request.clone());
    assert_eq!((groups.len(), &*groups[0].group_id, groups[0].topics.is_none()), (1, "g", true));
    assert!(offset_fetch_groups(8, request).is_empty());
    let group = OffsetFetchResponseGroup { group_id: "g".into(), error_code: 16, ..Default::default() };
    assert_eq!(finish_offset_fetch(7, vec![group.clone()]).error_code, 16);
    assert_eq!(finish_offset_fetch(8, vec![group.clone()]).groups, [group]);
}

#[test]
fn offsets_are_deleted_only_of_topics_that_exist() {
    let request = OffsetDeleteRequest {
        group_id: "g".into(),
        topics: ["t", "secret", "gone"]
            .map(|name| OffsetDeleteRequestTopic {
                name: name.into(),
                partitions: [0, 9].map(|p| OffsetDeleteRequestPartition { partition_index: p }).into(),
            })
            .into(),
    };
    let plan = OffsetDeletePlan::new(request, &Topics);
    assert_eq!(plan.request.topics.len(), 1);
    assert_eq!(plan.request.topics[0].partitions.len(), 1);
    let failed = OffsetDeleteResponse { error_code: 69, ..Default::default() };
    assert_eq!(plan.clone().finish(failed.clone()), failed);
    let done = OffsetDeleteResponse {
        topics: vec![OffsetDeleteResponseTopic {
            name: "t".into(),
            partitions: vec![OffsetDeleteResponsePartition { partition_index: 0, error_code: 0 }],
        }],
        ..Default::default()
    };
    let whole = plan.finish(done);
    let errors: Vec<Vec<i16>> =
        whole.topics.iter().map(|t| t.partitions.iter().map(|p| p.error_code).collect()).collect();
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.code();
    let forbidden = ErrorCode::TOPIC_AUTHORIZATION_FAILED.code();
    assert_eq!(errors, [vec![unknown, 0], vec![forbidden, forbidden], vec![unknown, unknown]]);
}

#[test]
fn a_list_of_groups_misses_shards_that_moved_but_not_those_that_load() {
    let group = |id: &str| list_groups_response::ListedGroup { group_id: id.into(), ..Default::default() };
    let moved =
        merge_list_groups([Ok(vec![group("a")]), Err(ErrorCode::NOT_COORDINATOR), Ok(vec![group("b")])]);
    assert_eq!((moved.error_code, moved.groups.len()), (0, 2));
    let loading = merge_list_groups([Ok(vec![group("a")]), Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)]);
    assert_eq!(
        (ErrorCode(loading.error_code), loading.groups.len()),
        (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, 0)
    );
}
