//! The small text files of a log directory as they are found: what is accepted is written and read again as it was.
#![no_main]

use std::path::Path;

use fuzz::disk;
use libfuzzer_sys::fuzz_target;
use storage::checkpoint;
use storage::epoch_cache::LeaderEpochCache;
use storage::format::{MetaProperties, MetaPropertiesEnsemble};
use storage::metadata_log::quorum_state::{QUORUM_STATE_FILE, read_quorum_state, write_quorum_state};
use storage::names;
use testkit::Sim;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, content)) = data.split_first() else { return };
    let sim = Sim::new(1);
    let put = |name: &str| disk::put(&sim, &Path::new("/").join(name), content);
    match kind % 6 {
        0 => {
            put(names::RECOVERY_POINT_CHECKPOINT_FILE);
            offsets(&sim);
        }
        1 => {
            put(names::LEADER_EPOCH_CHECKPOINT_FILE);
            leader_epochs(&sim);
        }
        2 => {
            put(names::PARTITION_METADATA_FILE);
            let dir = Path::new("/");
            if let Ok(id) = checkpoint::read_partition_metadata(&*sim.fs, dir) {
                let id = id.expect("the file is there");
                checkpoint::write_partition_metadata(&*sim.fs, dir, id).expect("writable");
                assert_eq!(checkpoint::read_partition_metadata(&*sim.fs, dir).expect("readable"), Some(id));
            }
        }
        3 => {
            put(names::CLEAN_SHUTDOWN_FILE);
            let read = checkpoint::read_clean_shutdown(&*sim.fs, Path::new("/"));
            if let Ok(Some(Some(epoch))) = read {
                checkpoint::write_clean_shutdown(&*sim.fs, Path::new("/"), epoch).expect("writable");
                let again = checkpoint::read_clean_shutdown(&*sim.fs, Path::new("/"));
                assert_eq!(again.expect("readable"), Some(Some(epoch)));
            }
        }
        4 => {
            put(names::META_PROPERTIES_FILE);
            meta_properties(&sim);
        }
        _ => {
            put(QUORUM_STATE_FILE);
            quorum_state(&sim);
        }
    }
});

fn offsets(sim: &Sim) {
    let path = Path::new("/").join(names::RECOVERY_POINT_CHECKPOINT_FILE);
    let Ok(read) = checkpoint::read_offset_checkpoint(&*sim.fs, &path) else { return };
    checkpoint::write_offset_checkpoint(&*sim.fs, &path, &read).expect("writable");
    assert_eq!(checkpoint::read_offset_checkpoint(&*sim.fs, &path).expect("readable"), read);
}

fn leader_epochs(sim: &Sim) {
    let dir = Path::new("/");
    let Ok(mut cache) = LeaderEpochCache::load(&*sim.fs, dir) else { return };
    let entries = cache.entries();
    assert!(
        entries
            .windows(2)
            .all(|pair| { pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset })
    );
    for entry in &entries {
        assert_eq!(cache.epoch_for_offset(entry.start_offset), Some(entry.epoch));
        let _ = cache.end_offset_for(entry.epoch, i64::MAX);
        let _ = cache.previous_epoch(entry.epoch);
    }
    if let Some(middle) = entries.get(entries.len() / 2) {
        cache.truncate_from_end(middle.start_offset);
        cache.truncate_from_start(middle.start_offset / 2);
        cache.assign(middle.epoch, middle.start_offset);
    }
    cache.flush(&*sim.fs, dir).expect("writable");
    assert_eq!(LeaderEpochCache::load(&*sim.fs, dir).expect("readable").entries(), cache.entries());
}

fn meta_properties(sim: &Sim) {
    let dir = Path::new("/");
    let ensemble = MetaPropertiesEnsemble::load(&*sim.fs, ["/"]);
    let _ = ensemble.verify(Some("5L6g3nShT-eMCtK--X86sw"), Some(1));
    let Ok(read) = MetaProperties::read(&*sim.fs, dir) else { return };
    let read = read.expect("the file is there");
    let _ = read.to_string();
    read.write(&sim.env(), dir).expect("writable");
    assert_eq!(MetaProperties::read(&*sim.fs, dir).expect("readable"), Some(read));
}

fn quorum_state(sim: &Sim) {
    let dir = Path::new("/");
    let Ok(read) = read_quorum_state(&*sim.fs, dir) else { return };
    let read = read.expect("the file is there");
    let version = i16::from(read.current_voters.is_empty());
    write_quorum_state(&*sim.fs, dir, &read, version).expect("writable");
    assert_eq!(read_quorum_state(&*sim.fs, dir).expect("readable"), Some(read));
}
