use iggy::prelude::*;

use super::{consumer, name};

/// Reads one partition from an offset to its head, in order.
pub(crate) async fn read_from(client: &IggyClient, partition: u32, start: u64) -> Vec<IggyMessage> {
    let options = PollOptions { max_bytes: 8 << 20, ..PollOptions::default() };
    let mut all: Vec<IggyMessage> = Vec::new();
    loop {
        let next = start + all.len() as u64;
        let polled = client
            .poll_messages(&name(), &name(), partition, &consumer(), &PollingStrategy::offset(next), options)
            .await
            .unwrap_or_else(|e| panic!("poll partition {partition} from {next}: {e}"));
        if polled.messages.is_empty() {
            return all;
        }
        for message in polled.messages {
            let expected = start + all.len() as u64;
            assert_eq!(message.header.offset, expected, "partition {partition}: offsets are dense");
            all.push(message);
        }
    }
}
