//! One user must not starve another: budgets of connections, requests and waiting reads. Issue "limits"; rules of
//! resources, section 3, and reads, section 10.

use std::net::SocketAddr;
use std::time::Instant;

use laneway_wire::permissions::Permissions;

use crate::accounts::{PASSWORD, Refused, login};
use crate::client::{ANSWER_MAX, Client, Place, Sent};
use crate::messages::Poll;
use crate::node::Node;

const LONG_MS: u64 = 20_000;

/// Makes a user that may read and write everything.
fn user(admin: &mut Client, name: &str) {
    admin.create_user(name, Some(Permissions::root())).payload();
}

fn sign_in(address: SocketAddr, name: &str) -> Client {
    login(address, name, PASSWORD).expect("signs in")
}

fn park(client: &mut Client, place: &Place) -> Sent {
    let sent = client.poll_frame(place, Poll::offset(0).wait_ms(LONG_MS));
    client.send(&sent);
    sent
}

#[test]
fn waiting_reads_of_one_user_leave_room_for_others() {
    let node = Node::start_with(1, |config| {
        config.reads.pending_per_shard_max = 8;
        config.reads.pending_per_session_max = 3;
        config.reads.pending_per_user_max = Some(6);
    });
    let mut admin = node.client();
    let place = admin.topic("t", 1).remove(0);
    user(&mut admin, "greedy");
    user(&mut admin, "modest");
    let mut greedy: Vec<Client> = (0..3).map(|_| sign_in(node.address(), "greedy")).collect();
    for client in &mut greedy[..2] {
        for _ in 0..3 {
            park(client, &place);
        }
        client.assert_alive();
    }
    assert_eq!(
        greedy[2].poll_status(&place, Poll::offset(0).wait_ms(LONG_MS)),
        90,
        "a session of its own does not help"
    );
    let mut modest = sign_in(node.address(), "modest");
    let waits = park(&mut modest, &place);
    admin.append(&place, &["for everybody"]);
    assert_eq!(modest.reply_to(&waits).status(), 0);
}

#[test]
fn open_requests_of_one_user_are_refused_above_their_budget_and_nobody_elses() {
    let node = Node::start_with(1, |config| config.limits.requests_per_user_max = 5);
    let mut admin = node.client();
    let place = admin.topic("t", 1).remove(0);
    user(&mut admin, "greedy");
    let mut first = sign_in(node.address(), "greedy");
    let parked: Vec<Sent> = (0..4).map(|_| park(&mut first, &place)).collect();
    first.assert_alive();
    let mut second = sign_in(node.address(), "greedy");
    park(&mut second, &place);
    // Six are open with this one.
    let refused = second.frame(&laneway_wire::request::GetStreams {});
    assert_eq!(second.exchange(&refused).status(), 58);
    let send = second.send_frame(&place, &["one too many"]);
    second.exchange(&send).assert_refused(58);
    assert_eq!(admin.append(&place, &["of another user"]), 0);
    for sent in &parked {
        assert_eq!(first.reply_to(sent).status(), 0);
    }
    // What was answered counts no more; a connection that ends gives back what it held.
    assert_eq!(second.append(&place, &["again"]), 1);
    for _ in 0..4 {
        let mut third = sign_in(node.address(), "greedy");
        for _ in 0..3 {
            let sent = third.poll_frame(&place, Poll::offset(9).wait_ms(LONG_MS));
            third.send(&sent);
        }
        third.assert_alive();
    }
    second.assert_alive();
}

#[test]
fn connections_of_one_user_are_bounded_over_all_shards() {
    let node = Node::start_with(3, |config| config.limits.connections_per_user_max = Some(4));
    let mut admin = node.client();
    user(&mut admin, "greedy");
    user(&mut admin, "modest");
    let mut open: Vec<Client> = (0..4).map(|_| sign_in(node.address(), "greedy")).collect();
    assert_eq!(login(node.address(), "greedy", PASSWORD).err(), Some(Refused::Rejected(58)));
    sign_in(node.address(), "modest").assert_alive();
    // One that ends makes room; the broker notices within a moment.
    drop(open.pop());
    let end = Instant::now() + ANSWER_MAX;
    let mut again = loop {
        match login(node.address(), "greedy", PASSWORD) {
            Ok(client) => break client,
            Err(refused) => assert_eq!(refused, Refused::Rejected(58)),
        }
        assert!(Instant::now() < end, "the place stays taken");
    };
    again.assert_alive();
}
