//! What a replica says about its log when a view ends: the content of a DoViewChange message, and what its superblock
//! keeps so that the vote of a view never changes, also not across a restart (V31).

use laneway_wire::Op;

use crate::entry::View;
use crate::header::{HEADER_BYTES, Header, Identity, at, put};

/// Most entries of a lane with several members that may be proposed and not applied. The same on every node: a vote describes each of
/// them, and the merge bounds the commit point by it.
pub const WINDOW_OPS_MAX: usize = 256;

/// Most slots of a vote: the window and the committed entry below it, which the rest hangs on.
pub const VOTE_SLOTS_MAX: usize = WINDOW_OPS_MAX + 1;

/// Bytes of the part of an encoded vote before its slots.
pub(crate) const VOTE_FIXED_BYTES: usize = 64;

/// Place of the code of a slot among the reserved bytes of its header.
const SLOT_CODE: usize = 90;
const SLOT_NACK: usize = 91;

/// The state that a checkpoint holds, by the entry that was applied last. Op 0 means the empty state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId {
    /// The entry.
    pub op: Op,
    /// Its name; [`Identity::root`] for op 0.
    pub identity: Identity,
}

/// Whether a log can be believed to hold everything that its replica acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTrust {
    /// It holds everything.
    Trusted,
    /// A power loss may have taken acknowledged entries. It proves nothing by what it lacks.
    Untrusted,
}

/// What a replica has at one op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Nothing is known.
    Blank,
    /// The name is known from an adopted log; the body was never here.
    HeaderOnly(Header),
    /// The body is durable and can be read.
    Present(Header),
    /// The body was here and is damaged; the name may be lost with it.
    Faulty(Option<Header>),
}

impl Held {
    /// The name of the entry, where it is known.
    pub fn header(&self) -> Option<&Header> {
        match self {
            Held::Blank | Held::Faulty(None) => None,
            Held::HeaderOnly(header) | Held::Present(header) | Held::Faulty(Some(header)) => Some(header),
        }
    }

    /// Whether the body can be fetched from this replica.
    pub fn is_present(&self) -> bool {
        matches!(self, Held::Present(_))
    }
}

/// One op of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What the replica has.
    pub held: Held,
    /// Whether it proves that it never acknowledged an entry at this op, and promises not to in an older view.
    pub nack: bool,
}

/// A replica's binding vote for a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The view that it votes for.
    pub view: View,
    /// The view in which its head was decided.
    pub log_view: View,
    /// Its highest op, never below the head of a log that it adopted.
    pub op_head: Op,
    /// The highest op that it knows committed.
    pub commit_max: Op,
    /// Its durable state.
    pub checkpoint: CheckpointId,
    /// Whether what it lacks proves anything.
    pub trust: LogTrust,
    /// Whether it is installing a checkpoint of another replica.
    pub syncing: bool,
    /// `op_head`, then downward; at most down to `commit_max`, and never below op 1.
    pub slots: Vec<Slot>,
}

impl Vote {
    /// What the vote says about an op; `None` where it says nothing.
    pub fn slot(&self, op: Op) -> Option<&Slot> {
        let below = self.op_head.0.checked_sub(op.0)?;
        self.slots.get(usize::try_from(below).ok()?)
    }

    /// The op of each slot with the slot, downward.
    pub fn iter(&self) -> impl Iterator<Item = (Op, &Slot)> {
        self.slots.iter().enumerate().map(|(below, slot)| (Op(self.op_head.0 - below as u64), slot))
    }

    /// Whether the vote can be one that a correct replica wrote: numbers in order, slots in their places, and no nack
    /// where none may be (V41, V42). What comes from a peer or a disk is checked by this before it is believed.
    pub fn is_well_formed(&self) -> bool {
        let floor = self.commit_max.0.max(1);
        let describable = self.op_head.0.saturating_add(1).saturating_sub(floor);
        self.log_view <= self.view
            && self.checkpoint.op <= self.commit_max
            && self.slots.len() <= VOTE_SLOTS_MAX
            && self.slots.len() as u64 <= describable
            && self.iter().all(|(op, slot)| self.slot_is_honest(op, slot))
    }

    fn slot_is_honest(&self, op: Op, slot: &Slot) -> bool {
        let in_place = slot.held.header().is_none_or(|header| header.op == op);
        let may_nack = matches!(slot.held, Held::Blank | Held::HeaderOnly(_))
            && op > self.commit_max
            && self.trust == LogTrust::Trusted
            && !self.syncing;
        in_place && (!slot.nack || may_nack)
    }

    /// Bytes of the encoded vote.
    pub fn encoded_bytes(&self) -> usize {
        VOTE_FIXED_BYTES + self.slots.len() * HEADER_BYTES
    }

    /// The bytes of the vote. Source: `docs/consensus.md`, vote.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; self.encoded_bytes()];
        put(&mut bytes, 0, self.view.0.to_le_bytes());
        put(&mut bytes, 4, self.log_view.0.to_le_bytes());
        put(&mut bytes, 8, self.op_head.0.to_le_bytes());
        put(&mut bytes, 16, self.commit_max.0.to_le_bytes());
        put(&mut bytes, 24, self.checkpoint.op.0.to_le_bytes());
        put(&mut bytes, 32, self.checkpoint.identity.0.to_le_bytes());
        bytes[48] = u8::from(self.trust == LogTrust::Untrusted);
        bytes[49] = u8::from(self.syncing);
        put(&mut bytes, 52, (self.slots.len() as u32).to_le_bytes());
        for (slot, block) in self.slots.iter().zip(bytes[VOTE_FIXED_BYTES..].chunks_exact_mut(HEADER_BYTES)) {
            encode_slot(slot, block);
        }
        bytes
    }

    /// Reads a vote from the front of `bytes`. `None` when it is not one that [`Vote::encode`] wrote, or is not well
    /// formed.
    pub fn parse(bytes: &[u8]) -> Option<Vote> {
        let count = u32::from_le_bytes(at(bytes, 52)?) as usize;
        if count > VOTE_SLOTS_MAX {
            return None;
        }
        let flag = |place: usize| match bytes.get(place)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let zeros = |from: usize, to: usize| bytes.get(from..to)?.iter().all(|byte| *byte == 0).then_some(());
        zeros(50, 52)?;
        zeros(56, VOTE_FIXED_BYTES)?;
        let slots = bytes.get(VOTE_FIXED_BYTES..VOTE_FIXED_BYTES + count * HEADER_BYTES)?;
        let vote = Vote {
            view: View(u32::from_le_bytes(at(bytes, 0)?)),
            log_view: View(u32::from_le_bytes(at(bytes, 4)?)),
            op_head: Op(u64::from_le_bytes(at(bytes, 8)?)),
            commit_max: Op(u64::from_le_bytes(at(bytes, 16)?)),
            checkpoint: CheckpointId {
                op: Op(u64::from_le_bytes(at(bytes, 24)?)),
                identity: Identity(u128::from_le_bytes(at(bytes, 32)?)),
            },
            trust: if flag(48)? { LogTrust::Untrusted } else { LogTrust::Trusted },
            syncing: flag(49)?,
            slots: slots.chunks_exact(HEADER_BYTES).map(parse_slot).collect::<Option<_>>()?,
        };
        // An op_head of u64::MAX would overflow the arithmetic on slots; no log gets there.
        (vote.op_head.0 < u64::MAX && vote.is_well_formed()).then_some(vote)
    }
}

fn encode_slot(slot: &Slot, block: &mut [u8]) {
    if let Some(header) = slot.held.header() {
        block.copy_from_slice(&header.encode());
    }
    block[SLOT_CODE] = match slot.held {
        Held::Blank => 1,
        Held::HeaderOnly(_) => 2,
        Held::Present(_) => 3,
        Held::Faulty(Some(_)) => 4,
        Held::Faulty(None) => 5,
    };
    block[SLOT_NACK] = slot.nack.into();
}

fn parse_slot(block: &[u8]) -> Option<Slot> {
    let mut header: [u8; HEADER_BYTES] = block.try_into().ok()?;
    let code = std::mem::take(&mut header[SLOT_CODE]);
    let nack = match std::mem::take(&mut header[SLOT_NACK]) {
        0 => false,
        1 => true,
        _ => return None,
    };
    let named = || Header::parse(&header);
    let nameless = || header.iter().all(|byte| *byte == 0).then_some(());
    let held = match code {
        1 => nameless().map(|()| Held::Blank)?,
        2 => Held::HeaderOnly(named()?),
        3 => Held::Present(named()?),
        4 => Held::Faulty(Some(named()?)),
        5 => nameless().map(|()| Held::Faulty(None))?,
        _ => return None,
    };
    Some(Slot { held, nack })
}

#[cfg(test)]
pub(crate) mod tests {
    use laneway_wire::{LaneId, Micros, ReplicaId};
    use proptest::prelude::*;

    use super::*;
    use crate::entry::{Durability, EntryBody};
    use crate::header::{ClusterId, Draft, Epoch};

    pub(crate) fn header(op: u64, salt: u64) -> Header {
        let draft = Draft {
            op: Op(op),
            parent: Identity(u128::from(salt) + 1),
            view: View(1),
            commit: Op(op.saturating_sub(2)),
            timestamp: Micros(op * 10),
            epoch: Epoch(0),
            primary: ReplicaId(0),
            durability: Durability::Persisted,
        };
        Header::seal(ClusterId(1), LaneId(2), draft, &EntryBody::operation(salt.to_le_bytes().to_vec()))
    }

    /// A vote that a correct replica could write.
    pub(crate) fn any_vote() -> impl Strategy<Value = Vote> {
        (0u32..9, 0u32..9, 0u64..400, 0usize..=VOTE_SLOTS_MAX, any::<bool>(), any::<bool>(), any::<u64>())
            .prop_map(|(view, log_view, commit, slots, untrusted, syncing, seed)| {
                let floor = commit.max(1);
                let op_head = Op(floor + slots as u64 - u64::from(slots > 0));
                let describable = (op_head.0 + 1 - floor).min(VOTE_SLOTS_MAX as u64);
                let slots = (0..describable.min(slots as u64))
                    .map(|below| {
                        let op = op_head.0 - below;
                        let dice = seed.wrapping_mul(below + 7) >> 3;
                        let held = match dice % 5 {
                            0 => Held::Blank,
                            1 => Held::HeaderOnly(header(op, dice)),
                            2 => Held::Faulty(Some(header(op, dice))),
                            3 => Held::Faulty(None),
                            _ => Held::Present(header(op, dice)),
                        };
                        let may_nack = dice % 5 < 2 && op > commit && !untrusted && !syncing;
                        Slot { held, nack: may_nack && dice % 2 == 0 }
                    })
                    .collect();
                Vote {
                    view: View(view + log_view),
                    log_view: View(log_view),
                    op_head,
                    commit_max: Op(commit),
                    checkpoint: CheckpointId { op: Op(commit / 2), identity: Identity(9) },
                    trust: if untrusted { LogTrust::Untrusted } else { LogTrust::Trusted },
                    syncing,
                    slots,
                }
            })
    }

    proptest! {
        #[test]
        fn round_trips(vote in any_vote()) {
            prop_assert!(vote.is_well_formed(), "{vote:?}");
            prop_assert_eq!(Vote::parse(&vote.encode()), Some(vote));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Vote::parse(&bytes);
        }

        #[test]
        fn a_damaged_vote_is_refused_or_still_well_formed(vote in any_vote(), place: usize, value: u8) {
            let mut bytes = vote.encode();
            let place = place % bytes.len();
            bytes[place] = value;
            if let Some(read) = Vote::parse(&bytes) {
                prop_assert!(read.is_well_formed());
                prop_assert_eq!(read.encode(), bytes);
            }
        }
    }

    fn vote(commit: u64, held: Held, nack: bool) -> Vote {
        Vote {
            view: View(3),
            log_view: View(2),
            op_head: Op(9),
            commit_max: Op(commit),
            checkpoint: CheckpointId::default(),
            trust: LogTrust::Trusted,
            syncing: false,
            slots: vec![Slot { held, nack }],
        }
    }

    /// V41, V42: who may never nack.
    #[test]
    fn a_nack_where_none_may_be_is_refused() {
        let nack = |held| vote(4, held, true);
        assert!(nack(Held::Blank).is_well_formed());
        assert!(nack(Held::HeaderOnly(header(9, 1))).is_well_formed());
        assert!(!nack(Held::Present(header(9, 1))).is_well_formed(), "what is here was acknowledged");
        assert!(!nack(Held::Faulty(Some(header(9, 1)))).is_well_formed(), "what is damaged was acknowledged");
        assert!(!nack(Held::Faulty(None)).is_well_formed());
        assert!(!vote(9, Held::Blank, true).is_well_formed(), "committed");
        assert!(!Vote { trust: LogTrust::Untrusted, ..nack(Held::Blank) }.is_well_formed());
        assert!(!Vote { syncing: true, ..nack(Held::Blank) }.is_well_formed());
    }

    #[test]
    fn numbers_out_of_order_are_refused() {
        let good = vote(4, Held::Present(header(9, 1)), false);
        assert!(good.is_well_formed());
        assert!(!Vote { log_view: View(4), ..good.clone() }.is_well_formed());
        assert!(!Vote { op_head: Op(8), ..good.clone() }.is_well_formed(), "a header at another op");
        assert!(
            !Vote { commit_max: Op(10), ..good.clone() }.is_well_formed(),
            "says something below the commit"
        );
        let checkpoint = CheckpointId { op: Op(5), identity: Identity(1) };
        assert!(!Vote { checkpoint, ..good.clone() }.is_well_formed());
        let slots = vec![Slot { held: Held::Blank, nack: false }; VOTE_SLOTS_MAX + 1];
        assert!(!Vote { op_head: Op(5000), slots, ..good }.is_well_formed());
    }

    #[test]
    fn slots_are_found_by_their_op() {
        let mut vote = vote(4, Held::Present(header(9, 1)), false);
        vote.slots.push(Slot { held: Held::Blank, nack: true });
        assert_eq!(vote.slot(Op(8)).map(|slot| slot.nack), Some(true));
        assert!(vote.slot(Op(9)).is_some_and(|slot| slot.held.is_present()));
        assert_eq!((vote.slot(Op(7)), vote.slot(Op(10))), (None, None));
    }
}
