//! The core against scripted replies.

use super::*;
use bytes::BufMut;
use laneway_wire::{Eviction, EvictionReason, Incarnation, ProtocolWindow};

fn credentials() -> Credentials {
    Credentials { username: "iggy".into(), password: "iggy".into() }
}

fn identity(byte: u8) -> Identity {
    Identity::from_random(&[byte; 64])
}

fn request(frame: &Bytes) -> RequestHeader {
    let header = RequestHeader::parse(frame.first_chunk().expect("a whole header"));
    assert_eq!(header.size as usize, frame.len());
    header.validate().expect("a valid request");
    header
}

fn signed_in_payload(session: u64) -> Vec<u8> {
    let mut payload = vec![0, 0, 0, 0];
    payload.extend(session.to_le_bytes());
    payload.extend(12290u32.to_le_bytes());
    payload.extend(b"\x050.1.0");
    payload
}

fn framed(payload: &[u8]) -> Vec<u8> {
    [&[0; 4], payload].concat()
}

fn rejected(status: Status) -> Vec<u8> {
    [1u32, 0, status.number()].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn reply(header: ReplyHeader, body: &[u8]) -> ServerFrame {
    ServerFrame::Reply { header, body: body.into() }
}

fn committed(request: &RequestHeader, op: u64, body: &[u8]) -> ServerFrame {
    reply(ReplyHeader::committed(request, Op(op), body.len()), body)
}

fn uncommitted(request: &RequestHeader, body: &[u8]) -> ServerFrame {
    reply(ReplyHeader::to(request, body.len()), body)
}

fn refused(request: &RequestHeader, status: Status) -> ServerFrame {
    reply(ReplyHeader::refusal(request, status), &[])
}

/// A session that registered at op 7.
fn bound() -> Session {
    let mut session = Session::new(identity(1));
    session.register(&credentials()).unwrap();
    let frame = session.poll_transmit().unwrap();
    let answer = committed(&request(&frame), 7, &framed(&signed_in_payload(7)));
    assert!(matches!(session.handle_frame(answer), Ok(Event::Bound(_))));
    session
}

/// Submits a call and takes its frame.
fn sent(session: &mut Session, code: Code) -> (RequestNumber, Bytes) {
    let mut call = Call::new(code, 4);
    call.body().put_slice(b"body");
    if Operation::for_code(code).is_partition() {
        call = call.with_context(PartitionContext { incarnation: Incarnation(5), ..Default::default() });
    }
    let number = session.submit(call).unwrap();
    (number, session.poll_transmit().unwrap())
}

/// Loses the link and binds the session to another.
fn rebind(session: &mut Session) {
    session.handle_link_lost();
    session.bind().unwrap();
    let frame = session.poll_transmit().unwrap();
    let answer = uncommitted(&request(&frame), &signed_in_payload(7));
    assert!(matches!(session.handle_frame(answer), Ok(Event::Bound(_))));
}

#[track_caller]
fn done(event: Result<Event, ClientError>, expected: RequestNumber) -> Result<Answer, ClientError> {
    match event {
        Ok(Event::Done(number, result)) if number == expected => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn registration_opens_the_session() {
    let mut session = Session::new(identity(1));
    assert!(matches!(session.submit(Call::new(Code::GetStreams, 0)), Err(ClientError::NotLoggedIn)));
    session.register(&credentials()).unwrap();
    let frame = session.poll_transmit().unwrap();
    let header = request(&frame);
    assert_eq!((header.request, header.session, header.code), (RequestNumber(0), SessionEpoch(0), 0));
    assert_ne!(header.request_checksum, 0);
    assert!(session.poll_transmit().is_none());
    let event = session.handle_frame(uncommitted_at(&header, 7, &framed(&signed_in_payload(7)))).unwrap();
    assert!(matches!(event, Event::Bound(signed_in) if signed_in.session == SessionEpoch(7)));
    assert_eq!((session.epoch(), session.watermark()), (Some(SessionEpoch(7)), Op(7)));
}

fn uncommitted_at(request: &RequestHeader, commit: u64, body: &[u8]) -> ServerFrame {
    reply(ReplyHeader { commit: Op(commit), ..ReplyHeader::to(request, body.len()) }, body)
}

#[test]
fn registration_repeats_byte_for_byte() {
    let mut session = Session::new(identity(1));
    session.register(&credentials()).unwrap();
    let first = session.poll_transmit().unwrap();
    session.handle_link_lost();
    session.register(&credentials()).unwrap();
    assert_eq!(session.poll_transmit().unwrap(), first);
}

#[test]
fn registration_that_commits_before_its_epoch_is_refused() {
    let mut session = Session::new(identity(1));
    session.register(&credentials()).unwrap();
    let header = request(&session.poll_transmit().unwrap());
    let answer = uncommitted_at(&header, 6, &framed(&signed_in_payload(7)));
    assert!(matches!(session.handle_frame(answer), Err(ClientError::Protocol { .. })));
    assert!(!session.is_bound());
}

#[test]
fn login_failures_say_why() {
    let cases = [
        (Eviction::new(ClientId(1), EvictionReason::InvalidCredentials), "wrong user name or password"),
        (Eviction::incompatible(ClientId(1), ProtocolWindow::LANEWAY), "0.12.1 to 0.12.2"),
    ];
    for (eviction, expected) in cases {
        let mut session = Session::new(identity(1));
        session.register(&credentials()).unwrap();
        session.poll_transmit().unwrap();
        match session.handle_frame(ServerFrame::Eviction(eviction)) {
            Ok(Event::NotBound(error)) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    let mut session = Session::new(identity(1));
    session.register(&credentials()).unwrap();
    let header = request(&session.poll_transmit().unwrap());
    let event = session.handle_frame(uncommitted(&header, &rejected(Status::TransientNotAccepted)));
    assert!(matches!(
        event,
        Ok(Event::NotBound(ClientError::Refused { status: Status::TransientNotAccepted, .. }))
    ));
}

#[test]
fn ping_needs_no_session() {
    let mut session = Session::new(identity(1));
    let number = session.submit(Call::new(Code::Ping, 0)).unwrap();
    let frame = session.poll_transmit().unwrap();
    let header = request(&frame);
    assert_eq!(
        (number, header.session, header.code, frame.len()),
        (RequestNumber(0), SessionEpoch(0), 1, 256)
    );
    done(session.handle_frame(uncommitted(&header, b"")), number).unwrap();
}

#[test]
fn numbers_rise_and_reads_carry_the_watermark() {
    let mut session = bound();
    let (first, frame) = sent(&mut session, Code::CreateStream);
    let header = request(&frame);
    assert_eq!((first, header.session), (RequestNumber(1), SessionEpoch(7)));
    assert_eq!((header.code, header.minimum_metadata_op), (0, Op(0)));
    assert_ne!(header.request_checksum, 0);
    let answer = done(session.handle_frame(committed(&header, 9, &framed(b"payload"))), first).unwrap();
    assert_eq!((answer.payload.as_ref(), session.watermark()), (&b"payload"[..], Op(9)));

    let (second, frame) = sent(&mut session, Code::GetStreams);
    let header = request(&frame);
    assert_eq!((second, header.code, header.minimum_metadata_op), (RequestNumber(2), 201, Op(9)));
    assert_eq!(header.request_checksum, 0);
    // What a read says about the commit is not a promise to this session.
    done(session.handle_frame(uncommitted_at(&header, 50, b"")), second).unwrap();
    assert_eq!(session.watermark(), Op(9));
}

#[test]
fn pipelined_answers_may_overtake_each_other() {
    let mut session = bound();
    let sends: Vec<_> = (0..3).map(|_| sent(&mut session, Code::SendMessages)).collect();
    for (number, frame) in sends.iter().rev() {
        let header = request(frame);
        assert_eq!((header.partition_incarnation, header.request_checksum), (Incarnation(5), 0));
        done(session.handle_frame(committed(&header, 20 + number.0, b"")), *number).unwrap();
    }
    assert_eq!(session.pending(), 0);
    let late = committed(&request(&sends[0].1), 30, b"");
    assert!(matches!(session.handle_frame(late), Ok(Event::Unclaimed)));
}

#[test]
fn no_more_requests_than_a_connection_carries() {
    let mut session = bound();
    for _ in 0..PENDING_MAX {
        session.submit(Call::new(Code::Ping, 0)).unwrap();
    }
    assert!(matches!(
        session.submit(Call::new(Code::Ping, 0)),
        Err(ClientError::TooManyPending { max: PENDING_MAX })
    ));
}

#[test]
fn request_above_a_frame_is_refused_before_it_is_sent() {
    let mut session = bound();
    let mut call = Call::new(Code::SendMessages, 0);
    call.body().resize(FRAME_BYTES_MAX + 1, 0);
    assert!(matches!(session.submit(call), Err(ClientError::TooLarge { .. })));
}

#[test]
fn refusals_come_by_status_and_by_section() {
    let mut session = bound();
    let (number, frame) = sent(&mut session, Code::CreateStream);
    let event = session.handle_frame(refused(&request(&frame), Status::Unauthorized));
    assert!(matches!(done(event, number), Err(ClientError::Refused { status: Status::Unauthorized, .. })));

    let (number, frame) = sent(&mut session, Code::CreateStream);
    let event =
        session.handle_frame(committed(&request(&frame), 11, &rejected(Status::StreamNameAlreadyExists)));
    assert!(matches!(
        done(event, number),
        Err(ClientError::Refused { status: Status::StreamNameAlreadyExists, .. })
    ));
    assert_eq!(session.watermark(), Op(11));
}

#[test]
fn committed_answer_that_does_not_fit_its_request_is_not_believed() {
    let spoil: [fn(&mut ReplyHeader); 5] = [
        |header| header.client = ClientId(99),
        |header| header.request_checksum ^= 1,
        |header| header.partition_incarnation = Incarnation(6),
        |header| header.op = Op(12),
        |header| header.operation = Operation::DeleteStream.byte(),
    ];
    for spoil in spoil {
        let mut session = bound();
        let (_, frame) = sent(&mut session, Code::CreateStream);
        let mut header = ReplyHeader::committed(&request(&frame), Op(11), 4);
        spoil(&mut header);
        assert!(matches!(session.handle_frame(reply(header, &[0; 4])), Err(ClientError::Protocol { .. })));
    }
}

#[test]
fn result_section_that_is_cut_short_is_not_believed() {
    for body in [&[][..], &[0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[255, 255, 255, 255]] {
        let mut session = bound();
        let (_, frame) = sent(&mut session, Code::CreateStream);
        assert!(matches!(
            session.handle_frame(committed(&request(&frame), 9, body)),
            Err(ClientError::Protocol { .. })
        ));
    }
}

#[test]
fn resolved_operation_answers_its_request() {
    let mut session = bound();
    let (number, frame) = sent(&mut session, Code::CreateTopic);
    let mut header = ReplyHeader::committed(&request(&frame), Op(9), 4);
    header.operation = Operation::CreateTopicWithAssignments.byte();
    done(session.handle_frame(reply(header, &[0; 4])), number).unwrap();
}

#[test]
fn lost_link_resends_the_same_bytes_after_the_bind() {
    let mut session = bound();
    let (first, first_frame) = sent(&mut session, Code::SendMessages);
    let (second, second_frame) = sent(&mut session, Code::GetStreams);
    session.handle_link_lost();
    assert!(session.poll_transmit().is_none(), "nothing goes out before the session is bound");

    session.bind().unwrap();
    let bind = session.poll_transmit().unwrap();
    let header = request(&bind);
    assert_eq!((header.code, header.session, header.request), (15, SessionEpoch(7), RequestNumber(3)));
    assert!(session.poll_transmit().is_none(), "and nothing beside the bind");
    let event = session.handle_frame(uncommitted(&header, &signed_in_payload(7)));
    assert!(matches!(event, Ok(Event::Bound(_))));

    assert_eq!(session.poll_transmit().unwrap(), first_frame);
    assert_eq!(session.poll_transmit().unwrap(), second_frame);
    assert!(session.poll_transmit().is_none());
    done(session.handle_frame(committed(&request(&first_frame), 9, b"")), first).unwrap();
    done(session.handle_frame(uncommitted(&request(&second_frame), b"")), second).unwrap();
}

#[test]
fn plain_ok_after_an_uncertain_attempt_proves_nothing() {
    let mut session = bound();
    let (number, frame) = sent(&mut session, Code::SendMessages);
    rebind(&mut session);
    assert_eq!(session.poll_transmit().unwrap(), frame);
    let header = request(&frame);
    let event = session.handle_frame(uncommitted(&header, b""));
    assert!(matches!(event, Ok(Event::Retry(other, Status::TransientNotCommitted)) if other == number));
    session.resend(number);
    session.resend(number);
    assert_eq!(session.poll_transmit().unwrap(), frame);
    assert!(session.poll_transmit().is_none(), "twice asked, once sent");
    done(session.handle_frame(committed(&header, 9, b"")), number).unwrap();
}

#[test]
fn frame_that_was_never_sent_is_certain() {
    let mut session = bound();
    let mut call = Call::new(Code::SendMessages, 0);
    call.body().put_slice(b"body");
    let number = session.submit(call).unwrap();
    rebind(&mut session);
    let frame = session.poll_transmit().unwrap();
    done(session.handle_frame(uncommitted(&request(&frame), b"")), number).unwrap();
}

#[test]
fn transient_refusals_ask_for_another_attempt() {
    let mut session = bound();
    let (number, frame) = sent(&mut session, Code::SendMessages);
    for status in [Status::TransientNotAccepted, Status::NotPrimary, Status::TransientNotCommitted] {
        let event = session.handle_frame(refused(&request(&frame), status));
        assert!(matches!(event, Ok(Event::Retry(other, found)) if other == number && found == status));
    }
    // 57 came: from here on nobody may say that nothing happened.
    let error = session.abandon(number, Some(Status::TransientNotAccepted)).unwrap();
    assert!(matches!(error, ClientError::Uncertain { code: Code::SendMessages }));
}

#[test]
fn abandoned_request_says_whether_it_may_have_been_done() {
    let mut session = bound();
    let (number, _) = sent(&mut session, Code::SendMessages);
    let error = session.abandon(number, Some(Status::TransientNotAccepted)).unwrap();
    assert!(matches!(error, ClientError::Refused { status: Status::TransientNotAccepted, .. }));
    let (number, _) = sent(&mut session, Code::SendMessages);
    assert!(matches!(session.abandon(number, None), Some(ClientError::Uncertain { .. })));
    let (number, _) = sent(&mut session, Code::GetStreams);
    assert!(matches!(session.abandon(number, None), Some(ClientError::Refused { .. })));
    assert!(session.abandon(number, None).is_none());
}

#[test]
fn dead_session_ends_what_was_pending() {
    let mut session = bound();
    let (change, _) = sent(&mut session, Code::SendMessages);
    let (read, _) = sent(&mut session, Code::GetStreams);
    let unsent = session.submit(Call::new(Code::CreateStream, 0)).unwrap();
    session.handle_link_lost();
    session.bind().unwrap();
    let header = request(&session.poll_transmit().unwrap());
    let event = session.handle_frame(refused(&header, Status::Unauthenticated));
    assert!(matches!(event, Ok(Event::NotBound(ClientError::SessionLost { .. }))));

    let before = session.client();
    let ended = session.reset(identity(2));
    let kinds: Vec<_> =
        ended.iter().map(|(n, error)| (*n, matches!(error, ClientError::Uncertain { .. }))).collect();
    assert_eq!(kinds, [(change, true), (read, false), (unsent, false)]);
    assert!(!session.is_registered() && session.client() != before);

    session.register(&credentials()).unwrap();
    let header = request(&session.poll_transmit().unwrap());
    let answer = committed(&header, 40, &framed(&signed_in_payload(40)));
    assert!(matches!(session.handle_frame(answer), Ok(Event::Bound(_))));
    // Numbers are never used twice, whatever the session.
    assert!(sent(&mut session, Code::Ping).0 > unsent);
}

#[test]
fn bind_answered_for_another_session_is_not_believed() {
    let mut session = bound();
    session.handle_link_lost();
    session.bind().unwrap();
    let header = request(&session.poll_transmit().unwrap());
    let event = session.handle_frame(uncommitted(&header, &signed_in_payload(8)));
    assert!(matches!(event, Err(ClientError::Protocol { .. })));
}

#[test]
fn eviction_outside_of_a_login_ends_the_link_only() {
    let mut session = bound();
    let (_, frame) = sent(&mut session, Code::SendMessages);
    let event =
        session.handle_frame(ServerFrame::Eviction(Eviction::new(ClientId(1), EvictionReason::NoSession)));
    assert!(matches!(
        event,
        Ok(Event::Evicted(ClientError::Refused { status: Status::Unauthenticated, .. }))
    ));
    rebind(&mut session);
    assert_eq!(session.poll_transmit().unwrap(), frame);
}

#[test]
fn logout_ends_the_session() {
    let mut session = bound();
    let (number, frame) = sent(&mut session, Code::Logout);
    done(session.handle_frame(committed(&request(&frame), 9, b"")), number).unwrap();
    assert!(!session.is_registered());
    assert!(matches!(session.submit(Call::new(Code::GetMe, 0)), Err(ClientError::NotLoggedIn)));
}
