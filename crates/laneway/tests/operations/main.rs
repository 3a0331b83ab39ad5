//! What operators and tools see of a running broker: archives for bug reports, the configuration in effect, the word to
//! the service manager. Source: resources, sections 19 and 22.3.

#[path = "../access/accounts.rs"]
#[allow(dead_code)]
mod accounts;
mod budgets;
#[path = "../protocol/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "../protocol/messages.rs"]
#[allow(dead_code)]
mod messages;
#[path = "../protocol/node.rs"]
#[allow(dead_code)]
mod node;
mod service;
mod snapshots;
