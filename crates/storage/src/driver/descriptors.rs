//! Open segment files, bounded: the least recently used is closed first. A file in use by a running operation stays
//! open until the operation ends, whatever happens here.

use std::collections::BTreeMap;

use super::files::OpenFile;
use crate::layout::SegmentFile;

#[derive(Debug)]
pub(super) struct Descriptors {
    max: usize,
    turn: u64,
    open: BTreeMap<SegmentFile, (u64, OpenFile)>,
    /// By last use.
    order: BTreeMap<u64, SegmentFile>,
}

impl Descriptors {
    pub(super) fn new(max: usize) -> Descriptors {
        assert!(max > 0, "at least one file must be open at a time");
        Descriptors { max, turn: 0, open: BTreeMap::new(), order: BTreeMap::new() }
    }

    /// An open file, now the most recently used.
    pub(super) fn get(&mut self, file: SegmentFile) -> Option<OpenFile> {
        let (used, open) = self.open.get_mut(&file)?;
        self.order.remove(used);
        self.turn += 1;
        *used = self.turn;
        self.order.insert(self.turn, file);
        Some(open.clone())
    }

    /// Keeps a file open, and closes the least recently used one beyond the bound.
    pub(super) fn insert(&mut self, file: SegmentFile, open: OpenFile) {
        self.remove(file);
        self.turn += 1;
        self.open.insert(file, (self.turn, open));
        self.order.insert(self.turn, file);
        while self.open.len() > self.max {
            let (_, oldest) = self.order.pop_first().expect("every open file has its turn");
            self.open.remove(&oldest);
        }
    }

    pub(super) fn remove(&mut self, file: SegmentFile) {
        if let Some((used, _)) = self.open.remove(&file) {
            self.order.remove(&used);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
