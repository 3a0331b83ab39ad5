//! A client that names a consumer anew for each offset it stores.

use laneway_wire::Identifier;
use laneway_wire::primitive::{Consumer, ConsumerKind};

use crate::client::Client;
use crate::harness::{Broker, Settings};
use crate::messages::Poll;

/// Default of `partition.consumer_offsets_max`.
const KEYS_MAX: usize = 4096;
const NAMES: usize = 100_000;
/// Requests that are on their way at a time.
const WINDOW: usize = 128;

fn named(name: &str) -> Consumer<'_> {
    Consumer { kind: ConsumerKind::Consumer, id: Identifier::Name(name) }
}

#[test]
fn a_hundred_thousand_names_take_no_more_memory_than_the_limit() {
    // S118, and "shown by" g: refused past the limit, others go on.
    let mut broker = Broker::start(Settings::new(env!("CARGO_BIN_EXE_laneway")));
    let mut client = Client::sign_in(broker.address());
    let place = client.topic("names", 1).remove(0);
    client.append(&place, &["a", "b", "c"]);
    let names: Vec<String> =
        (0..NAMES).map(|number| format!("consumer-{number:06}-{}", "x".repeat(200))).collect();
    let (mut stored, mut refused) = (0, 0);
    let mut resident = 0;
    for window in names.chunks(WINDOW) {
        let frames: Vec<_> = window.iter().map(|name| client.store_frame(&place, named(name), 1)).collect();
        frames.iter().for_each(|frame| client.send(frame));
        for frame in &frames {
            match client.reply_to(frame).outcome() {
                0 => stored += 1,
                3024 => refused += 1,
                other => panic!("{other} for a name past the limit"),
            }
        }
        if stored == KEYS_MAX && resident == 0 {
            resident = broker.process_use().resident_bytes;
        }
    }
    assert_eq!((stored, refused), (KEYS_MAX, NAMES - KEYS_MAX));
    let grown = broker.process_use().resident_bytes.saturating_sub(resident);
    println!("resident {resident} at the limit, {grown} more after {refused} refusals");
    // The names that were refused alone are 20 MB.
    assert!(grown < 8 << 20, "{grown} bytes more after {refused} refusals");
    for name in [&names[0], &names[KEYS_MAX - 1]] {
        client.store(&place, named(name), 2);
        assert_eq!(client.stored(&place, named(name)), Some(2));
        assert!(client.poll(&place, Poll::next().by(named(name)).commit()).offsets().is_empty());
    }
    let last = &names[NAMES - 1];
    assert_eq!(client.stored(&place, named(last)), None);
    assert_eq!(client.poll(&place, Poll::next().by(named(last))).offsets(), [0, 1, 2], "reads need no key");
    assert_eq!(client.poll_status(&place, Poll::next().by(named(last)).commit()), 3024);
    assert_eq!(client.delete_offset(&place, named(&names[5])).outcome(), 0);
    client.store(&place, named(last), 0);
    broker.kill();
    broker.restart();
    let mut again = client.another();
    let frame = again.store_frame(&place, named(&names[5]), 0);
    assert_eq!(again.exchange(&frame).outcome(), 3024, "the limit survives");
    assert_eq!(again.stored(&place, named(&names[KEYS_MAX - 1])), Some(2));
    assert_eq!(again.stored(&place, named(last)), Some(0));
    broker.assert_healthy();
}
