//! Records of the coordinators' topics as JSON, for the console consumer's formatters.

use std::sync::LazyLock;

use bytes::Bytes;
use protocol::Decoder;
use serde_json::{Value, json};

use crate::schema_json::Schemas;

/// Which records a formatter shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoordinatorLog {
    Offsets,
    GroupMetadata,
    Transactions,
    ShareState,
}

static GROUP: LazyLock<Schemas> = LazyLock::new(|| Schemas::parse(protocol::schema::GROUP));
static TRANSACTION: LazyLock<Schemas> = LazyLock::new(|| Schemas::parse(protocol::schema::TRANSACTION));
static SHARE: LazyLock<Schemas> = LazyLock::new(|| Schemas::parse(protocol::schema::SHARE));

impl CoordinatorLog {
    fn schemas(self) -> &'static Schemas {
        match self {
            CoordinatorLog::Offsets | CoordinatorLog::GroupMetadata => &GROUP,
            CoordinatorLog::Transactions => &TRANSACTION,
            CoordinatorLog::ShareState => &SHARE,
        }
    }

    fn shows(self, record_type: i16) -> bool {
        match self {
            CoordinatorLog::Offsets => matches!(record_type, 0 | 1),
            CoordinatorLog::GroupMetadata => record_type == 2,
            CoordinatorLog::Transactions | CoordinatorLog::ShareState => true,
        }
    }
}

/// The record's JSON; `None` for what the formatter does not show.
pub(super) fn format_record(
    log: CoordinatorLog,
    key: Option<&Bytes>,
    value: Option<&Bytes>,
) -> Result<Option<String>, String> {
    let Some(key) = key else { return Ok(None) };
    let mut key = Decoder::new(key.clone());
    let record_type = key.i16().map_err(|error| error.to_string())?;
    let schemas = log.schemas();
    let (Some(key_schema), Some(value_schema)) =
        (schemas.by_key("coordinator-key", record_type), schemas.by_key("coordinator-value", record_type))
    else {
        return Ok(None);
    };
    if !log.shows(record_type) {
        return Ok(None);
    }
    let key = key_schema.read(&mut key, 0).map_err(|error| error.to_string())?;
    let value = match value {
        None => Value::Null,
        Some(value) => {
            let mut decoder = Decoder::new(value.clone());
            let version = decoder.i16().map_err(|error| error.to_string())?;
            let mut data = value_schema.read(&mut decoder, version).map_err(|error| error.to_string())?;
            if log == CoordinatorLog::Transactions {
                name_state(&mut data);
            }
            json!({ "version": version, "data": data })
        }
    };
    Ok(Some(json!({ "key": { "type": record_type, "data": key }, "value": value }).to_string()))
}

/// Transaction states show by name.
pub(super) fn name_state(data: &mut Value) {
    const STATES: [&str; 8] = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ];
    let Some(state) = data.get_mut("transactionStatus") else { return };
    let name = state.as_u64().and_then(|id| STATES.get(usize::try_from(id).ok()?));
    *state = name.map_or_else(|| json!(state.to_string()), |name| json!(name));
}
