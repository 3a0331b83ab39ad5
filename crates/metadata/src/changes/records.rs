//! The change log as snapshots hold it.

use std::sync::Arc;

use laneway_wire::reply::ChangeBody;
use laneway_wire::request::ChangeGroup;
use laneway_wire::{Micros, Op, UserId};
use rkyv::{Archive, Deserialize, Serialize};

use super::{ChangeEntry, ChangeLog, Evicted, History, is_activity};
use crate::archive::AsNumber;
use crate::limits;

/// The log, without what is worked out again.
#[derive(Debug, Archive, Serialize, Deserialize)]
pub struct ChangeLogRecord {
    log_id: u128,
    checksum: u128,
    resources: HistoryRecord,
    activity: HistoryRecord,
}

#[derive(Debug, Archive, Serialize, Deserialize)]
struct HistoryRecord {
    records: Vec<EntryRecord>,
    evicted: Option<EvictedRecord>,
}

#[derive(Debug, Archive, Serialize, Deserialize)]
struct EvictedRecord {
    #[rkyv(with = AsNumber)]
    op: Op,
    ordinal: u32,
    #[rkyv(with = AsNumber)]
    timestamp: Micros,
}

#[derive(Debug, Archive, Serialize, Deserialize)]
struct EntryRecord {
    #[rkyv(with = AsNumber)]
    op: Op,
    ordinal: u32,
    checksum: u128,
    #[rkyv(with = AsNumber)]
    timestamp: Micros,
    actor: Option<u32>,
    group: u8,
    kind: u8,
    body: Vec<u8>,
}

impl From<&ChangeLog> for ChangeLogRecord {
    fn from(log: &ChangeLog) -> Self {
        let history = |history: &History| HistoryRecord {
            records: history.records.iter().map(|entry| EntryRecord::of(entry)).collect(),
            evicted: history.evicted.map(|Evicted { op, ordinal, timestamp }| EvictedRecord {
                op,
                ordinal,
                timestamp,
            }),
        };
        Self {
            log_id: log.log_id,
            checksum: log.checksum,
            resources: history(&log.resources),
            activity: history(&log.activity),
        }
    }
}

impl EntryRecord {
    fn of(entry: &ChangeEntry) -> Self {
        Self {
            op: entry.op,
            ordinal: entry.ordinal,
            checksum: entry.checksum,
            timestamp: entry.timestamp,
            actor: entry.actor.map(|user| user.0),
            group: entry.group as u8,
            kind: entry.kind,
            body: entry.body.to_vec(),
        }
    }

    fn restore(self, activity: bool) -> Option<ChangeEntry> {
        let group = ChangeGroup::from_byte(self.group).filter(|group| is_activity(*group) == activity)?;
        // A body of a kind that this build does not know is kept as it is.
        ChangeBody::parse(self.group, self.kind, &self.body).ok()?;
        Some(ChangeEntry {
            op: self.op,
            ordinal: self.ordinal,
            checksum: self.checksum,
            timestamp: self.timestamp,
            actor: self.actor.map(UserId),
            group,
            kind: self.kind,
            body: self.body.into(),
        })
    }
}

impl HistoryRecord {
    fn restore(self, activity: bool) -> Option<History> {
        let records = self.records.into_iter().map(|record| record.restore(activity));
        let records = records.collect::<Option<Vec<_>>>()?;
        let ascend = records.is_sorted_by(|left, right| left.place() < right.place());
        let in_time = records.is_sorted_by(|left, right| left.timestamp <= right.timestamp);
        let bytes: usize = records.iter().map(|entry| entry.body.len()).sum();
        if !ascend || !in_time || bytes > limits::CHANGE_BYTES_MAX {
            return None;
        }
        let evicted =
            self.evicted.map(|EvictedRecord { op, ordinal, timestamp }| Evicted { op, ordinal, timestamp });
        Some(History { records: records.into_iter().map(Arc::new).collect(), bytes, evicted })
    }
}

impl ChangeLogRecord {
    /// The log; none when its records are no records or not in order.
    pub(crate) fn restore(self, records_max: u32) -> Option<ChangeLog> {
        if !limits::CHANGES_MAX.contains(&records_max) {
            return None;
        }
        let mut log = ChangeLog::new(records_max);
        log.log_id = self.log_id;
        log.checksum = self.checksum;
        log.resources = self.resources.restore(false)?;
        log.activity = self.activity.restore(true)?;
        Some(log)
    }
}
