use super::*;
use crate::replies::ReplyBody;

const ALICE: UserId = UserId(1);
const BORN: Micros = Micros(10);
const SECRET: Verifier = Verifier([7; 32]);

fn register(sessions: &mut Sessions, op: u64, client: u128) -> Result<SessionEpoch, RegisterRefusal> {
    sessions.register(Op(op), ClientId(client), ALICE, BORN, SECRET).map(|registered| registered.epoch)
}

fn reply(request: u64, op: u64) -> CommittedReply {
    CommittedReply {
        request: RequestNumber(request),
        request_checksum: u128::from(request) + 100,
        op: Op(op),
        timestamp: Micros(op),
        operation: 128,
        status: Status::Ok,
        body: ReplyBody::Empty,
    }
}

fn admit(sessions: &Sessions, epoch: u64, request: u64) -> Admit {
    sessions.admit(ClientId(1), SessionEpoch(epoch), RequestNumber(request), u128::from(request) + 100)
}

#[test]
fn repeated_registration_keeps_its_epoch() {
    let mut sessions = Sessions::new(2);
    assert_eq!(register(&mut sessions, 5, 1), Ok(SessionEpoch(5)));
    assert_eq!(register(&mut sessions, 6, 1), Ok(SessionEpoch(5)));
    assert_eq!(sessions.count(), 1);
}

#[test]
fn registration_by_another_user_or_secret_is_refused() {
    let mut sessions = Sessions::new(2);
    register(&mut sessions, 5, 1).unwrap();
    let mut other = |user, born, verifier| sessions.register(Op(6), ClientId(1), user, born, verifier);
    assert_eq!(other(UserId(2), BORN, SECRET), Err(RegisterRefusal::Taken));
    assert_eq!(other(ALICE, Micros(11), SECRET), Err(RegisterRefusal::Taken));
    assert_eq!(other(ALICE, BORN, Verifier([8; 32])), Err(RegisterRefusal::Taken));
}

#[test]
fn full_table_reclaims_the_longest_ended_session_and_no_live_one() {
    let mut sessions = Sessions::new(2);
    register(&mut sessions, 1, 1).unwrap();
    register(&mut sessions, 2, 2).unwrap();
    assert_eq!(register(&mut sessions, 3, 3), Err(RegisterRefusal::TableFull { max: 2 }));
    assert!(sessions.end(Op(4), ClientId(2), SessionEpoch(2), EndReason::Logout).is_some());
    assert!(sessions.end(Op(5), ClientId(1), SessionEpoch(1), EndReason::Expired).is_some());
    assert_eq!(register(&mut sessions, 6, 3), Ok(SessionEpoch(6)));
    assert!(sessions.session(ClientId(2)).is_none() && sessions.session(ClientId(1)).is_some());
    assert_eq!((sessions.count(), sessions.live_count()), (2, 1));
}

#[test]
fn an_ended_client_registers_again_in_its_own_place() {
    let mut sessions = Sessions::new(2);
    register(&mut sessions, 1, 1).unwrap();
    register(&mut sessions, 2, 2).unwrap();
    sessions.end(Op(3), ClientId(1), SessionEpoch(1), EndReason::Expired);
    assert_eq!(register(&mut sessions, 4, 1), Ok(SessionEpoch(4)));
    assert_eq!((sessions.count(), sessions.live_count()), (2, 2));
    assert_eq!(admit(&sessions, 1, 1), Admit::StaleEpoch);
}

#[test]
fn requests_are_executed_once_and_replayed_while_held() {
    let mut sessions = Sessions::new(2);
    register(&mut sessions, 1, 1).unwrap();
    assert_eq!(admit(&sessions, 1, 3), Admit::New);
    for (request, op) in [(3, 2), (4, 3), (7, 4)] {
        sessions.record(ClientId(1), reply(request, op));
    }
    assert_eq!(admit(&sessions, 1, 3), Admit::Replay(reply(3, 2)));
    assert_eq!(admit(&sessions, 1, 7), Admit::Replay(reply(7, 4)));
    assert_eq!(admit(&sessions, 1, 8), Admit::New);
    // 5 and 2 were skipped: they never ran, and nothing was dropped yet.
    assert_eq!(admit(&sessions, 1, 5), Admit::TooOld);
    assert_eq!(admit(&sessions, 1, 2), Admit::TooOld);
    assert_eq!(admit(&sessions, 1, 0), Admit::TooOld);
    for (request, op) in [(8, 5), (9, 6), (10, 7)] {
        sessions.record(ClientId(1), reply(request, op));
    }
    assert_eq!(admit(&sessions, 1, 3), Admit::AlreadyApplied);
    assert_eq!(admit(&sessions, 1, 4), Admit::Replay(reply(4, 3)));
    assert_eq!(admit(&sessions, 1, 5), Admit::TooOld);
}

#[test]
fn a_number_with_another_checksum_is_never_answered_with_the_other_reply() {
    let mut sessions = Sessions::new(2);
    register(&mut sessions, 1, 1).unwrap();
    sessions.record(ClientId(1), reply(1, 2));
    let admit = |checksum| sessions.admit(ClientId(1), SessionEpoch(1), RequestNumber(1), checksum);
    assert_eq!(admit(555), Admit::ChecksumMismatch);
    assert_eq!(admit(0), Admit::Replay(reply(1, 2)));
    assert_eq!(admit(101), Admit::Replay(reply(1, 2)));
}

#[test]
fn epochs_are_checked_before_numbers() {
    let mut sessions = Sessions::new(2);
    register(&mut sessions, 5, 1).unwrap();
    assert_eq!(admit(&sessions, 4, 1), Admit::StaleEpoch);
    assert_eq!(admit(&sessions, 6, 1), Admit::UnknownEpoch);
    assert_eq!(sessions.admit(ClientId(9), SessionEpoch(5), RequestNumber(1), 0), Admit::NoSession);
}

#[test]
fn an_ended_session_replays_and_executes_nothing() {
    let mut sessions = Sessions::new(2);
    register(&mut sessions, 1, 1).unwrap();
    assert!(sessions.end(Op(2), ClientId(1), SessionEpoch(1), EndReason::Logout).is_some());
    sessions.record(ClientId(1), reply(1, 3));
    assert_eq!(admit(&sessions, 1, 1), Admit::Replay(reply(1, 3)));
    assert_eq!(admit(&sessions, 1, 2), Admit::NoSession);
    assert!(sessions.end(Op(4), ClientId(1), SessionEpoch(1), EndReason::Expired).is_none());
    assert_eq!(sessions.ended().len(), 1);
}

#[test]
fn bind_needs_the_secret_and_the_epoch() {
    let mut sessions = Sessions::new(2);
    register(&mut sessions, 5, 1).unwrap();
    let bind = |client, epoch, byte| {
        sessions
            .bind(ClientId(client), SessionEpoch(epoch), &Verifier([byte; 32]))
            .map(|session| session.epoch.0)
            .map_err(Status::number)
    };
    assert_eq!(bind(1, 5, 7), Ok(5));
    assert_eq!(bind(1, 0, 7), Ok(5));
    assert_eq!([bind(1, 5, 8), bind(1, 4, 7), bind(1, 6, 7), bind(2, 0, 7)], [Err(40); 4]);
    let mut ended = sessions.clone();
    ended.end(Op(6), ClientId(1), SessionEpoch(5), EndReason::Revoked);
    assert!(ended.bind(ClientId(1), SessionEpoch(5), &SECRET).is_err());
    assert!(sessions.bind(ClientId(1), SessionEpoch(5), &SECRET).is_ok(), "the older version is unchanged");
}
