//! High watermark and last stable offset.
//!
//! Owns: moving them. Invariants: the high watermark lies in [log start, end]; the last stable offset is the first
//! offset of the oldest transaction that is open or not replicated, or the high watermark.
//! Concurrency: written under the writer lock, read without.
//! Crash: the high watermark comes back from `replication-offset-checkpoint`, at worst too low.

use std::ops::ControlFlow;

use super::{LogOffsetSnapshot, UnifiedLog, Writer};
use crate::error::{ReadError, StorageError};
use crate::offsets::LogOffsetMetadata;

const NONE: LogOffsetMetadata = LogOffsetMetadata::offset_only(-1);

impl UnifiedLog {
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark.offset()
    }

    /// Sets the high watermark, held within the log; returns what it became.
    pub fn update_high_watermark(&self, offset: i64) -> i64 {
        let mut writer = self.writer.lock();
        self.set_high_watermark(&mut writer, LogOffsetMetadata::offset_only(offset))
    }

    /// For a leader that is the partition's only in-sync replica: moves the high watermark to the log's end, but not
    /// past what has to be durable first. Returns what it became.
    pub fn advance_high_watermark_to_end(&self) -> i64 {
        let mut writer = self.writer.lock();
        let end = self.presentable_end();
        let current = self.high_watermark();
        if end.message_offset < current {
            return current;
        }
        self.set_high_watermark(&mut writer, end)
    }

    /// A leader's step forward: only up, or onto a newer segment. Returns the old value when it moved.
    pub fn maybe_increment_high_watermark(&self, new: LogOffsetMetadata) -> Option<LogOffsetMetadata> {
        let mut writer = self.writer.lock();
        let old = self.high_watermark.load();
        let onto_newer_segment =
            old.message_offset == new.message_offset && old.segment_base_offset < new.segment_base_offset;
        if new.message_offset > self.log_end_offset()
            || !(old.message_offset < new.message_offset || onto_newer_segment)
        {
            return None;
        }
        self.set_high_watermark(&mut writer, new);
        Some(old)
    }

    /// A follower's high watermark, as its leader says; the new value when it changed.
    pub fn maybe_update_high_watermark(&self, offset: i64) -> Option<i64> {
        let mut writer = self.writer.lock();
        let old = self.high_watermark();
        let new = self.set_high_watermark(&mut writer, LogOffsetMetadata::offset_only(offset));
        (new != old).then_some(new)
    }

    pub(super) fn set_high_watermark(&self, writer: &mut Writer, wanted: LogOffsetMetadata) -> i64 {
        let end = self.log_end.load();
        let start = self.log_start_offset();
        let new = if wanted.message_offset < start {
            LogOffsetMetadata::offset_only(start)
        } else if wanted.message_offset >= end.message_offset {
            end
        } else {
            wanted
        };
        let old = self.high_watermark();
        if new.message_offset < old {
            tracing::warn!(
                "Non-monotonic update of high watermark of {} from {old} to {}",
                self.topic_partition,
                new.message_offset
            );
        }
        self.high_watermark.store(new);
        writer.producers.on_high_watermark_updated(new.message_offset);
        self.update_first_unstable_offset(writer);
        new.message_offset
    }

    /// After the end moved: a high watermark that was at or behind the end goes with it.
    pub(super) fn update_high_watermark_with_log_end(&self, writer: &mut Writer) {
        let end = self.log_end.load();
        if self.high_watermark() >= end.message_offset {
            self.set_high_watermark(writer, end);
        }
    }

    pub(super) fn update_first_unstable_offset(&self, writer: &Writer) {
        let start = self.log_start_offset();
        let first = writer.producers.first_unstable_offset().unwrap_or(NONE);
        let first = if first != NONE && first.message_offset < start {
            LogOffsetMetadata::offset_only(start)
        } else {
            first
        };
        if self.first_unstable.load() != first {
            self.first_unstable.store(first);
        }
    }

    pub fn first_unstable_offset(&self) -> Option<i64> {
        Some(self.first_unstable.offset()).filter(|offset| *offset >= 0)
    }

    pub fn last_stable_offset(&self) -> i64 {
        let high_watermark = self.high_watermark();
        self.first_unstable_offset().map_or(high_watermark, |offset| offset.min(high_watermark))
    }

    /// The high watermark with its place in the files.
    pub fn high_watermark_metadata(&self) -> Result<LogOffsetMetadata, ReadError> {
        self.resolve(self.high_watermark.load(), |resolved| {
            let _writer = self.writer.lock();
            if self.high_watermark() == resolved.message_offset {
                self.high_watermark.store(resolved);
            }
        })
    }

    /// The last stable offset with its place.
    pub fn last_stable_offset_metadata(&self) -> Result<LogOffsetMetadata, ReadError> {
        let high_watermark = self.high_watermark_metadata()?;
        let first = self.first_unstable.load();
        if first == NONE || first.message_offset >= high_watermark.message_offset {
            return Ok(high_watermark);
        }
        self.resolve(first, |resolved| {
            let _writer = self.writer.lock();
            if self.first_unstable.offset() == resolved.message_offset {
                self.first_unstable.store(resolved);
            }
        })
    }

    fn resolve(
        &self,
        offset: LogOffsetMetadata,
        remember: impl FnOnce(LogOffsetMetadata),
    ) -> Result<LogOffsetMetadata, ReadError> {
        if !offset.is_offset_only() {
            return Ok(offset);
        }
        let resolved = self.convert_to_offset_metadata(offset.message_offset)?;
        if !resolved.is_offset_only() {
            remember(resolved);
        }
        Ok(resolved)
    }

    /// Where an offset is; offset only when it is in no segment.
    pub fn convert_to_offset_metadata(&self, offset: i64) -> Result<LogOffsetMetadata, StorageError> {
        let end = self.log_end.load();
        if offset == end.message_offset {
            return Ok(end);
        }
        let segments = self.segments.load_full();
        let Some(floor) = Self::floor_segment(&segments, offset).filter(|_| offset < end.message_offset)
        else {
            return Ok(LogOffsetMetadata::offset_only(offset));
        };
        for segment in segments.get(floor..).unwrap_or_default() {
            let found = segment.translate_offset(self.fs(), offset);
            if let Some(batch) = found.map_err(|e| self.fail("Exception while reading from", e))? {
                return Ok(LogOffsetMetadata::new(offset, segment.base_offset(), batch.position));
            }
        }
        Ok(end)
    }

    pub fn fetch_offset_snapshot(&self) -> Result<LogOffsetSnapshot, ReadError> {
        Ok(LogOffsetSnapshot {
            log_start_offset: self.log_start_offset(),
            last_stable_offset: self.last_stable_offset_metadata()?,
            high_watermark: self.high_watermark_metadata()?,
            log_end_offset: self.log_end.load(),
        })
    }

    /// Continues a scan. Spelled out because `ControlFlow` alone does not say why.
    pub(super) const NEXT: ControlFlow<()> = ControlFlow::Continue(());
    pub(super) const STOP: ControlFlow<()> = ControlFlow::Break(());
}
