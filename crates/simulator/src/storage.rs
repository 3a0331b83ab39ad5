//! What one node keeps on its disk: for each lane a log, a superblock in four copies, and checkpoints.
//!
//! The log is a row of flushes. Each flush holds what had gathered while the one before was written, and is written
//! together with a witness in another place, which tells a torn end from a lost one. Which records survive a crash is
//! up to the [cells](crate::disk); what the rest means is decided by the product ([`laneway_vsr::recovery`]).

use std::collections::BTreeMap;
use std::rc::Rc;

use laneway_vsr::recovery::{Found, FoundKind, LogScan, Tail, Witness};
use laneway_vsr::{CheckpointId, DiskId, DurableState, Entry, Header, LogNumber, SuperblockNumber};
use laneway_wire::{Micros, Op};

use crate::disk::{Cell, Cells, Ending, Place};
use crate::machine::Image;
use crate::random::Random;

/// One record of a log.
#[derive(Clone, Debug)]
pub enum Record {
    /// An entry.
    Entry(Entry),
    /// An entry whose body was damaged at rest.
    BodyDamaged(Header),
    /// Nothing above this op counts that stands before.
    Truncate(Op),
}

impl Record {
    fn op(&self) -> Op {
        match self {
            Record::Entry(entry) => entry.op(),
            Record::BodyDamaged(header) => header.op,
            Record::Truncate(above) => *above,
        }
    }
}

/// What one flush wrote.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its number, from 1.
    pub flush: u64,
    /// Its records in their order.
    pub records: Rc<[Record]>,
}

/// What the second place says.
#[derive(Clone, Copy, Debug)]
pub struct WitnessRecord {
    /// The flush that was written with it.
    pub flush: u64,
}

/// One copy of a superblock.
#[derive(Clone, Debug)]
pub struct SuperblockCopy {
    /// The number of the record.
    pub number: SuperblockNumber,
    /// Which copy it is: a misdirected one does not match its place.
    pub copy: u64,
    /// The start of the machine under which it was written.
    pub boot: u64,
    /// The content.
    pub state: Rc<DurableState>,
}

/// Copies of a superblock.
pub const SUPERBLOCK_COPIES: u64 = 4;

/// A checkpoint of a lane.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What it covers.
    pub anchor: CheckpointId,
    /// The timestamp of that op.
    pub timestamp: Micros,
    /// The state.
    pub image: Rc<Image>,
}

/// Number of witness slots; they are written in turn.
const WITNESS_SLOTS: u64 = 2;

/// Files of one lane.
#[derive(Clone, Debug, Default)]
pub struct LaneStorage {
    /// The log; the place of a block is its number.
    pub blocks: Cells<Block>,
    /// The witnesses.
    pub witness: Cells<WitnessRecord>,
    /// The superblock; the place is the copy.
    pub superblock: Cells<SuperblockCopy>,
    /// Checkpoints; the place is the op.
    pub snapshots: Cells<Snapshot>,
    /// Everything before this flush was trimmed. Kept with the witness in a real file.
    first_flush: u64,
}

impl LaneStorage {
    /// The place of the witness of a flush.
    pub fn witness_place(flush: u64) -> Place {
        flush % WITNESS_SLOTS
    }

    /// Reads the log as a start does.
    pub fn scan(&self) -> LogScan {
        let blocks = self.blocks.all();
        let mut found = Vec::new();
        let last_whole = blocks.iter().rev().find(|(_, cell)| cell.good().is_some()).map(|(place, _)| *place);
        let first = self.first_flush.max(1);
        for flush in first..=last_whole.unwrap_or(0) {
            let block = blocks.get(&flush).and_then(Cell::good);
            // A block in a foreign place names another flush; to the scanner it is damage, as a missing one is.
            match block.filter(|block| block.flush == flush) {
                Some(block) => {
                    for record in block.records.iter() {
                        let kind = match record {
                            Record::Entry(entry) => FoundKind::Entry(entry.header),
                            Record::BodyDamaged(header) => FoundKind::BodyDamaged(*header),
                            Record::Truncate(above) => FoundKind::Truncated { above: *above },
                        };
                        found.push(Found { flush, at: flush, kind });
                    }
                }
                None => found.push(Found { flush, at: flush, kind: FoundKind::Damaged }),
            }
        }
        let whole = last_whole.unwrap_or(first - 1);
        let is_broken = blocks.range(whole + 1..).next().is_some();
        let tail = match is_broken {
            true => Tail::Broken { flush: whole + 1, at: whole + 1 },
            false => Tail::Whole { flush: whole },
        };
        LogScan { found, tail, witness: self.read_witness() }
    }

    fn read_witness(&self) -> Witness {
        let cells = self.witness.all();
        let best = cells.values().filter_map(Cell::good).map(|witness| witness.flush).max();
        match best {
            Some(flush) => Witness::Attests { flush },
            None if cells.is_empty() => Witness::Attests { flush: 0 },
            None => Witness::Unreadable,
        }
    }

    /// The number of the last flush in the file, whole or not.
    pub fn last_flush(&self) -> u64 {
        self.blocks.last_place().unwrap_or(0).max(self.first_flush.saturating_sub(1))
    }

    /// Cuts a broken end, as a start does before it writes.
    pub fn cut_from(&mut self, flush: u64) {
        let broken: Vec<Place> = self.blocks.all().range(flush..).map(|(place, _)| *place).collect();
        for place in broken {
            self.blocks.erase(place);
        }
        let mark = self.blocks.begin_flush();
        self.blocks.finish_flush(mark, false);
    }

    /// Removes the blocks at the front that hold nothing at or above an op, and older checkpoints.
    pub fn trim(&mut self, below: Op) {
        for (place, cell) in self.blocks.all() {
            let Some(block) = cell.good() else { break };
            if block.records.iter().any(|record| record.op() >= below) {
                break;
            }
            self.blocks.forget(place);
            self.first_flush = place + 1;
        }
    }

    /// Removes checkpoints below an op.
    pub fn drop_snapshots_below(&mut self, op: Op) {
        let old: Vec<Place> = self.snapshots.all().range(..op.0).map(|(place, _)| *place).collect();
        old.into_iter().for_each(|place| self.snapshots.forget(place));
    }

    /// Finds an entry by op in a block.
    pub fn read(&self, flush: u64, op: Op) -> Option<&Entry> {
        let block = self.blocks.read(flush)?.good().filter(|block| block.flush == flush)?;
        // Within one block a later record of an op replaces an earlier one.
        block.records.iter().rev().find_map(|record| match record {
            Record::Entry(entry) if entry.op() == op => Some(entry),
            _ => None,
        })
    }

    /// The superblock that counts: the highest number with two equal copies in their places, or else the highest. The second number is the
    /// highest that was seen at all; the third, how many copies of the first one were good.
    pub fn open_superblock(&self) -> Option<(SuperblockCopy, SuperblockNumber, usize)> {
        let mut copies: BTreeMap<SuperblockNumber, Vec<&SuperblockCopy>> = BTreeMap::new();
        for place in 0..SUPERBLOCK_COPIES {
            if let Some(copy) =
                self.superblock.read(place).and_then(Cell::good).filter(|copy| copy.copy == place)
            {
                copies.entry(copy.number).or_default().push(copy);
            }
        }
        let newest = *copies.keys().next_back()?;
        // Without two equal ones the newest counts, as in `laneway_vsr::superblock::open`.
        let found = copies.values().rev().find(|same| same.len() >= 2);
        let found = found.or_else(|| copies.values().next_back())?;
        Some(((*found[0]).clone(), newest, found.len()))
    }

    /// Writes all copies at once: the repair of a start.
    pub fn rewrite_superblock(&mut self, number: SuperblockNumber, boot: u64, state: &Rc<DurableState>) {
        for copy in 0..SUPERBLOCK_COPIES {
            self.superblock.put(copy, SuperblockCopy { number, copy, boot, state: Rc::clone(state) });
        }
        let mark = self.superblock.begin_flush();
        self.superblock.finish_flush(mark, false);
    }

    /// The process ends. Returns how many writes were torn.
    pub fn end(&mut self, ending: Ending, random: &mut Random) -> u32 {
        self.blocks.end(ending, random)
            + self.witness.end(ending, random)
            + self.superblock.end(ending, random)
            + self.snapshots.end(ending, random)
    }

    /// Damages the record of an op at rest: its body only, or the block that it lies in. Returns whether there was one.
    pub fn corrupt(&mut self, flush: u64, op: Op, body_only: bool) -> bool {
        if !body_only {
            return self.blocks.corrupt(flush);
        }
        let Some(block) = self.blocks.read(flush).and_then(Cell::good).cloned() else { return false };
        let damage = |record: &Record| match record {
            Record::Entry(entry) if entry.op() == op => Record::BodyDamaged(entry.header),
            other => other.clone(),
        };
        let records = block.records.iter().map(damage).collect();
        self.blocks.replace(flush, Block { records, ..block })
    }

    /// Whether a block lies well inside of the log and holds the newest entry of each of its ops, so that its damage is
    /// seen as a gap and not as a lost end.
    pub fn is_interior(&self, flush: u64) -> bool {
        let blocks = self.blocks.all();
        let Some(block) = blocks.get(&flush).and_then(Cell::good) else { return false };
        let ops: Vec<Op> = block.records.iter().map(Record::op).collect();
        let only_entries = block.records.iter().all(|record| matches!(record, Record::Entry(_)));
        let later: Vec<&Block> = blocks.range(flush + 1..).filter_map(|(_, cell)| cell.good()).collect();
        let is_newest = later.iter().all(|block| {
            block.records.iter().all(|record| match record {
                Record::Truncate(above) => ops.iter().all(|op| op <= above),
                other => !ops.contains(&other.op()),
            })
        });
        only_entries && is_newest && later.len() > 2
    }

    /// The lowest and highest op of the records in a block.
    pub fn ops_of(&self, flush: u64) -> Option<(Op, Op)> {
        let block = self.blocks.read(flush)?.good()?;
        let ops = || block.records.iter().map(Record::op);
        Some((ops().min()?, ops().max()?))
    }
}

/// The disk of one node.
#[derive(Clone, Debug)]
pub struct NodeStorage {
    /// Drawn when the directory was made.
    pub disk: DiskId,
    /// Files by lane.
    pub lanes: Vec<LaneStorage>,
}

impl NodeStorage {
    /// An empty directory.
    pub fn new(disk: DiskId, lanes: usize) -> Self {
        Self { disk, lanes: vec![LaneStorage::default(); lanes] }
    }
}

/// What is on its way from a replica to its log.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// Records that no flush has taken yet.
    pub records: Vec<Record>,
    /// The number of the newest of them.
    pub number: LogNumber,
}
