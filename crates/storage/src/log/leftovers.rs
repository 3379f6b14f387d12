//! Files that cleaning, replacement and deletion left unfinished.
//!
//! Owns: [`settle`], the first thing that happens to a log's directory.
//! Invariants: `.deleted` files go. `.cleaned` files go, and with them `.swap` files of the same replacement: it had
//! not got past its first step. Other `.swap` files are complete; what they replace goes, and they take its place.
//! Concurrency: nobody else uses the directory yet.
//! Crash: every step leaves what the next start reads the same way: a `.swap` goes before the `.cleaned` that
//! condemns it, what is replaced goes before its replacement gets its name, and of that the log is first.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use env::{FileSystem, OpenMode};

use crate::log_dir::sync_dir;
use crate::names::{
    CLEANED_FILE_SUFFIX, DELETED_CHECKPOINT_SUFFIX, DELETED_FILE_SUFFIX, LOG_FILE_SUFFIX, SWAP_FILE_SUFFIX,
    parse_offset,
};
use crate::producer::ignore_missing;
use crate::segment::scan_batches;

/// Removes and completes; true when anything changed.
pub(super) fn settle(fs: &dyn FileSystem, dir: &Path, files: &[String]) -> io::Result<bool> {
    let remove = |name: &str| ignore_missing(fs.remove_file(&dir.join(name)));
    let is_deleted =
        |name: &&String| name.ends_with(DELETED_FILE_SUFFIX) && !name.ends_with(DELETED_CHECKPOINT_SUFFIX);
    let deleted: Vec<&String> = files.iter().filter(is_deleted).collect();
    let cleaned: Vec<&String> = files.iter().filter(|name| name.ends_with(CLEANED_FILE_SUFFIX)).collect();
    let swaps: Vec<&String> = files.iter().filter(|name| name.ends_with(SWAP_FILE_SUFFIX)).collect();
    if deleted.is_empty() && cleaned.is_empty() && swaps.is_empty() {
        return Ok(false);
    }
    for name in deleted {
        remove(name)?;
    }
    let min_cleaned = cleaned.iter().filter_map(|name| parse_offset(name)).min().unwrap_or(i64::MAX);
    let (valid, invalid): (Vec<&String>, Vec<&String>) =
        swaps.into_iter().partition(|name| parse_offset(name).is_some_and(|base| base < min_cleaned));
    for name in invalid.into_iter().chain(cleaned) {
        tracing::info!("Deleting {name} in {}, which an interrupted cleaning left.", dir.display());
        remove(name)?;
    }
    complete(fs, dir, files, &valid)?;
    Ok(true)
}

/// Lets complete `.swap` files take the place of what they replace.
fn complete(fs: &dyn FileSystem, dir: &Path, files: &[String], swaps: &[&String]) -> io::Result<()> {
    if swaps.is_empty() {
        return Ok(());
    }
    let is_log =
        |name: &str| name.strip_suffix(SWAP_FILE_SUFFIX).is_some_and(|name| name.ends_with(LOG_FILE_SUFFIX));
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    for name in swaps.iter().filter(|name| is_log(name)) {
        let Some(base) = parse_offset(name) else { continue };
        low = low.min(base);
        high = high.max(next_offset_of(fs, &dir.join(name), base)?);
    }
    for name in files.iter().filter(|name| !name.ends_with(SWAP_FILE_SUFFIX)) {
        if parse_offset(name).is_some_and(|offset| low <= offset && offset < high) {
            tracing::info!("Deleting segment file {name} that is compacted but has not been deleted yet.");
            ignore_missing(fs.remove_file(&dir.join(name)))?;
        }
    }
    sync_dir(fs, dir)?;
    let (logs, indexes): (Vec<&String>, Vec<&String>) = swaps.iter().partition(|name| is_log(name));
    for name in logs.into_iter().chain(indexes) {
        tracing::info!("Recovering file {name} of an interrupted replacement by renaming it.");
        if let Some(to) = name.strip_suffix(SWAP_FILE_SUFFIX) {
            ignore_missing(fs.rename(&dir.join(name), &dir.join(to)))?;
        }
    }
    sync_dir(fs, dir)
}

/// The offset behind the last whole batch.
fn next_offset_of(fs: &dyn FileSystem, path: &Path, base: i64) -> io::Result<i64> {
    let file = fs.open(path, OpenMode::Read)?;
    let len = u32::try_from(file.len()?).unwrap_or(u32::MAX);
    let mut next = base;
    let scanned = scan_batches(&*file, 0, len, |batch| {
        next = batch.header.next_offset();
        ControlFlow::Continue(())
    });
    match scanned {
        // Recovery judges the bytes; here it only matters what they stand for.
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(next),
        other => other.map(|()| next),
    }
}
