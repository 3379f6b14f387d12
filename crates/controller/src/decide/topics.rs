//! DeleteTopics by name and by id (KIP-516).

use std::collections::{BTreeMap, BTreeSet};

use metadata::VersionedRecord;
use metadata::image::TopicsImage;
use protocol::messages::delete_topics_response::DeletableTopicResult;
use protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::records::metadata::RemoveTopicRecord;
use protocol::{ErrorCode, Uuid};

use super::Decider;
use crate::api::{Access, ApiError, BoundedRecords, ControllerResult, RequestContext};

/// The first DeleteTopics version that names topics by id.
const TOPICS_BY_ID: i16 = 6;
/// The first version that knows that deletion can be disabled.
const TOPIC_DELETION_DISABLED: i16 = 3;

/// Members given once, and members given more than once.
#[derive(Default)]
struct Provided<T> {
    once: BTreeSet<T>,
    repeated: BTreeSet<T>,
}

impl<T: Ord + Clone> Provided<T> {
    fn add(&mut self, member: T) {
        if self.repeated.contains(&member) || !self.once.insert(member.clone()) {
            self.once.remove(&member);
            self.repeated.insert(member);
        }
    }
}

fn result(name: Option<&str>, topic_id: Uuid, error: &ApiError) -> DeletableTopicResult {
    DeletableTopicResult {
        name: name.map(str::to_owned),
        topic_id,
        error_code: error.code.code(),
        error_message: error.message.clone(),
    }
}

/// The answer that gives every topic the same error; the reference leaves the message out here.
pub(crate) fn error_response(
    request: &DeleteTopicsRequest,
    api_version: i16,
    error: &ApiError,
) -> DeleteTopicsResponse {
    let silent = ApiError::silent(error.code);
    let responses = if api_version >= TOPICS_BY_ID {
        request.topics.iter().map(|t| result(t.name.as_deref(), t.topic_id, &silent)).collect()
    } else {
        request.topic_names.iter().map(|n| result(Some(n), Uuid::ZERO, &silent)).collect()
    };
    DeleteTopicsResponse { responses, ..Default::default() }
}

impl Decider<'_> {
    /// Deletes topics; `committed` is what clients may see, so that names resolve to committed topics only.
    pub(crate) fn delete_topics(
        &self,
        context: &RequestContext<'_>,
        request: &DeleteTopicsRequest,
        committed: &TopicsImage,
    ) -> Result<ControllerResult<DeleteTopicsResponse>, ApiError> {
        if !self.settings.server.delete_topic_enable {
            return Err(if context.api_version < TOPIC_DELETION_DISABLED {
                ApiError::new(ErrorCode::INVALID_REQUEST, "This version does not support topic deletion.")
            } else {
                ApiError::of(ErrorCode::TOPIC_DELETION_DISABLED)
            });
        }
        let mut responses = Vec::new();
        let (mut names, mut ids) = (Provided::default(), Provided::default());
        request.topic_names.iter().for_each(|n| names.add(n.as_str()));
        let invalid = |message: &str| ApiError::new(ErrorCode::INVALID_REQUEST, message);
        for topic in &request.topics {
            match (&topic.name, topic.topic_id) {
                (None, Uuid::ZERO) => responses.push(result(
                    None,
                    Uuid::ZERO,
                    &invalid("Neither topic name nor id were specified."),
                )),
                (None, id) => ids.add(id),
                (Some(name), Uuid::ZERO) => names.add(name.as_str()),
                (Some(name), id) => responses.push(result(
                    Some(name),
                    id,
                    &invalid("You may not specify both topic name and topic id."),
                )),
            }
        }
        let repeated = names.repeated.iter();
        responses.extend(repeated.map(|n| result(Some(n), Uuid::ZERO, &invalid("Duplicate topic name."))));
        responses.extend(ids.repeated.iter().map(|id| result(None, *id, &invalid("Duplicate topic id."))));
        let to_delete = self.resolve(context, committed, &names, ids, &mut responses);
        let mut records = BoundedRecords::default();
        for (id, name) in to_delete {
            let error = if self.state.image.topics.topic(&id).is_none() {
                ApiError::silent(ErrorCode::UNKNOWN_TOPIC_ID)
            } else if records.push(VersionedRecord::new(RemoveTopicRecord { topic_id: id }, 0)).is_err() {
                ApiError::silent(ErrorCode::UNKNOWN_SERVER_ERROR)
            } else {
                ApiError::NONE
            };
            responses.push(result(Some(&name), id, &error));
        }
        let response = DeleteTopicsResponse { responses, ..Default::default() };
        Ok(ControllerResult::atomic_of(records.into_vec(), response))
    }

    /// The topics to delete by id, of those that exist and that the principal may delete.
    fn resolve(
        &self,
        context: &RequestContext<'_>,
        committed: &TopicsImage,
        names: &Provided<&str>,
        mut ids: Provided<Uuid>,
        responses: &mut Vec<DeletableTopicResult>,
    ) -> BTreeMap<Uuid, String> {
        let all = context.access.allowed(Access::DeleteAnyTopic);
        let deletable = |name: &str| all || context.access.allowed(Access::DeleteTopic(name));
        let describable = |name: &str| all || context.access.allowed(Access::DescribeTopic(name));
        let denied = ApiError::of(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        let mut to_delete = BTreeMap::new();
        for id in &ids.once {
            match committed.topic(id) {
                None => responses.push(result(None, *id, &ApiError::of(ErrorCode::UNKNOWN_TOPIC_ID))),
                Some(topic) if deletable(&topic.name) => {
                    to_delete.insert(*id, topic.name.to_string());
                }
                Some(topic) => {
                    let shown = Some(&*topic.name).filter(|n| describable(n));
                    responses.push(result(shown, *id, &denied));
                }
            }
        }
        for name in &names.once {
            let id = committed.id_of(name);
            match id {
                _ if !describable(name) => responses.push(result(Some(name), Uuid::ZERO, &denied)),
                None => {
                    let unknown = ApiError::of(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
                    responses.push(result(Some(name), Uuid::ZERO, &unknown));
                }
                _ if !deletable(name) => responses.push(result(Some(name), Uuid::ZERO, &denied)),
                Some(id) => {
                    if ids.repeated.contains(&id) || to_delete.insert(id, (*name).to_owned()).is_some() {
                        ids.repeated.insert(id);
                        to_delete.remove(&id);
                        let error = ApiError::new(
                            ErrorCode::INVALID_REQUEST,
                            "The provided topic name maps to an ID that was already supplied.",
                        );
                        responses.push(result(Some(name), id, &error));
                    }
                }
            }
        }
        to_delete
    }
}
