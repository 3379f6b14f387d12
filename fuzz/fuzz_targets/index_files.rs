//! Offset, time and transaction indexes as they are found on disk, and what is done with them afterwards. A file whose
//! entries rise must answer as a plain list of its entries does, also when zeros follow them, as in a preallocated file.
#![no_main]

use std::path::PathBuf;

use fuzz::disk::{self, Choices};
use libfuzzer_sys::fuzz_target;
use storage::index::{At, Index, IndexEntry, OffsetPosition, TimestampOffset};
use storage::txn_index::{AbortedTxn, TransactionIndex};
use testkit::Sim;

const PATH: &str = "/00000000000000000000.index";
const BASE_OFFSETS: [i64; 4] = [0, 1 << 40, i64::MAX - 1000, i64::MAX];
/// Operations per input; more find nothing that these do not.
const MAX_OPERATIONS: usize = 16;

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let kind = choices.byte();
    let operations: Vec<(u8, i64, i64)> = (0..choices.below(MAX_OPERATIONS + 1))
        .map(|_| (choices.byte(), choices.i64(), choices.i64()))
        .collect();
    let base_offset = BASE_OFFSETS[usize::from(kind / 3) % BASE_OFFSETS.len()];
    // Sorted files are rare among random bytes: one bit sorts the entries, one appends zeros.
    let (sort, zeros) = (kind & 0x40 != 0, kind & 0x80 != 0);
    match kind % 3 {
        0 => sparse::<OffsetPosition>(choices.0, base_offset, sort, zeros, &operations),
        1 => sparse::<TimestampOffset>(choices.0, base_offset, sort, zeros, &operations),
        _ => transactions(choices.0, &operations),
    }
});

fn at(sim: &Sim) -> At<'_> {
    At { fs: &*sim.fs, locate: &|| PathBuf::from(PATH) }
}

fn entries_of<E: IndexEntry>(file: &[u8], base_offset: i64) -> Vec<E> {
    file.chunks_exact(E::SIZE).map_while(|bytes| E::decode(bytes, base_offset)).collect()
}

fn rise<E: IndexEntry>(entries: &[E]) -> bool {
    entries.windows(2).all(|pair| pair[0].key() < pair[1].key() && pair[0].value() <= pair[1].value())
}

fn sparse<E: IndexEntry>(
    file: &[u8],
    base_offset: i64,
    sort: bool,
    zeros: bool,
    operations: &[(u8, i64, i64)],
) {
    let sim = Sim::new(1);
    let mut content = file.to_vec();
    let mut entries: Vec<E> = entries_of(file, base_offset);
    if sort {
        entries.sort_by_key(|entry| (entry.key(), entry.value()));
        entries.dedup_by_key(|entry| entry.key());
        let mut highest = i64::MIN;
        entries.retain(|entry| {
            let keeps = entry.value() >= highest;
            highest = highest.max(entry.value());
            keeps
        });
        content.clear();
        entries.iter().for_each(|entry| entry.encode(base_offset, &mut content));
        // Offsets beyond what an entry can hold are written as 0.
        entries = entries_of(&content, base_offset);
    }
    let whole = content.len() / E::SIZE;
    if zeros {
        content.resize(content.len() / E::SIZE * E::SIZE + 7 * E::SIZE, 0);
    }
    disk::put(&sim, PATH.as_ref(), &content);

    // The list to compare with, as long as the file was one that we or the reference would have written.
    let is_plausible = entries.len() == whole
        && rise(&entries)
        && entries.iter().all(|entry| entry.key() >= 0 && !entry.is_blank(base_offset));
    let mut model = is_plausible.then_some(entries);
    let mut index = Index::<E>::existing(base_offset);
    for (operation, a, b) in operations {
        operate(&mut index, &sim, base_offset, *operation, (*a, *b), &mut model);
    }
}

fn operate<E: IndexEntry>(
    index: &mut Index<E>,
    sim: &Sim,
    base_offset: i64,
    operation: u8,
    (a, b): (i64, i64),
    model: &mut Option<Vec<E>>,
) {
    match operation % 9 {
        0 => {
            let found = index.lookup(at(sim), a);
            if let Ok(Some(found)) = found {
                assert!(found.key() <= a);
            }
            if let Some(model) = model {
                let expected = model.iter().rfind(|entry| entry.key() <= a).copied();
                assert_eq!(found.expect("readable"), expected);
            }
        }
        1 => {
            let found = index.lookup_value(at(sim), a);
            if let Ok(Some(found)) = found {
                assert!(found.value() >= a);
            }
            if let Some(model) = model {
                let expected = model.iter().find(|entry| entry.value() >= a).copied();
                assert_eq!(found.expect("readable"), expected);
            }
        }
        2 => {
            append(index, sim, base_offset, (a, b), model);
        }
        3 => {
            let truncated = index.truncate_to(at(sim), a);
            if let Some(model) = model {
                truncated.expect("readable");
                // Of a time index only the offsets decide; both rise together.
                model.retain(|entry| entry.offset() < a);
            }
        }
        4 => {
            let _ = index.flush(at(sim));
            index.close();
        }
        5 => {
            let trimmed = index.trim(at(sim));
            if let (Ok(_), Some(model)) = (trimmed, &model) {
                assert_eq!(disk::get(sim, PATH.as_ref()).len(), model.len() * E::SIZE);
            }
        }
        6 => {
            // The next process. What was only in memory is written at a clean stop. A first entry of zeros before
            // zeros is indistinguishable from no entry.
            let _ = index.trim(at(sim));
            if model.as_ref().is_some_and(|model| model.iter().any(|entry| entry.is_blank(base_offset))) {
                *model = None;
            }
            *index = Index::existing(base_offset);
        }
        7 => {
            recover(index, sim, base_offset, a, model);
        }
        _ => {
            let last = index.last(at(sim));
            let entries = index.entries(at(sim));
            let _ = index.is_full(at(sim), b as u32);
            if let Some(model) = model {
                assert_eq!(last.expect("readable"), model.last().copied());
                assert_eq!(entries.expect("readable") as usize, model.len());
            }
        }
    }
}

/// Any entry that a writer could make: its bytes, read back.
fn append<E: IndexEntry>(
    index: &Index<E>,
    sim: &Sim,
    base_offset: i64,
    (a, b): (i64, i64),
    model: &mut Option<Vec<E>>,
) {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(a & i64::MAX).to_be_bytes());
    bytes.extend_from_slice(&(b & i64::from(i32::MAX)).to_be_bytes()[4..]);
    if E::SIZE == 8 {
        bytes.drain(..4);
        bytes[0] &= 0x7f;
    }
    let Some(entry) = E::decode(&bytes, base_offset) else { return };
    let appended = index.append(at(sim), entry);
    if let Some(model) = model {
        let fits = model.last().is_none_or(|last| entry.key() > last.key() && entry.value() >= last.value());
        assert_eq!(appended.is_ok(), fits, "{entry:?} after {:?}", model.last());
        if fits {
            model.push(entry);
        }
    }
}

fn recover<E: IndexEntry>(
    index: &Index<E>,
    sim: &Sim,
    base_offset: i64,
    offset: i64,
    model: &mut Option<Vec<E>>,
) {
    // As after an unclean stop; what was only in memory is gone by then.
    let _ = index.trim(at(sim));
    let last = index.keep_rising_below(at(sim), offset);
    if let Ok(Some(last)) = last {
        assert!(last.offset() < offset);
    }
    if let Some(model) = model {
        model.retain(|entry| entry.offset() < offset);
        let last = last.expect("readable");
        if model.iter().any(|entry| entry.is_blank(base_offset)) {
            assert!(last.is_none_or(|last| model.contains(&last)));
        } else {
            assert_eq!(last, model.last().copied());
        }
    }
    if model.as_ref().is_some_and(|model| model.iter().any(|entry| entry.is_blank(base_offset))) {
        *model = None;
    }
}

fn transactions(file: &[u8], operations: &[(u8, i64, i64)]) {
    let sim = Sim::new(1);
    disk::put(&sim, PATH.as_ref(), file);
    let mut index = TransactionIndex::existing();
    for (operation, a, b) in operations {
        match operation % 6 {
            0 => {
                let mut found = Vec::new();
                if index.collect_aborted(at(&sim), *a, *b, &mut found).is_ok() {
                    assert!(found.iter().all(|txn| txn.last_offset >= *a && txn.first_offset < *b));
                }
            }
            1 => {
                let txn = AbortedTxn {
                    producer_id: i64::from(*operation),
                    first_offset: *a,
                    last_offset: *b,
                    last_stable_offset: *a,
                };
                if index.append(at(&sim), txn).is_ok()
                    && let Ok(all) = index.all(at(&sim))
                {
                    assert_eq!(all.last(), Some(&txn));
                }
            }
            2 => {
                if index.truncate_to(at(&sim), *a).is_ok()
                    && let Ok(all) = index.all(at(&sim))
                {
                    assert!(all.iter().all(|txn| txn.last_offset < *a));
                }
            }
            3 => {
                let _ = index.flush(at(&sim));
                index.close_if_idle();
            }
            4 => {
                let before = index.all(at(&sim)).ok();
                let next = TransactionIndex::existing();
                assert_eq!(next.all(at(&sim)).ok(), before);
                index = next;
            }
            _ => {
                if index.reset(at(&sim)).is_ok() {
                    assert_eq!(index.all(at(&sim)).expect("empty"), []);
                }
            }
        }
    }
}
