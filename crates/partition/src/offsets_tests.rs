use super::*;

fn consumer(number: u64) -> ConsumerKey {
    ConsumerKey::number(ConsumerKind::Consumer, number)
}

fn offsets() -> StoredOffsets {
    StoredOffsets::new(2)
}

fn token(start: u64, at: u64) -> FenceToken {
    FenceToken { start: Offset(start), at: Nanos(at) }
}

fn store(offsets: &mut StoredOffsets, op: u64, offset: u64, mode: StoreMode, now: u64) {
    offsets.apply_store(Op(op), &consumer(1), Offset(offset), mode, Nanos(now));
}

#[test]
fn number_and_names_never_meet() {
    let mut offsets = StoredOffsets::new(10);
    let (one, other, hash) = names_with_one_hash();
    let named = |name: &str| ConsumerKey::name(ConsumerKind::Consumer, name.as_bytes()).unwrap();
    let keys = [
        named(&one),
        named(&other),
        consumer(u64::from(hash)),
        named("1"),
        consumer(1),
        ConsumerKey::number(ConsumerKind::Group, 1),
        ConsumerKey::number(ConsumerKind::External, 1),
    ];
    for (place, key) in keys.iter().enumerate() {
        offsets.apply_store(Op(1), key, Offset(place as u64), StoreMode::Explicit, Nanos(0));
    }
    for (place, key) in keys.iter().enumerate() {
        assert_eq!(offsets.stored(key), Some(Offset(place as u64)));
    }
    assert_eq!(ConsumerKey::name(ConsumerKind::Consumer, b""), None);
    assert_eq!(ConsumerKey::name(ConsumerKind::Consumer, &[1; 256]), None);
}

/// Two names that a 32-bit hash cannot tell apart, and that hash.
fn names_with_one_hash() -> (String, String, u32) {
    let mut seen = BTreeMap::new();
    for number in 0_u32.. {
        let name = format!("consumer-{number}");
        let hash = xxhash_rust::xxh32::xxh32(name.as_bytes(), 0);
        if let Some(other) = seen.insert(hash, name.clone()) {
            return (other, name, hash);
        }
    }
    unreachable!("there are more names than hashes");
}

#[test]
fn auto_commit_only_rises_and_explicit_store_rewinds() {
    let mut offsets = offsets();
    store(&mut offsets, 1, 9, StoreMode::Auto, 0);
    store(&mut offsets, 2, 5, StoreMode::Auto, 0);
    assert_eq!(offsets.stored(&consumer(1)), Some(Offset(9)));
    store(&mut offsets, 3, 2, StoreMode::Explicit, 0);
    assert_eq!(offsets.stored(&consumer(1)), Some(Offset(2)));
    store(&mut offsets, 4, 7, StoreMode::Auto, 0);
    assert_eq!(offsets.stored(&consumer(1)), Some(Offset(7)));
}

#[test]
fn raised_offset_is_seen_at_once_and_committed_by_its_op() {
    let mut offsets = offsets();
    assert_eq!(offsets.raise(&consumer(1), Offset(4), Op(1)), Ok(AutoCommit::Submit));
    assert_eq!(offsets.stored(&consumer(1)), Some(Offset(4)));
    assert_eq!(offsets.committed(&consumer(1)), None);
    // Covered in memory only: submitted all the same, so that a lost op heals.
    assert_eq!(offsets.raise(&consumer(1), Offset(3), Op(2)), Ok(AutoCommit::Submit));
    assert_eq!(offsets.stored(&consumer(1)), Some(Offset(4)));
    store(&mut offsets, 1, 4, StoreMode::Auto, 0);
    assert_eq!(offsets.committed(&consumer(1)), Some(Offset(4)));
    assert_eq!(offsets.raise(&consumer(1), Offset(4), Op(3)), Ok(AutoCommit::Covered));
}

#[test]
fn lost_raise_is_forgotten() {
    let mut offsets = offsets();
    store(&mut offsets, 1, 2, StoreMode::Auto, 0);
    offsets.raise(&consumer(1), Offset(4), Op(2)).unwrap();
    offsets.raise(&consumer(2), Offset(4), Op(3)).unwrap();
    offsets.discard_staged();
    assert_eq!(offsets.stored(&consumer(1)), Some(Offset(2)));
    assert_eq!((offsets.stored(&consumer(2)), offsets.keys(ConsumerKind::Consumer)), (None, 1));
}

#[test]
fn rewind_behind_a_raise_wins_and_one_before_it_does_not() {
    let mut offsets = offsets();
    offsets.raise(&consumer(1), Offset(9), Op(1)).unwrap();
    offsets.stage_store(&consumer(1));
    offsets.raise(&consumer(1), Offset(7), Op(3)).unwrap();
    store(&mut offsets, 1, 9, StoreMode::Auto, 0);
    store(&mut offsets, 2, 4, StoreMode::Explicit, 0);
    offsets.unstage_store(&consumer(1));
    assert_eq!(offsets.stored(&consumer(1)), Some(Offset(7)), "the raise came behind the rewind");
    store(&mut offsets, 3, 7, StoreMode::Auto, 0);
    store(&mut offsets, 4, 1, StoreMode::Explicit, 0);
    assert_eq!(offsets.stored(&consumer(1)), Some(Offset(1)));
}

#[test]
fn store_above_the_head_is_refused_unless_external() {
    let offsets = offsets();
    let external = ConsumerKey::number(ConsumerKind::External, 1);
    let head = Some(Offset(4));
    assert_eq!(offsets.admit_store(&consumer(1), Offset(4), head), Ok(()));
    assert_eq!(offsets.admit_store(&consumer(1), Offset(5), head), Err(Status::InvalidOffset));
    assert_eq!(offsets.admit_store(&consumer(1), Offset(0), None), Err(Status::InvalidOffset));
    assert_eq!(offsets.admit_store(&external, Offset(900), None), Ok(()));
}

#[test]
fn key_limit_refuses_new_keys_of_that_kind_only() {
    let mut offsets = offsets();
    for number in [1, 2] {
        offsets.apply_store(Op(1), &consumer(number), Offset(0), StoreMode::Explicit, Nanos(0));
    }
    let full = Err(Status::TooManyConsumerOffsets);
    assert_eq!(offsets.admit_store(&consumer(3), Offset(0), Some(Offset(0))), full);
    assert_eq!(offsets.raise(&consumer(3), Offset(0), Op(2)), Err(Status::TooManyConsumerOffsets));
    assert_eq!(offsets.admit_key(&consumer(2)), Ok(()));
    assert_eq!(offsets.admit_key(&ConsumerKey::number(ConsumerKind::Group, 3)), Ok(()));
    assert_eq!(offsets.apply_delete(Op(3), &consumer(1), Nanos(0)), Status::Ok);
    assert_eq!(offsets.admit_key(&consumer(3)), Ok(()));
}

#[test]
fn staged_store_counts_as_a_key_and_can_be_deleted_behind_it() {
    let mut offsets = StoredOffsets::new(1);
    assert_eq!(offsets.admit_delete(&consumer(1), Nanos(0)), Err(Status::ConsumerOffsetNotFound));
    offsets.stage_store(&consumer(1));
    assert_eq!(offsets.admit_key(&consumer(2)), Err(Status::TooManyConsumerOffsets));
    assert_eq!(offsets.admit_delete(&consumer(1), Nanos(0)), Ok(()));
}

#[test]
fn plain_next_read_is_fenced_by_a_moved_start_only() {
    let mut offsets = offsets();
    store(&mut offsets, 1, 4, StoreMode::Explicit, 10);
    assert!(offsets.fence_holds(&consumer(1), token(5, 10), false));
    store(&mut offsets, 2, 4, StoreMode::Explicit, 20);
    assert!(offsets.fence_holds(&consumer(1), token(5, 10), false));
    store(&mut offsets, 3, 6, StoreMode::Explicit, 30);
    assert!(!offsets.fence_holds(&consumer(1), token(5, 10), false));
}

#[test]
fn committing_next_read_is_fenced_by_any_client_store_since() {
    let mut offsets = offsets();
    store(&mut offsets, 1, 4, StoreMode::Explicit, 10);
    assert!(offsets.fence_holds(&consumer(1), token(5, 11), true));
    store(&mut offsets, 2, 4, StoreMode::Auto, 12);
    assert!(offsets.fence_holds(&consumer(1), token(5, 11), true), "a read does not stamp");
    offsets.stage_store(&consumer(1));
    assert!(!offsets.fence_holds(&consumer(1), token(5, 11), true), "the store is on its way");
    store(&mut offsets, 3, 4, StoreMode::Explicit, 11);
    offsets.unstage_store(&consumer(1));
    assert!(!offsets.fence_holds(&consumer(1), token(5, 11), true), "the same value, at the same moment");
    assert!(offsets.fence_holds(&consumer(1), token(5, 12), true));
    assert!(offsets.fence_holds(&consumer(2), token(0, 11), true), "another key fences nothing");
}

#[test]
fn committing_next_read_is_fenced_by_a_delete_even_of_nothing() {
    let mut offsets = offsets();
    assert!(offsets.fence_holds(&consumer(1), token(0, 10), true));
    assert_eq!(offsets.admit_delete(&consumer(1), Nanos(10)), Err(Status::ConsumerOffsetNotFound));
    assert!(!offsets.fence_holds(&consumer(1), token(0, 10), true));
    assert!(offsets.fence_holds(&consumer(1), token(0, 11), true));
    store(&mut offsets, 1, 4, StoreMode::Explicit, 12);
    offsets.stage_delete(&consumer(1));
    assert!(!offsets.fence_holds(&consumer(1), token(5, 13), true), "the delete is on its way");
    assert_eq!(offsets.apply_delete(Op(2), &consumer(1), Nanos(14)), Status::Ok);
    offsets.unstage_delete(&consumer(1));
    assert!(!offsets.fence_holds(&consumer(1), token(5, 13), true));
    assert_eq!(offsets.apply_delete(Op(3), &consumer(1), Nanos(15)), Status::ConsumerOffsetNotFound);
    assert!(offsets.counts_are_exact());
}

#[test]
fn next_start_of_the_last_offset_does_not_exist() {
    let mut offsets = offsets();
    let external = ConsumerKey::number(ConsumerKind::External, 1);
    offsets.apply_store(Op(1), &external, Offset(u64::MAX), StoreMode::Explicit, Nanos(0));
    assert_eq!(offsets.next_start(&external), Err(StartError::NoNext));
}

/// S81: what a group that is managed elsewhere has stored keeps no segments.
#[test]
fn lowest_offset_of_consumers_and_groups_is_the_barrier() {
    let mut offsets = StoredOffsets::new(10);
    assert_eq!(offsets.barrier(), None);
    let mut store = |kind, number, offset| {
        let key = ConsumerKey::number(kind, number);
        offsets.apply_store(Op(1), &key, Offset(offset), StoreMode::Explicit, Nanos(0));
        offsets.barrier().map(|barrier| barrier.0)
    };
    assert_eq!(store(ConsumerKind::External, 1, 2), None);
    assert_eq!(store(ConsumerKind::Group, 1, 9), Some(9));
    assert_eq!(store(ConsumerKind::Consumer, 1, 5), Some(5));
    assert_eq!(store(ConsumerKind::Consumer, 2, 7), Some(5));
}
