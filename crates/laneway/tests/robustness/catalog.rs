//! One well-formed request of every kind.

use laneway_wire::Micros;
use laneway_wire::batch::BatchBuilder;

use crate::wire::{
    Bound, NON_REPLICATED, REGISTER, Request, named, numbered, register_body, string8, version_prefix,
};

/// Stream and topic that the requests name.
pub const TOPIC: &str = "topic";
/// A name that nothing has.
const MISSING: &str = "missing";

/// A request without its session and number.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: &'static str,
    pub operation: u8,
    pub code: u32,
    pub body: Vec<u8>,
    /// The request carries the context of partition 0 of [`TOPIC`].
    pub has_context: bool,
    pub expectation: Expectation,
}

/// What the broker answers to the sample as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    Success,
    /// The target does not exist, or the command is not there yet.
    AnyReply,
    /// The command has no answer.
    Nothing,
}

/// Context of a partition, as a route reports it.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub incarnation: u64,
    pub metadata_op: u64,
}

impl Sample {
    /// The request with a fresh number of the session of `bound`.
    pub fn request(&self, bound: &Bound, context: Context) -> Request {
        let mut request = bound.session.request(self.operation, self.code, self.body.clone());
        if self.has_context {
            request.incarnation = context.incarnation;
            request.metadata_op = context.metadata_op;
        }
        if self.operation == REGISTER {
            (request.session, request.number) = (0, 0);
        }
        request
    }
}

/// Creates stream and topic [`TOPIC`] with two partitions and one message, and returns the context of partition 0.
pub fn prepare(bound: &mut Bound) -> Context {
    create_topic(bound, TOPIC, 2);
    let (incarnation, metadata_op) = bound.route(TOPIC, 0);
    let context = Context { incarnation, metadata_op };
    let mut send = bound.session.request(160, 0, send_body(TOPIC, 0, b"payload"));
    send.incarnation = incarnation;
    let answer = bound.ask_with(&send);
    assert!(answer.is_success(), "send: {answer:?}");
    context
}

pub fn create_topic(bound: &mut Bound, name: &str, partitions: u32) {
    bound.must(128, 0, string8(name));
    bound.must(132, 0, [&named(name)[..], &partitions.to_le_bytes(), &string8(name)].concat());
}

/// The body of a send of one message to a partition of stream and topic `name`.
pub fn send_body(name: &str, partition: u32, payload: &[u8]) -> Vec<u8> {
    let metadata =
        [&named(name)[..], &named(name), &[2, 4], &partition.to_le_bytes(), &1u32.to_le_bytes()].concat();
    let mut batch = BatchBuilder::new();
    let header = [2, 1, 0, 0, 0, b'k', 2, 1, 0, 0, 0, b'v'];
    batch.push(1, Micros(1_700_000_000_000_000), payload, &header).expect("a valid message");
    let batch = batch.finish().expect("a valid batch");
    [&(metadata.len() as u32).to_le_bytes()[..], &metadata, &batch].concat()
}

/// The body of a poll of up to `count` messages of partition 0 of stream and topic `name` from its first message.
pub fn poll_body(name: &str, offset: u64, count: u32) -> Vec<u8> {
    [
        &consumer()[..],
        &named(name),
        &named(name),
        &[1, 0, 0, 0, 0],
        &[1],
        &offset.to_le_bytes(),
        &count.to_le_bytes(),
        &[0],
    ]
    .concat()
}

/// [`poll_body`] with the fields of a poll that may wait, and does not.
pub fn deferred_poll_body(name: &str, offset: u64, count: u32, max_bytes: u32) -> Vec<u8> {
    [
        &poll_body(name, offset, count)[..],
        &0u64.to_le_bytes(),
        &1u32.to_le_bytes(),
        &max_bytes.to_le_bytes(),
        &10_000_000u64.to_le_bytes(),
    ]
    .concat()
}

fn consumer() -> Vec<u8> {
    [&[1], &numbered(1)[..]].concat()
}

pub fn samples(bound: &Bound, context: Context) -> Vec<Sample> {
    [session_samples(bound), resource_samples(), message_samples(context), other_samples()].concat()
}

fn read(name: &'static str, code: u32, body: Vec<u8>, expectation: Expectation) -> Sample {
    Sample { name, operation: NON_REPLICATED, code, body, has_context: false, expectation }
}

fn change(name: &'static str, operation: u8, body: Vec<u8>, expectation: Expectation) -> Sample {
    Sample { name, operation, code: 0, body, has_context: false, expectation }
}

fn session_samples(bound: &Bound) -> Vec<Sample> {
    use Expectation::{AnyReply, Success};
    let bind = [
        &version_prefix()[..],
        &bound.session.client.to_le_bytes(),
        &bound.session.epoch.to_le_bytes(),
        &0u64.to_le_bytes(),
        &[7; 32],
    ];
    let token = [&version_prefix()[..], &[7; 32], &string8("token"), &[0; 4]];
    vec![
        read("ping", 1, Vec::new(), Success),
        change("register", REGISTER, register_body(), AnyReply),
        change("register with token", REGISTER, token.concat(), AnyReply),
        read("bind session", 15, bind.concat(), Success),
        read("stats", 10, Vec::new(), Success),
        read("snapshot", 11, vec![1, 1, 3], AnyReply),
        read("cluster metadata", 12, Vec::new(), Success),
        read("describe options", 13, vec![1], Success),
        read("me", 20, Vec::new(), Success),
        read("client", 21, 77u32.to_le_bytes().into(), AnyReply),
        read("clients", 22, Vec::new(), AnyReply),
    ]
}

fn resource_samples() -> Vec<Sample> {
    use Expectation::{AnyReply, Success};
    let topic = [named(TOPIC), named(TOPIC)].concat();
    let missing = [named(TOPIC), named(MISSING)].concat();
    let one = 1u32.to_le_bytes();
    let rename = [&[2], &named(MISSING)[..], &[0], &option("name", "renamed")];
    vec![
        read("get stream", 200, named(TOPIC), Success),
        read("get streams", 201, Vec::new(), Success),
        change("create stream", 128, string8(TOPIC), AnyReply),
        change("delete stream", 130, named(MISSING), AnyReply),
        read("get topic", 300, topic.clone(), Success),
        read("get topics", 301, named(TOPIC), Success),
        change("create topic", 132, [&named(TOPIC)[..], &one, &string8(TOPIC)].concat(), AnyReply),
        change("delete topic", 134, missing.clone(), AnyReply),
        change("create partitions", 136, [&topic[..], &one].concat(), Success),
        change("delete partitions", 137, [&missing[..], &one].concat(), AnyReply),
        change("delete segments", 138, [&missing[..], &one, &one].concat(), AnyReply),
        change("update resource", 150, rename.concat(), AnyReply),
    ]
}

/// One entry of an options block with a string value.
fn option(key: &str, value: &str) -> Vec<u8> {
    let part = |text: &str| [&[2], &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    [part(key), part(value)].concat()
}

fn message_samples(context: Context) -> Vec<Sample> {
    use Expectation::{AnyReply, Nothing, Success};
    let with_context = |sample: Sample| Sample { has_context: true, ..sample };
    let place = [&consumer()[..], &named(TOPIC), &named(TOPIC), &[1, 0, 0, 0, 0]].concat();
    let fetch = [
        &consumer()[..],
        &named(TOPIC),
        &named(TOPIC),
        &0u64.to_le_bytes(),
        &10_000_000u64.to_le_bytes(),
        &1u32.to_le_bytes(),
        &10u32.to_le_bytes(),
        &65_536u32.to_le_bytes(),
        &[0],
        &1u32.to_le_bytes(),
        &0u32.to_le_bytes(),
        &[1],
        &0u64.to_le_bytes(),
        &65_536u32.to_le_bytes(),
        &context.incarnation.to_le_bytes(),
        &0u64.to_le_bytes(),
    ];
    vec![
        with_context(change("send messages", 160, send_body(TOPIC, 0, b"payload"), Success)),
        with_context(read("poll messages", 100, poll_body(TOPIC, 0, 10), Success)),
        with_context(read("deferred poll", 106, deferred_poll_body(TOPIC, 0, 10, 65_536), Success)),
        read("route", 105, [named(TOPIC), named(TOPIC), vec![0; 4]].concat(), Success),
        read("cancel", 108, Vec::new(), Nothing),
        read("fetch", 109, fetch.concat(), AnyReply),
        with_context(change("store offset", 161, [&place[..], &[0; 8], &[1]].concat(), Success)),
        with_context(read("get offset", 120, place.clone(), Success)),
        with_context(change("delete offset", 162, [&place[..], &[1]].concat(), AnyReply)),
    ]
}

fn other_samples() -> Vec<Sample> {
    use Expectation::AnyReply;
    let group = [named(TOPIC), named(TOPIC), named("group")].concat();
    let changes = [&[0][..], &[0; 44], &[0, 0], &100u32.to_le_bytes(), &[0, 0, 0]].concat();
    let user = [string8("somebody"), string8("password"), vec![1, 0]].concat();
    vec![
        read("metadata changes", 17, changes, AnyReply),
        read("get user", 31, named("iggy"), AnyReply),
        read("get users", 32, Vec::new(), AnyReply),
        change("create user", 141, user, AnyReply),
        change("delete user", 143, named(MISSING), AnyReply),
        change("update permissions", 145, [&named(MISSING)[..], &[0]].concat(), AnyReply),
        change(
            "change password",
            144,
            [named(MISSING), string8("a-b-c"), string8("d-e-f")].concat(),
            AnyReply,
        ),
        read("get tokens", 41, Vec::new(), AnyReply),
        change("create token", 146, [&string8("tok")[..], &[0; 8]].concat(), AnyReply),
        change("delete token", 147, string8(MISSING), AnyReply),
        read("get group", 600, group.clone(), AnyReply),
        read("get groups", 601, [named(TOPIC), named(TOPIC)].concat(), AnyReply),
        change("create group", 139, [named(TOPIC), named(TOPIC), string8("group")].concat(), AnyReply),
        change("join group", 148, group.clone(), AnyReply),
        read("sync group", 606, group.clone(), AnyReply),
        change("leave group", 149, group.clone(), AnyReply),
        change("delete group", 140, group, AnyReply),
        read("retired code", 102, vec![0; 16], AnyReply),
        read("unknown code", 4_711, vec![0; 16], AnyReply),
        change("retired operation", 129, named(MISSING), AnyReply),
        change("internal operation", 64, named(MISSING), AnyReply),
        change("undeclared operation", 200, named(MISSING), AnyReply),
    ]
}
