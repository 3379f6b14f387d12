//! AlterClientQuotas and DescribeClientQuotas.

use protocol::ErrorCode;
use protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use protocol::messages::describe_client_quotas_request::ComponentData;
use protocol::messages::{AlterClientQuotasRequest, DescribeClientQuotasRequest};

use crate::driver::Driver;

type Names<'a> = &'a [(&'a str, Option<&'a str>)];

fn entry(entity: Names<'_>, ops: &[(&str, Option<f64>)]) -> EntryData {
    let name = |(t, n): &(&str, Option<&str>)| EntityData {
        entity_type: (*t).to_owned(),
        entity_name: n.map(str::to_owned),
    };
    let op = |(key, value): &(&str, Option<f64>)| OpData {
        key: (*key).to_owned(),
        value: value.unwrap_or_default(),
        remove: value.is_none(),
    };
    EntryData { entity: entity.iter().map(name).collect(), ops: ops.iter().map(op).collect() }
}

fn alter(d: &mut Driver, entries: Vec<EntryData>) -> (Vec<(ErrorCode, Option<String>)>, usize) {
    let request = AlterClientQuotasRequest { entries, validate_only: false };
    let result = d.controller.handle_alter_client_quotas(d.now, &request);
    let (response, records) = d.submit(result);
    let answers = response.entries.into_iter().map(|e| (ErrorCode(e.error_code), e.error_message)).collect();
    (answers, records.len())
}

#[test]
fn quotas_that_cannot_be_are_refused_with_the_reference_message() {
    let mut d = Driver::with_brokers(0);
    let user: Names<'_> = &[("user", Some("u"))];
    let table: Vec<(EntryData, &str)> = vec![
        (entry(&[], &[]), "Invalid empty client quota entity"),
        (entry(&[("group", Some("g"))], &[]), "Unhandled client quota entity type: group"),
        (entry(&[("user", Some(""))], &[]), "Empty user not supported"),
        (
            entry(&[("ip", Some("1.2.3.4")), ("user", Some("u"))], &[]),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (entry(&[("ip", Some("1.2.3.x"))], &[]), "1.2.3.x is not a valid IP or resolvable host."),
        (entry(user, &[("nope", Some(1.0))]), "Invalid configuration key nope"),
        (
            entry(user, &[("connection_creation_rate", Some(1.0))]),
            "Invalid configuration key connection_creation_rate",
        ),
        (
            entry(user, &[("producer_byte_rate", Some(0.0))]),
            "Quota producer_byte_rate must be greater than 0",
        ),
        (
            entry(user, &[("producer_byte_rate", Some(f64::NAN))]),
            "Quota producer_byte_rate must be a finite number",
        ),
        (
            entry(user, &[("producer_byte_rate", Some(1.5))]),
            "producer_byte_rate cannot be a fractional value.",
        ),
        (
            entry(user, &[("producer_byte_rate", Some(1.0)), ("producer_byte_rate", Some(2.0))]),
            "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})",
        ),
        (
            entry(&[("ip", None)], &[("connection_creation_rate", Some(3e9))]),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ];
    for (request, message) in table {
        let (answers, records) = alter(&mut d, vec![request]);
        assert_eq!(answers, [(ErrorCode::INVALID_REQUEST, Some(message.to_owned()))]);
        assert_eq!(records, 0);
    }
}

#[test]
fn quotas_are_set_changed_removed_and_described() {
    let mut d = Driver::with_brokers(0);
    let set = |entity: Names<'_>, value| entry(entity, &[("producer_byte_rate", value)]);
    let (answers, records) = alter(
        &mut d,
        vec![
            set(&[("user", Some("a"))], Some(10.0)),
            set(&[("user", None)], Some(20.0)),
            set(&[("user", Some("a")), ("client-id", Some("c"))], Some(30.0)),
        ],
    );
    assert_eq!((answers, records), (vec![(ErrorCode::NONE, None); 3], 3));
    assert_eq!(alter(&mut d, vec![set(&[("user", Some("a"))], Some(10.0))]).1, 0, "nothing changes");
    let describe = |d: &Driver, strict: bool, components: &[(&str, i8, Option<&str>)]| {
        let component = |(t, kind, name): &(&str, i8, Option<&str>)| ComponentData {
            entity_type: (*t).to_owned(),
            match_type: *kind,
            match_: name.map(str::to_owned),
        };
        let request =
            DescribeClientQuotasRequest { components: components.iter().map(component).collect(), strict };
        let response = d.controller.stable_image().client_quotas.describe(&request);
        let values = response.entries.map(|e| e.iter().map(|e| e.values[0].value as i32).collect::<Vec<_>>());
        (ErrorCode(response.error_code), values)
    };
    let found = |list: &[i32]| (ErrorCode::NONE, Some(list.to_vec()));
    assert_eq!(describe(&d, false, &[]).1.unwrap().len(), 3);
    assert_eq!(describe(&d, true, &[]), found(&[]));
    assert_eq!(describe(&d, true, &[("user", 0, Some("a"))]), found(&[10]));
    assert_eq!(describe(&d, false, &[("user", 1, None)]), found(&[20]));
    assert_eq!(describe(&d, false, &[("user", 2, None), ("client-id", 2, None)]), found(&[30]));
    assert_eq!(describe(&d, false, &[("user", 0, None)]), (ErrorCode::INVALID_REQUEST, None));
    assert_eq!(describe(&d, false, &[("x", 2, None)]), (ErrorCode::UNSUPPORTED_VERSION, None));
    assert_eq!(alter(&mut d, vec![set(&[("user", None)], None)]).1, 1);
    assert_eq!(describe(&d, false, &[("user", 1, None)]), found(&[]));
    assert_eq!(alter(&mut d, vec![set(&[("user", None)], None)]).1, 0, "there is nothing to remove");
}
