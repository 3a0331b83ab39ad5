use super::*;

fn batch(epoch: u16, base_sequence: u32) -> ProducerSection {
    ProducerSection { producer_id: 4, epoch, base_sequence }
}

fn admit(producers: &Producers, producer: ProducerSection, count: u32) -> Admit {
    producers.admit(&producer, count, RequestNumber(77), Micros(0))
}

/// A producer that wrote ten messages, then five, at offsets 100 and 110.
fn two_batches() -> Producers {
    let mut producers = Producers::new(2);
    producers.record(Op(1), &batch(3, 0), 10, Offset(100), Micros(1));
    producers.record(Op(2), &batch(3, 10), 5, Offset(110), Micros(2));
    producers
}

#[test]
fn next_sequence_is_new_and_a_repeat_gets_its_first_confirmation() {
    let producers = two_batches();
    assert_eq!(admit(&producers, batch(3, 15), 1), Admit::New);
    let Admit::Replay(receipt) = admit(&producers, batch(3, 0), 10) else { panic!("it is held") };
    assert_eq!((receipt.base_offset, receipt.message_count), (Offset(100), 10));
    assert_eq!((receipt.request, receipt.op), (RequestNumber(77), Op(1)));
}

#[test]
fn gap_and_other_count_are_out_of_order() {
    let producers = two_batches();
    for (sequence, count) in [(16, 1), (0, 9)] {
        let refused = Admit::Refuse(Status::ProducerSequenceOutOfOrder);
        assert_eq!(admit(&producers, batch(3, sequence), count), refused);
    }
}

#[test]
fn epochs_fence_and_start_anew() {
    let producers = two_batches();
    assert_eq!(admit(&producers, batch(2, 15), 1), Admit::Refuse(Status::ProducerEpochFenced));
    assert_eq!(admit(&producers, batch(4, 0), 1), Admit::New);
    assert_eq!(admit(&producers, batch(4, 15), 1), Admit::Refuse(Status::ProducerSequenceOutOfOrder));
}

#[test]
fn unknown_producer_starts_at_zero_only() {
    let producers = Producers::new(2);
    assert_eq!(admit(&producers, batch(0, 0), 1), Admit::New);
    assert_eq!(admit(&producers, batch(0, 1), 1), Admit::Refuse(Status::ProducerUnknown));
}

#[test]
fn pipelined_batches_are_admitted_behind_each_other() {
    let mut producers = Producers::new(2);
    producers.stage(Op(1), batch(0, 0), 10);
    assert_eq!(admit(&producers, batch(0, 10), 5), Admit::New);
    assert_eq!(admit(&producers, batch(0, 0), 10), Admit::InFlight(Op(1)));
    producers.unstage(Op(1), 4);
    assert_eq!(admit(&producers, batch(0, 10), 5), Admit::Refuse(Status::ProducerUnknown));
    producers.record(Op(1), &batch(0, 0), 10, Offset(0), Micros(0));
    assert_eq!(admit(&producers, batch(0, 10), 5), Admit::New);
}

#[test]
fn sequence_wraps_to_zero() {
    let mut producers = Producers::new(2);
    let last = SEQUENCES - 2;
    producers.record(Op(1), &batch(0, last), 5, Offset(0), Micros(0));
    assert_eq!(admit(&producers, batch(0, 3), 1), Admit::New);
    assert!(matches!(admit(&producers, batch(0, last), 5), Admit::Replay(_)));
    assert_eq!(admit(&producers, batch(0, 4), 1), Admit::Refuse(Status::ProducerSequenceOutOfOrder));
}

#[test]
fn batch_that_was_written_but_is_not_held_is_not_called_unwritten() {
    let mut producers = Producers::new(2);
    for op in 0..=HELD_PER_PRODUCER as u32 {
        producers.record(Op(u64::from(op)), &batch(0, op), 1, Offset(u64::from(op)), Micros(0));
    }
    assert_eq!(admit(&producers, batch(0, 0), 1), Admit::Refuse(Status::RequestTooOld));
    assert!(matches!(admit(&producers, batch(0, 1), 1), Admit::Replay(_)));
}

#[test]
fn full_table_lets_the_quietest_go_when_it_is_old() {
    let mut producers = Producers::new(1);
    producers.record(Op(1), &batch(0, 0), 1, Offset(0), Micros(5));
    let other = ProducerSection { producer_id: 9, ..batch(0, 0) };
    let young = producers.admit(&other, 1, RequestNumber(1), Micros(6));
    assert_eq!(young, Admit::Refuse(Status::TransientNotAccepted));
    let old = producers.admit(&other, 1, RequestNumber(1), Micros(5 + super::super::receipts::YOUNG_US));
    assert_eq!(old, Admit::New);
    producers.record(Op(2), &other, 1, Offset(1), Micros(9));
    assert_eq!(admit(&producers, batch(0, 1), 1), Admit::Refuse(Status::ProducerUnknown));
}
