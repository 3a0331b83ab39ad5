//! Clients that break the rules: each gets an error or loses its connection, and nobody else notices.
//!
//! Every test runs the real binary beside a well-behaved neighbour, and looks at the process afterwards: no panic, and
//! no memory or descriptor that stays.

mod catalog;
#[path = "../../../../conformance/harness/src/lib.rs"]
#[allow(dead_code, unused_imports)]
mod harness;
mod malformed;
mod neighbour;
mod sizes;
mod slow;
mod storms;
mod wire;

use std::time::{Duration, Instant};

use harness::{Broker, ProcessUse, Settings};
use neighbour::Neighbour;

/// What a process may hold more than before, once everybody is gone. Allocators keep some of what they got.
const RESIDENT_GROWTH_MAX: u64 = 96 << 20;
const DESCRIPTOR_GROWTH_MAX: usize = 8;
/// How long the process may take to give back what it held for clients that left.
const RETURN_MAX: Duration = Duration::from_secs(15);

/// Runs a test against a broker of its own, beside a neighbour.
fn beside_a_neighbour(test: impl FnOnce(&Broker)) {
    let mut broker = Broker::start(Settings::new(env!("CARGO_BIN_EXE_laneway")));
    let neighbour = Neighbour::start(broker.address());
    let before = broker.process_use();
    test(&broker);
    neighbour.finish();
    broker.assert_healthy();
    await_return(&broker, before);
    assert!(broker.stop().success(), "the broker stops cleanly");
    broker.assert_no_panic();
}

/// Waits until memory and descriptors are back near what they were.
fn await_return(broker: &Broker, before: ProcessUse) {
    let deadline = Instant::now() + RETURN_MAX;
    loop {
        let now = broker.process_use();
        let is_back = now.resident_bytes <= before.resident_bytes + RESIDENT_GROWTH_MAX
            && now.descriptors <= before.descriptors + DESCRIPTOR_GROWTH_MAX;
        if is_back {
            println!("process: {before:?} before, {now:?} after");
            return;
        }
        assert!(Instant::now() < deadline, "the process keeps {now:?} after {before:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
