//! Grouped fetch (109), over sockets: limits, sums, sections, ends. Source: reads, sections 5 and 13.

#[path = "../protocol/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "../protocol/messages.rs"]
#[allow(dead_code)]
mod messages;
#[path = "../protocol/node.rs"]
#[allow(dead_code)]
mod node;
mod reads;
mod request;
mod waits;
