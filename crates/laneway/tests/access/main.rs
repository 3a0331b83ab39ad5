//! Who may do what: users, permissions, tokens, sign-in, over sockets. Source: resources, sections 11 to 13 and rules S44
//! to S76; issue of who waits when a right ends: reads, sections 4.8 and 5.

mod accounts;
#[path = "../protocol/client.rs"]
#[allow(dead_code)]
mod client;
mod crashes;
mod grants;
mod matrix;
#[path = "../protocol/messages.rs"]
#[allow(dead_code)]
mod messages;
#[path = "../protocol/node.rs"]
#[allow(dead_code)]
mod node;
#[path = "../fetch/request.rs"]
#[allow(dead_code)]
mod request;
mod root;
#[path = "../stress/serve.rs"]
#[allow(dead_code)]
mod serve;
mod servers;
mod sign_in;
mod tokens;
mod users;
