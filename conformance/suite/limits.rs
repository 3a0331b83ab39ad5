//! Many resources: more streams than any small table holds.

use futures_util::future::join_all;
use iggy::prelude::*;

use crate::suite::support::{
    TopicNames, connect, message, named, numbered, read_partition, run, send, with_partitions,
};

const STREAMS: usize = 4_097;
const CREATORS: usize = 16;

#[test]
fn first_and_last_of_4097_streams_keep_their_own_messages() {
    run(async |broker| {
        let mut clients = Vec::new();
        for _ in 0..CREATORS {
            clients.push(connect(broker).await);
        }
        let creators = clients.iter().enumerate().map(async |(creator, client)| {
            for number in (creator..STREAMS).step_by(CREATORS) {
                let name = format!("stream-{number}");
                client
                    .create_stream(&name, &StreamCreateOptions::default())
                    .await
                    .expect("create the stream");
                client.create_topic(&named(&name), "t", &with_partitions(1)).await.expect("create the topic");
            }
        });
        join_all(creators).await;
        let client = &clients[0];
        let mut ids: Vec<u32> =
            client.get_streams().await.expect("list").iter().map(|stream| stream.id).collect();
        assert_eq!(ids.len(), STREAMS);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), STREAMS, "every stream has an id of its own");
        let places = [ids[0], ids[1], ids[STREAMS - 2], ids[STREAMS - 1]]
            .map(|id| TopicNames { stream: numbered(id), topic: named("t") });
        for (number, place) in (1u128..).zip(&places) {
            assert_eq!(send(client, place, 0, &mut [message(number, format!("payload {number}"))]).await, 0);
        }
        for (number, place) in (1u128..).zip(&places) {
            let stored = read_partition(client, place, 0).await;
            let [only] = &stored[..] else { panic!("{} messages in {place:?}", stored.len()) };
            assert_eq!(
                (only.header.id, only.payload.as_ref()),
                (number, format!("payload {number}").as_bytes())
            );
        }
    });
}
