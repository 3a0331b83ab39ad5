//! Decodes bytes and encodes what came out. A canonical encoding comes back as it was; anything else must come back as
//! an error or as a value, never as a panic.

use bytes::{BufMut, BytesMut};
use laneway_wire::batch::{self, Batch};
use laneway_wire::header::{HEADER_BYTES, HeaderBytes};
use laneway_wire::options::{self, Options};
use laneway_wire::permissions::Permissions;
use laneway_wire::reply::{self, Record};
use laneway_wire::request::{self, Login, Request};
use laneway_wire::{
    Code, DecodeError, Eviction, FrameDecoder, Offset, Operation, PartitionId, ProtocolVersion, Reader,
    ReplyHeader, RequestHeader, ServerFrame, Status,
};

/// Bytes again, or why the input is not valid.
pub type Recoded = Result<Vec<u8>, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn body_of(request: Result<impl Request, DecodeError>) -> Recoded {
    let mut out = BytesMut::new();
    request.map_err(text)?.encode(&mut out).expect("what was parsed can be encoded");
    Ok(out.to_vec())
}

/// The body of a command. Replicated and other commands alike; a login is told apart by its body.
pub fn request_body(code: Code, body: &[u8]) -> Recoded {
    use request as r;
    match code {
        Code::Ping => body_of(r::Ping::parse(body)),
        Code::GetStats => body_of(r::GetStats::parse(body)),
        Code::GetSnapshot => body_of(r::GetSnapshot::parse(body)),
        Code::GetClusterMetadata => body_of(r::GetClusterMetadata::parse(body)),
        Code::DescribeOptions => body_of(r::DescribeOptions::parse(body)),
        Code::BindSession => body_of(r::BindSession::parse(body)),
        Code::UpdateResource => body_of(r::UpdateResource::parse(body)),
        Code::GetMetadataChanges => body_of(r::GetMetadataChanges::parse(body)),
        Code::GetMe => body_of(r::GetMe::parse(body)),
        Code::GetClient => body_of(r::GetClient::parse(body)),
        Code::GetClients => body_of(r::GetClients::parse(body)),
        Code::GetUser => body_of(r::GetUser::parse(body)),
        Code::GetUsers => body_of(r::GetUsers::parse(body)),
        Code::CreateUser => body_of(r::CreateUser::parse(body)),
        Code::DeleteUser => body_of(r::DeleteUser::parse(body)),
        Code::UpdatePermissions => body_of(r::UpdatePermissions::parse(body)),
        Code::ChangePassword => body_of(r::ChangePassword::parse(body)),
        Code::Logout => body_of(r::Logout::parse(body)),
        Code::LoginRegister | Code::LoginRegisterWithPat => match Login::parse(body).map_err(text)? {
            Login::Password(login) => body_of(Ok(login)),
            Login::Token(login) => body_of(Ok(login)),
        },
        Code::LoginUser | Code::LoginWithPersonalAccessToken => Err("never served".to_owned()),
        Code::GetPersonalAccessTokens => body_of(r::GetPersonalAccessTokens::parse(body)),
        Code::CreatePersonalAccessToken => body_of(r::CreatePersonalAccessToken::parse(body)),
        Code::DeletePersonalAccessToken => body_of(r::DeletePersonalAccessToken::parse(body)),
        Code::PollMessages => body_of(r::PollMessages::parse(body)),
        Code::SendMessages => {
            let send = r::SendMessages::parse(body).map_err(text)?;
            batch::verify_producer_batch(&body[send.batch_at..], send.messages_count).map_err(text)?;
            let mut out = body_of(Ok(send))?;
            out.extend_from_slice(&body[send.batch_at..]);
            Ok(out)
        }
        Code::GetPartitionRoute => body_of(r::GetPartitionRoute::parse(body)),
        Code::PollMessagesDeferred => body_of(r::DeferredPoll::parse(body)),
        Code::CancelDeferredRequest => body_of(r::CancelDeferredRequest::parse(body)),
        Code::FetchMessages => body_of(r::FetchMessages::parse(body)),
        Code::GetConsumerOffset => body_of(r::GetConsumerOffset::parse(body)),
        Code::StoreConsumerOffset => body_of(r::StoreConsumerOffset::parse(body)),
        Code::DeleteConsumerOffset => body_of(r::DeleteConsumerOffset::parse(body)),
        Code::GetStream => body_of(r::GetStream::parse(body)),
        Code::GetStreams => body_of(r::GetStreams::parse(body)),
        Code::CreateStream => body_of(r::CreateStream::parse(body)),
        Code::DeleteStream => body_of(r::DeleteStream::parse(body)),
        Code::GetTopic => body_of(r::GetTopic::parse(body)),
        Code::GetTopics => body_of(r::GetTopics::parse(body)),
        Code::CreateTopic => body_of(r::CreateTopic::parse(body)),
        Code::DeleteTopic => body_of(r::DeleteTopic::parse(body)),
        Code::CreatePartitions => body_of(r::CreatePartitions::parse(body)),
        Code::DeletePartitions => body_of(r::DeletePartitions::parse(body)),
        Code::DeleteSegments => body_of(r::DeleteSegments::parse(body)),
        Code::GetConsumerGroup => body_of(r::GetConsumerGroup::parse(body)),
        Code::GetConsumerGroups => body_of(r::GetConsumerGroups::parse(body)),
        Code::CreateConsumerGroup => body_of(r::CreateConsumerGroup::parse(body)),
        Code::DeleteConsumerGroup => body_of(r::DeleteConsumerGroup::parse(body)),
        Code::JoinConsumerGroup => body_of(r::JoinConsumerGroup::parse(body)),
        Code::LeaveConsumerGroup => body_of(r::LeaveConsumerGroup::parse(body)),
        Code::SyncConsumerGroup => body_of(r::SyncConsumerGroup::parse(body)),
    }
}

/// The command that a validated header asks for.
pub fn code_of(header: &RequestHeader, operation: Operation) -> Option<Code> {
    match operation {
        Operation::NonReplicated => Code::from_number(header.code),
        Operation::Register => Some(Code::LoginRegister),
        other => other.code(),
    }
}

/// A whole request frame.
pub fn request_frame(bytes: &[u8]) -> Recoded {
    let mut decoder = FrameDecoder::new();
    decoder.buffer().extend_from_slice(bytes);
    let frame = decoder.poll_frame().map_err(text)?.ok_or("an incomplete frame")?;
    if decoder.pending_bytes() != 0 {
        return Err("bytes behind the frame".to_owned());
    }
    let operation = frame.header.validate().map_err(text)?;
    let code = code_of(&frame.header, operation).ok_or("an unknown command")?;
    let body = request_body(code, &frame.body)?;
    let mut out = BytesMut::zeroed(HEADER_BYTES);
    out.put_slice(&body);
    request::finish_frame(&frame.header, code, &mut out).expect("it came in a frame");
    Ok(out.to_vec())
}

fn put(record: impl FnOnce(&mut BytesMut)) -> Recoded {
    let mut out = BytesMut::new();
    record(&mut out);
    Ok(out.to_vec())
}

fn one<'a, T: Record<'a>>(body: &'a [u8]) -> Recoded {
    let record = T::read(&mut Reader::new(body)).map_err(text)?;
    put(|out| record.put(out))
}

fn optional<'a, T: Record<'a>>(body: &'a [u8]) -> Recoded {
    let record: Option<T> = reply::read_optional(body).map_err(text)?;
    put(|out| record.iter().for_each(|record| record.put(out)))
}

fn list<'a, T: Record<'a>>(body: &'a [u8]) -> Recoded {
    let records: Vec<T> = reply::read_list(body).map_err(text)?;
    put(|out| records.iter().for_each(|record| record.put(out)))
}

fn empty(body: &[u8]) -> Recoded {
    Reader::new(body).finish().map_err(text)?;
    Ok(Vec::new())
}

fn topic(body: &[u8], version: ProtocolVersion) -> Recoded {
    let topic = reply::TopicDetails::parse_optional(body, version).map_err(text)?;
    put(|out| topic.iter().for_each(|topic| topic.put(out, version)))
}

/// The payload of a reply to a command.
pub fn reply_payload(code: Code, version: ProtocolVersion, body: &[u8]) -> Recoded {
    match code {
        Code::GetStats => one::<reply::Stats<'_>>(body),
        Code::GetSnapshot => Ok(body.to_vec()),
        Code::GetClusterMetadata => one::<reply::ClusterMetadata<'_>>(body),
        Code::DescribeOptions => {
            let descriptors = reply::parse_option_descriptors(body).map_err(text)?;
            put(|out| reply::put_option_descriptors(out, &descriptors))
        }
        Code::LoginRegister | Code::LoginRegisterWithPat | Code::BindSession => {
            one::<reply::Registered<'_>>(body)
        }
        Code::GetMetadataChanges => {
            let page = reply::ChangesPage::parse(body).map_err(text)?;
            put(|out| page.put(out))
        }
        Code::GetMe | Code::GetClient => optional::<reply::ClientDetails<'_>>(body),
        Code::GetClients => list::<reply::ClientHeader<'_>>(body),
        Code::GetUser | Code::CreateUser => optional::<reply::UserDetails<'_>>(body),
        Code::GetUsers => list::<reply::UserHeader<'_>>(body),
        Code::GetPersonalAccessTokens => list::<reply::TokenRecord<'_>>(body),
        Code::CreatePersonalAccessToken => {
            let token = reply::parse_token(body).map_err(text)?;
            put(|out| reply::put_token(out, token))
        }
        Code::PollMessages | Code::PollMessagesDeferred => {
            let poll = reply::PollReply::parse(body).map_err(text)?;
            put(|out| {
                poll.head.put(out);
                out.put_slice(poll.records);
            })
        }
        Code::SendMessages => {
            let confirmations = reply::parse_confirmations(body).map_err(text)?;
            put(|out| reply::put_confirmations(out, &confirmations))
        }
        Code::GetPartitionRoute => {
            let route = reply::PartitionRoute::parse(body).map_err(text)?;
            put(|out| route.put(out))
        }
        Code::FetchMessages => {
            let fetch = reply::FetchReply::parse(body).map_err(text)?;
            let table: Vec<_> = fetch.sections.iter().map(|(section, _)| *section).collect();
            put(|out| {
                reply::put_fetch_table(out, &table);
                fetch.sections.iter().for_each(|(_, records)| out.put_slice(records));
            })
        }
        Code::GetConsumerOffset => optional::<reply::ConsumerOffset>(body),
        Code::GetStream | Code::CreateStream => optional::<reply::StreamDetails<'_>>(body),
        Code::GetStreams => list::<reply::StreamHeader<'_>>(body),
        Code::GetTopic | Code::CreateTopic => topic(body, version),
        Code::GetTopics => {
            let topics = reply::parse_topics(body).map_err(text)?;
            put(|out| {
                reply::put_topics_count(out, topics.len());
                topics.iter().for_each(|topic| topic.put(out));
            })
        }
        Code::GetConsumerGroup | Code::CreateConsumerGroup => optional::<reply::GroupDetails<'_>>(body),
        Code::GetConsumerGroups => list::<reply::GroupHeader<'_>>(body),
        Code::SyncConsumerGroup => optional::<reply::GroupSync>(body),
        _ => empty(body),
    }
}

/// A whole reply frame to a command.
pub fn reply_frame(code: Code, version: ProtocolVersion, bytes: &[u8]) -> Recoded {
    let mut decoder = FrameDecoder::new();
    decoder.buffer().extend_from_slice(bytes);
    let frame = decoder.poll_server_frame().map_err(text)?.ok_or("an incomplete frame")?;
    if decoder.pending_bytes() != 0 {
        return Err("bytes behind the frame".to_owned());
    }
    let ServerFrame::Reply { header, body } = frame else {
        return Err("an eviction".to_owned());
    };
    let operation = header.operation().ok_or("an undeclared operation")?;
    let body = match header.status() {
        Status::Ok => reply_body(code, operation, version, &body)?,
        _ => empty(&body)?,
    };
    Ok(reply::encode_frame(&header, |out| out.put_slice(&body)).to_vec())
}

fn reply_body(code: Code, operation: Operation, version: ProtocolVersion, body: &[u8]) -> Recoded {
    if !operation.is_result_framed() {
        return reply_payload(code, version, body);
    }
    let (status, payload) = reply::split_result(body).map_err(text)?;
    if !status.is_ok() {
        return Ok(reply::rejection(status).to_vec());
    }
    Ok([&reply::SUCCESS[..], &reply_payload(code, version, payload)?].concat())
}

/// An eviction frame.
pub fn eviction(bytes: &[u8]) -> Recoded {
    let header: &HeaderBytes = bytes.try_into().map_err(|_| "not one header")?;
    Ok(Eviction::parse(header).map_err(text)?.encode().to_vec())
}

/// A record, from header and frames again.
pub fn record(bytes: &[u8]) -> Recoded {
    let batch = Batch::parse_exact(bytes).map_err(text)?;
    let mut out = batch.header.encode().to_vec();
    for message in batch.messages() {
        out.extend_from_slice(message.map_err(text)?.bytes);
    }
    Ok(out)
}

/// An options block, from its entries again, in the order of a block that is canonical.
pub fn options_block(bytes: &[u8]) -> Recoded {
    let map = Options::parse(bytes).map_err(text)?.to_map();
    Ok(map.encode().expect("what was parsed fits").to_vec())
}

/// The user headers of a message.
pub fn user_headers(bytes: &[u8]) -> Recoded {
    let mut out = BytesMut::new();
    for entry in options::user_headers(bytes) {
        let (key, value) = entry.map_err(text)?;
        options::put_user_header(&mut out, key, value).map_err(text)?;
    }
    Ok(out.to_vec())
}

/// A permissions block.
pub fn permissions(bytes: &[u8]) -> Recoded {
    let permissions = Permissions::parse(bytes).map_err(text)?;
    put(|out| permissions.put(out))
}

/// A partition record of 0.12.2.
pub fn partition_record(bytes: &[u8]) -> Recoded {
    let version = ProtocolVersion::V0_12_2;
    let record = reply::PartitionRecord::read(&mut Reader::new(bytes), version).map_err(text)?;
    put(|out| record.put(out, version))
}

/// Everything that takes bytes, over the same bytes. Panics are the only failure here; what a decoder makes of its own
/// output must be that output again.
pub fn everything(bytes: &[u8]) {
    let stable = |recode: &dyn Fn(&[u8]) -> Recoded| {
        if let Ok(once) = recode(bytes) {
            assert_eq!(recode(&once).as_ref(), Ok(&once), "an encoding is canonical");
        }
    };
    for code in Code::ALL {
        stable(&|bytes| request_body(*code, bytes));
        for version in [ProtocolVersion::V0_12_1, ProtocolVersion::V0_12_2] {
            stable(&|bytes| reply_payload(*code, version, bytes));
        }
    }
    for recode in
        [request_frame, eviction, record, options_block, user_headers, permissions, partition_record]
    {
        stable(&recode);
    }
    for operation in [Operation::Register, Operation::CreateTopic, Operation::SendMessages] {
        stable(&|bytes| reply_body(Code::CreateTopic, operation, ProtocolVersion::V0_12_2, bytes));
    }
    stable(&|bytes| reply_frame(Code::GetTopic, ProtocolVersion::V0_12_2, bytes));
    if let Some(header) = bytes.first_chunk() {
        assert_eq!(
            RequestHeader::parse(&RequestHeader::parse(header).encode()),
            RequestHeader::parse(header)
        );
        assert_eq!(ReplyHeader::parse(&ReplyHeader::parse(header).encode()), ReplyHeader::parse(header));
    }
    batches(bytes);
}

/// The batch functions over bytes that may be anything.
pub fn batches(bytes: &[u8]) {
    let count = bytes.get(48..52).map_or(1, |count| u32::from_le_bytes(count.try_into().expect("four")));
    let verified = batch::verify_producer_batch(bytes, count);
    let mut stamped = bytes.to_vec();
    let section = batch::stamp(&mut stamped, PartitionId(1), Offset(10), laneway_wire::Micros(3));
    if let Ok(summary) = verified {
        assert_eq!(section, Ok(summary.producer));
        let stored = batch::verify_stored(&stamped).expect("a verified batch is stored as a valid one");
        assert_eq!(stored.header.message_count, summary.message_count);
    }
    for first in [0, 1, 11, u64::MAX] {
        for (count, limit) in [(u32::MAX, usize::MAX), (1, usize::MAX), (3, 700), (0, 0)] {
            let Some(slice) = batch::slice(bytes, Offset(first), count, limit) else { continue };
            assert!(slice.bytes() <= limit && slice.count <= count);
            let record = [&slice.header[..], &bytes[slice.range]].concat();
            let served = Batch::parse_exact(&record).expect("a slice is a record");
            assert_eq!(u64::from(served.header.message_count), u64::from(slice.count));
        }
    }
    assert!(batch::records(bytes).count() <= bytes.len() / 256 + 1);
}

/// A byte stream in pieces, through the frame decoder of both sides.
pub fn stream(bytes: &[u8], mut piece: impl FnMut() -> usize) {
    let (mut server, mut client) = (FrameDecoder::with_limit(1 << 20), FrameDecoder::with_limit(1 << 20));
    let (mut requests, mut replies) = (true, true);
    let mut left = bytes;
    while !left.is_empty() && (requests || replies) {
        let (received, rest) = left.split_at(piece().clamp(1, left.len()));
        left = rest;
        server.buffer().extend_from_slice(received);
        client.buffer().extend_from_slice(received);
        while requests {
            match server.poll_frame() {
                Ok(Some(frame)) => assert_eq!(frame.bytes, HEADER_BYTES + frame.body.len()),
                Ok(None) => break,
                Err(_) => requests = false,
            }
        }
        while replies {
            match client.poll_server_frame() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => replies = false,
            }
        }
    }
}
