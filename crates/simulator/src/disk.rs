//! A disk that fails. It holds cells: a log record, a copy of a superblock, a snapshot. Each cell is written as a whole,
//! and what a crash leaves of it depends on how far the write had come:
//!
//! | the write is | the process is killed | the machine loses power |
//! |---|---|---|
//! | submitted | done, gone or torn | done, gone or torn |
//! | finished, not flushed | there | done, gone or torn |
//! | finished, flushed | there | there |
//!
//! Each cell decides for itself, so unflushed writes come back in any order. On top of that come faults that no crash
//! explains: damage at rest, writes that go elsewhere or nowhere, flushes that lie.

use std::collections::BTreeMap;

use crate::random::Random;

/// Place of a cell.
pub type Place = u64;

/// Number of a submitted write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(u64);

/// How far flushes reach: every write that had finished when the flush began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushMark(u64);

/// What a cell holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell<T> {
    /// What was written.
    Good(T),
    /// Bytes that are nothing: a torn write, or damage.
    Bad,
}

impl<T> Cell<T> {
    /// What was written, unless it is damaged.
    pub fn good(&self) -> Option<&T> {
        match self {
            Cell::Good(content) => Some(content),
            Cell::Bad => None,
        }
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The process is killed; the machine stays up.
    Killed,
    /// The machine loses power.
    PowerLost,
}

/// What really becomes of a write that is reported as finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is done.
    Done,
    /// It never happened.
    Lost,
    /// It went to another place.
    Misdirected(Place),
}

#[derive(Clone, Debug)]
struct Finished<T> {
    sequence: u64,
    place: Place,
    /// Nothing: the cell was erased.
    cell: Option<Cell<T>>,
    /// A flush that lied will never cover it.
    never_flushed: bool,
}

/// The cells of one file.
#[derive(Clone, Debug)]
pub struct Cells<T> {
    stable: BTreeMap<Place, Cell<T>>,
    finished: Vec<Finished<T>>,
    submitted: Vec<(WriteId, Place, Option<T>)>,
    sequence: u64,
}

impl<T> Default for Cells<T> {
    fn default() -> Self {
        Self { stable: BTreeMap::new(), finished: Vec::new(), submitted: Vec::new(), sequence: 0 }
    }
}

impl<T: Clone> Cells<T> {
    /// Submits a write. Nothing of it is seen before [`Cells::finish`].
    pub fn submit(&mut self, place: Place, content: T) -> WriteId {
        self.push(place, Some(content))
    }

    /// Submits the erasure of a cell.
    pub fn submit_erase(&mut self, place: Place) -> WriteId {
        self.push(place, None)
    }

    fn push(&mut self, place: Place, content: Option<T>) -> WriteId {
        self.sequence += 1;
        let id = WriteId(self.sequence);
        self.submitted.push((id, place, content));
        id
    }

    /// The write has finished, as far as its writer can tell.
    pub fn finish(&mut self, id: WriteId, fate: Fate) {
        let index = self.submitted.iter().position(|(submitted, ..)| *submitted == id);
        let (_, place, content) = self.submitted.remove(index.expect("a write finishes once"));
        let place = match fate {
            Fate::Done => place,
            Fate::Lost => return,
            Fate::Misdirected(other) => other,
        };
        self.sequence += 1;
        let cell = content.map(Cell::Good);
        self.finished.push(Finished { sequence: self.sequence, place, cell, never_flushed: false });
    }

    /// A submitted write is given up before it did anything, for example because the disk is full.
    pub fn refuse(&mut self, id: WriteId) {
        self.submitted.retain(|(submitted, ..)| *submitted != id);
    }

    /// A write that takes no time: for what is done while nothing else runs.
    pub fn put(&mut self, place: Place, content: T) {
        let id = self.submit(place, content);
        self.finish(id, Fate::Done);
    }

    /// An erasure that takes no time.
    pub fn erase(&mut self, place: Place) {
        let id = self.submit_erase(place);
        self.finish(id, Fate::Done);
    }

    /// A flush begins. It will cover what has finished by now.
    pub fn begin_flush(&self) -> FlushMark {
        FlushMark(self.sequence)
    }

    /// A flush has finished. `is_lie`: it says so and did nothing.
    pub fn finish_flush(&mut self, mark: FlushMark, is_lie: bool) {
        if is_lie {
            for write in self.finished.iter_mut().filter(|write| write.sequence <= mark.0) {
                write.never_flushed = true;
            }
            return;
        }
        let mut left = Vec::with_capacity(self.finished.len());
        for write in self.finished.drain(..) {
            match write.sequence <= mark.0 && !write.never_flushed {
                true => settle(&mut self.stable, write.place, write.cell),
                false => left.push(write),
            }
        }
        self.finished = left;
    }

    /// What a reader finds at a place.
    pub fn read(&self, place: Place) -> Option<&Cell<T>> {
        match self.finished.iter().rev().find(|write| write.place == place) {
            Some(write) => write.cell.as_ref(),
            None => self.stable.get(&place),
        }
    }

    /// Whether what a reader finds at a place would survive a loss of power, also when a flush lied about it.
    pub fn is_stable(&self, place: Place) -> bool {
        self.finished.iter().all(|write| write.place != place) && self.stable.contains_key(&place)
    }

    /// Everything that a reader finds, by place.
    pub fn all(&self) -> BTreeMap<Place, Cell<T>> {
        let mut all = self.stable.clone();
        for write in &self.finished {
            settle(&mut all, write.place, write.cell.clone());
        }
        all
    }

    /// The highest place that holds something.
    pub fn last_place(&self) -> Option<Place> {
        self.all().keys().next_back().copied()
    }

    /// The process ends. Returns how many writes were torn.
    pub fn end(&mut self, ending: Ending, random: &mut Random) -> u32 {
        let submitted = std::mem::take(&mut self.submitted);
        let mut torn = 0;
        let mut undecided = Vec::new();
        if ending == Ending::PowerLost {
            undecided.append(&mut self.finished);
        }
        for (id, place, content) in submitted {
            let cell = content.map(Cell::Good);
            undecided.push(Finished { sequence: id.0, place, cell, never_flushed: false });
        }
        for mut write in undecided {
            let outcome = random.below(4);
            let never = write.never_flushed;
            match outcome {
                0 => continue,
                // A flush that lied loses everything it lied about, or the lie would rarely matter.
                _ if never => continue,
                1 if write.cell.is_some() => {
                    write.cell = Some(Cell::Bad);
                    torn += 1;
                }
                _ => {}
            }
            match ending {
                Ending::PowerLost => settle(&mut self.stable, write.place, write.cell),
                Ending::Killed => {
                    self.sequence += 1;
                    self.finished.push(Finished { sequence: self.sequence, ..write });
                }
            }
        }
        torn
    }

    /// Damages a cell at rest, if there is one.
    pub fn corrupt(&mut self, place: Place) -> bool {
        if let Some(write) = self.finished.iter_mut().rev().find(|write| write.place == place) {
            write.cell = write.cell.take().map(|_| Cell::Bad);
            return write.cell.is_some();
        }
        match self.stable.get_mut(&place) {
            Some(cell) => {
                *cell = Cell::Bad;
                true
            }
            None => false,
        }
    }

    /// Removes a cell for good, at once: for what nobody will ask for again.
    pub fn forget(&mut self, place: Place) {
        self.finished.retain(|write| write.place != place);
        self.stable.remove(&place);
    }

    /// Replaces a cell at rest by other content, as damage does. Returns whether there was one.
    pub fn replace(&mut self, place: Place, content: T) -> bool {
        let cell = match self.finished.iter_mut().rev().find(|write| write.place == place) {
            Some(write) => write.cell.as_mut(),
            None => self.stable.get_mut(&place),
        };
        match cell {
            Some(cell) => {
                *cell = Cell::Good(content);
                true
            }
            None => false,
        }
    }

    /// Erases everything.
    pub fn wipe(&mut self) {
        *self = Self { sequence: self.sequence, ..Self::default() };
    }
}

fn settle<T>(cells: &mut BTreeMap<Place, Cell<T>>, place: Place, cell: Option<Cell<T>>) {
    match cell {
        Some(cell) => {
            cells.insert(place, cell);
        }
        None => {
            cells.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> Random {
        Random::new(seed, 2)
    }

    #[test]
    fn what_was_flushed_survives_everything() {
        for seed in 0..200 {
            let mut cells = Cells::default();
            cells.put(1, "old");
            let mark = cells.begin_flush();
            let late = cells.submit(1, "new");
            cells.finish(late, Fate::Done);
            cells.finish_flush(mark, false);
            assert_eq!(cells.read(1), Some(&Cell::Good("new")));
            assert!(!cells.is_stable(1));
            cells.end(Ending::PowerLost, &mut random(seed));
            let found = cells.read(1).cloned();
            assert!([Some(Cell::Good("old")), Some(Cell::Good("new")), Some(Cell::Bad)].contains(&found));
            assert!(cells.is_stable(1));
        }
    }

    #[test]
    fn a_killed_process_keeps_what_was_finished() {
        let mut outcomes = [0; 3];
        for seed in 0..200 {
            let mut cells = Cells::default();
            cells.put(1, "finished");
            cells.submit(2, "submitted");
            cells.end(Ending::Killed, &mut random(seed));
            assert_eq!(cells.read(1), Some(&Cell::Good("finished")));
            let outcome = match cells.read(2) {
                None => 0,
                Some(Cell::Bad) => 1,
                Some(Cell::Good(_)) => 2,
            };
            outcomes[outcome] += 1;
        }
        assert!(outcomes.iter().all(|count| *count > 20), "{outcomes:?}");
    }

    #[test]
    fn a_flush_that_lied_is_found_out_by_a_loss_of_power_only() {
        let mut cells = Cells::default();
        cells.put(1, "lied about");
        let mark = cells.begin_flush();
        cells.finish_flush(mark, true);
        let again = cells.begin_flush();
        cells.finish_flush(again, false);
        cells.end(Ending::Killed, &mut random(1));
        assert_eq!(cells.read(1), Some(&Cell::Good("lied about")));
        cells.end(Ending::PowerLost, &mut random(1));
        assert_eq!(cells.read(1), None);
    }

    #[test]
    fn writes_get_lost_go_astray_and_rot() {
        let mut cells = Cells::default();
        cells.put(1, "one");
        let lost = cells.submit(1, "two");
        cells.finish(lost, Fate::Lost);
        assert_eq!(cells.read(1), Some(&Cell::Good("one")));
        let astray = cells.submit(1, "three");
        cells.finish(astray, Fate::Misdirected(2));
        assert_eq!((cells.read(1), cells.read(2)), (Some(&Cell::Good("one")), Some(&Cell::Good("three"))));
        assert!(cells.corrupt(2) && !cells.corrupt(3));
        assert_eq!(cells.read(2), Some(&Cell::Bad));
        cells.erase(2);
        assert_eq!(cells.read(2), None);
        assert_eq!(cells.last_place(), Some(1));
    }
}
