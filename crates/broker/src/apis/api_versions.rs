//! ApiVersions (key 18): what this listener serves, and the cluster's features (KIP-511, KIP-584).

use super::{Answer, Outcome, served_apis};
use crate::context::{ListenerRole, RequestContext, Session};
use crate::node::Node;
use crate::reply::ReplyTo;
use metadata::feature::{ELIGIBLE_LEADER_REPLICAS_VERSION, KRAFT_VERSION, default_supported_features};
use metadata::version::METADATA_VERSION;
use protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::{ApiKey, ErrorCode, Listener};

/// Features whose APIs are served. The others (groups of the new protocols, transactions, share and streams groups)
/// are stored and kept as in Apache Kafka but are not announced, since a client would act on them.
const SERVED_FEATURES: [&str; 3] = [METADATA_VERSION, KRAFT_VERSION, ELIGIBLE_LEADER_REPLICAS_VERSION];
/// Below this version a feature whose range starts at 0 is left out: old clients cannot parse it (KIP-1022).
const FIRST_LEVEL_ZERO_VERSION: i16 = 4;
/// The client names itself from this version on.
const FIRST_SOFTWARE_VERSION: i16 = 3;
/// The client may name the cluster and node that it expects from this version on.
const FIRST_IDENTITY_VERSION: i16 = 5;

pub(crate) fn handle(
    node: &Node,
    context: &mut RequestContext<'_>,
    request: ApiVersionsRequest,
) -> Answer<ApiVersionsResponse> {
    let version = context.version();
    if version >= FIRST_SOFTWARE_VERSION {
        if !is_software_word(&request.client_software_name)
            || !is_software_word(&request.client_software_version)
        {
            return Answer::Now(failed(ErrorCode::INVALID_REQUEST));
        }
        context.session.software_name = request.client_software_name;
        context.session.software_version = request.client_software_version;
    }
    if version >= FIRST_IDENTITY_VERSION {
        // Cluster and node are given together or not at all.
        if request.cluster_id.is_some() != (request.node_id != -1) {
            return Answer::Now(failed(ErrorCode::INVALID_REQUEST));
        }
        let other_cluster = request.cluster_id.as_deref().is_some_and(|id| id != node.cluster_id());
        let other_node = request.node_id != -1 && request.node_id != node.node_id();
        if context.session.role == ListenerRole::Broker && (other_cluster || other_node) {
            return Answer::Now(failed(ErrorCode::REBOOTSTRAP_REQUIRED));
        }
    }
    let image = node.image();
    let mut finalized = image.features.all_levels();
    finalized.insert(KRAFT_VERSION.to_owned(), node.controller.kraft_version());
    Answer::Now(ApiVersionsResponse {
        api_keys: advertised(context.session),
        supported_features: default_supported_features(false)
            .into_iter()
            .filter(|(name, range)| {
                SERVED_FEATURES.contains(&name.as_str())
                    && (range.min > 0 || version >= FIRST_LEVEL_ZERO_VERSION)
            })
            .map(|(name, range)| SupportedFeatureKey { name, min_version: range.min, max_version: range.max })
            .collect(),
        finalized_features_epoch: image.offset(),
        finalized_features: finalized
            .into_iter()
            .filter(|(name, level)| *level > 0 && SERVED_FEATURES.contains(&name.as_str()))
            .map(|(name, level)| FinalizedFeatureKey {
                name,
                max_version_level: level,
                min_version_level: level,
            })
            .collect(),
        ..ApiVersionsResponse::default()
    })
}

/// The answer to a version that is not known: in version 0, naming the versions that are (KIP-511).
pub(crate) fn unsupported_version(session: &Session, reply_to: ReplyTo) -> Outcome {
    let key = ApiKey::ApiVersions;
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION.code(),
        api_keys: advertised(session).into_iter().filter(|api| api.api_key == key.code()).collect(),
        ..ApiVersionsResponse::default()
    };
    match (ReplyTo { api_version: 0, ..reply_to }).encode(&response) {
        Ok(reply) => Outcome::Reply(reply),
        Err(error) => Outcome::Close(error.to_string()),
    }
}

fn advertised(session: &Session) -> Vec<ApiVersion> {
    let served = served_apis(session.role);
    let listener = match session.role {
        ListenerRole::Broker => Listener::Broker,
        ListenerRole::Controller => Listener::Controller,
    };
    ApiKey::advertised(listener, false)
        .filter(|(key, _, _)| served.contains(key))
        .map(|(key, min_version, max_version)| ApiVersion { api_key: key.code(), min_version, max_version })
        .collect()
}

fn failed(error: ErrorCode) -> ApiVersionsResponse {
    ApiVersionsResponse { error_code: error.code(), ..ApiVersionsResponse::default() }
}

/// Letters and digits, with dots and dashes inside.
fn is_software_word(word: &str) -> bool {
    let bytes = word.as_bytes();
    let ends_fit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    ends_fit(bytes.first())
        && ends_fit(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}
