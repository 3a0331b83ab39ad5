use laneway_wire::{ClientId, Offset, Op};

use super::*;

fn session(number: u64) -> SessionKey {
    SessionKey { client: ClientId(7), session: SessionEpoch(number) }
}

fn identity(number: u64, request: u64) -> Identity {
    Identity { client: ClientId(7), session: SessionEpoch(number), request: RequestNumber(request) }
}

fn receipt(request: u64, op: u64) -> Receipt {
    Receipt {
        kind: ReceiptKind::Append,
        request: RequestNumber(request),
        op: Op(op),
        base_offset: Offset(op * 10),
        message_count: 3,
        timestamp: Micros(op),
        status: Status::Ok,
    }
}

fn admit(receipts: &Receipts, number: u64, request: u64, now: u64) -> Admit {
    receipts.admit(&identity(number, request), ReceiptKind::Append, Micros(now), 0)
}

#[test]
fn resend_gets_its_receipt_until_it_falls_out_of_the_ring() {
    let mut receipts = Receipts::new(4);
    for request in 1..=5 {
        assert_eq!(admit(&receipts, 1, request * 2, 0), Admit::New);
        receipts.record(session(1), receipt(request * 2, request));
    }
    assert_eq!(admit(&receipts, 1, 2, 0), Admit::Refuse(Status::RequestTooOld));
    assert_eq!(admit(&receipts, 1, 5, 0), Admit::Refuse(Status::RequestTooOld), "between two known ones");
    for request in 2..=5 {
        assert_eq!(admit(&receipts, 1, request * 2, 0), Admit::Replay(receipt(request * 2, request)));
    }
    assert_eq!(admit(&receipts, 1, 11, 0), Admit::New);
    assert_eq!(admit(&receipts, 2, 2, 0), Admit::New, "another session");
}

#[test]
fn number_used_for_another_kind_is_refused() {
    let mut receipts = Receipts::new(4);
    receipts.record(session(1), receipt(1, 1));
    let admit = receipts.admit(&identity(1, 1), ReceiptKind::StoreOffset, Micros(0), 0);
    assert_eq!(admit, Admit::Refuse(Status::InvalidCommand));
}

#[test]
fn full_table_refuses_while_its_sessions_are_young() {
    let mut receipts = Receipts::new(2);
    receipts.record(session(1), receipt(1, 1));
    receipts.record(session(2), receipt(1, 2));
    assert_eq!(admit(&receipts, 3, 1, YOUNG_US), Admit::Refuse(Status::TransientNotAccepted));
    assert_eq!(admit(&receipts, 3, 1, YOUNG_US + 1), Admit::New, "session 1 is old enough to go");
    assert_eq!(admit(&receipts, 2, 2, YOUNG_US), Admit::New, "a known session is always taken");
}

#[test]
fn sessions_in_flight_count_against_the_table() {
    let mut receipts = Receipts::new(2);
    receipts.record(session(1), receipt(1, 1));
    let admit = |in_flight| receipts.admit(&identity(3, 1), ReceiptKind::Append, Micros(2), in_flight);
    assert_eq!(admit(0), Admit::New);
    assert_eq!(admit(1), Admit::Refuse(Status::TransientNotAccepted));
}

#[test]
fn evicted_session_is_refused_and_never_repeated() {
    let mut receipts = Receipts::new(2);
    receipts.record(session(1), receipt(5, 1));
    receipts.record(session(2), receipt(1, 2));
    assert_eq!(receipts.record(session(3), receipt(1, 3)), Some(session(1)));
    let later = YOUNG_US * 2;
    assert_eq!(admit(&receipts, 1, 5, later), Admit::Refuse(Status::RequestTooOld));
    assert_eq!(admit(&receipts, 1, 6, later), Admit::New);
    receipts.retire(session(1));
    assert_eq!(receipts.sessions().collect::<Vec<_>>(), [session(2), session(3)]);
}

#[test]
fn dropped_floor_refuses_its_whole_age() {
    let mut receipts = Receipts::new(1);
    for number in 1..=19 {
        receipts.record(session(number), receipt(5, number));
    }
    // 18 evictions, 16 floors: sessions 1 and 2 lost theirs.
    let later = YOUNG_US * 2;
    assert_eq!(admit(&receipts, 1, 900, later), Admit::Refuse(Status::RequestTooOld));
    assert_eq!(admit(&receipts, 2, 900, later), Admit::Refuse(Status::RequestTooOld));
    assert_eq!(admit(&receipts, 3, 900, later), Admit::New);
    assert_eq!(admit(&receipts, 20, 1, later), Admit::New);
}

#[test]
fn requests_applied_out_of_order_keep_the_newest_numbers() {
    let mut receipts = Receipts::new(1);
    for (op, request) in [7, 6, 9, 8, 5].into_iter().enumerate() {
        receipts.record(session(1), receipt(request, op as u64 + 1));
    }
    assert_eq!(admit(&receipts, 1, 5, 0), Admit::Refuse(Status::RequestTooOld));
    assert!(matches!(admit(&receipts, 1, 6, 0), Admit::Replay(_)));
    assert_eq!(admit(&receipts, 1, 10, 0), Admit::New);
}
