//! What the records and items of the metadata change log say. Source: wire protocol, appendix B.

use bytes::{BufMut, BytesMut};

use super::count32;
use crate::field::Field;
use crate::ids::{ClientId, Micros, Op, PartitionId, SessionEpoch, StreamId, TopicId, UserId};
use crate::options::Block;
use crate::permissions::Permissions;
use crate::primitive::{DecodeError, EncodeError, Reader};
use crate::request::{ChangeGroup, UserStatus};

/// One life of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamLife {
    /// Its number, which may be given out again.
    pub stream: StreamId,
    /// The op that created it.
    pub created_op: Op,
}

/// One life of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicLife {
    /// Its stream.
    pub stream: StreamLife,
    /// Its number in the stream.
    pub topic: TopicId,
    /// The op that created it.
    pub created_op: Op,
}

/// One life of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserLife {
    /// Its number.
    pub user: UserId,
    /// When it was created.
    pub created_at: Micros,
}

/// Options of a resource. A node that cannot read some that matter says so instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChangeOptions<'a> {
    /// They can be read.
    Readable {
        /// What a client set.
        explicit: Block<'a>,
        /// What the broker filled in.
        derived: Block<'a>,
    },
    /// They cannot.
    Unreadable,
}

/// Permissions in a record: a presence byte and the block, without a length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangePermissions(pub Option<Permissions>);

/// Partitions, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangePartitions(pub Vec<PartitionId>);

/// Something that may be absent: a presence byte, strictly 0 or 1, and the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maybe<T>(pub Option<T>);

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $byte:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $byte,)*
        }

        impl Field<'_> for $name {
            fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
                match reader.u8(field)? {
                    $($byte => Ok($name::$variant),)*
                    kind => Err(DecodeError::Kind { field, kind: kind.into() }),
                }
            }

            fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
                out.put_u8(*self as u8);
                Ok(())
            }
        }
    )*};
}

reasons! {
    /// Why a member is no longer one.
    MemberLeft {
        /// It left.
        Left = 0,
        /// Its session ended.
        SessionEnded = 1,
    }
    /// Why permissions changed.
    PermissionsChanged {
        /// They were replaced.
        Updated = 0,
        /// What they were about was deleted.
        ResourceDeleted = 1,
    }
    /// Why a token is gone.
    TokenGone {
        /// Its owner deleted it.
        Deleted = 0,
        /// Its time was over.
        Expired = 1,
    }
    /// Why a session ended.
    SessionClosed {
        /// Its client signed out.
        Logout = 0,
        /// Nobody used it for too long.
        Expired = 1,
        /// Its user was deleted or made inactive.
        Revoked = 2,
    }
}

macro_rules! bodies {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident: $group:ident $kind:literal { $($field:ident: $type:ty,)* })*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the fields are named as in the protocol")]
        pub enum $name<'a> {
            $($(#[$variant_doc])* $variant { $($field: $type,)* },)*
        }

        impl<'a> $name<'a> {
            /// Its group and its kind.
            pub fn kind(&self) -> (ChangeGroup, u8) {
                match self {
                    $($name::$variant { .. } => (ChangeGroup::$group, $kind),)*
                }
            }

            /// Reads a body of a group and kind, which must be consumed exactly. None for one that this build does not
            /// know: newer brokers may have others.
            pub fn parse(group: u8, kind: u8, body: &'a [u8]) -> Result<Option<Self>, DecodeError> {
                let mut reader = Reader::new(body);
                $(
                    if (group, kind) == (ChangeGroup::$group as u8, $kind) {
                        let parsed = $name::$variant {
                            $($field: <$type as Field<'a>>::read(&mut reader, stringify!($field))?,)*
                        };
                        reader.finish()?;
                        return Ok(Some(parsed));
                    }
                )*
                let known = [$($kind),*].contains(&kind) && (1..=8).contains(&group);
                if known { Err(DecodeError::Kind { field: "kind", kind: kind.into() }) } else { Ok(None) }
            }

            /// Appends the body.
            ///
            /// # Panics
            /// When a name is empty or longer than 255 bytes: the broker checks names before it stores them.
            pub fn put(&self, out: &mut BytesMut) {
                match self {
                    $($name::$variant { $($field,)* } => {
                        $(<$type as Field<'_>>::put($field, out, stringify!($field))
                            .expect("what the broker stores fits its field");)*
                    })*
                }
            }
        }
    };
}

bodies! {
    /// The body of a record.
    ChangeBody {
        /// A stream was created.
        StreamCreated: Streams 1 { life: StreamLife, created_at: Micros, name: &'a str, options: ChangeOptions<'a>, }
        /// A stream has another name or other options.
        StreamUpdated: Streams 2 { life: StreamLife, created_at: Micros, name: &'a str, options: ChangeOptions<'a>, }
        /// A stream is gone with all it held. `requested_op`: the op that asked for it, when another one finished it.
        StreamDeleted: Streams 3 { life: StreamLife, created_at: Micros, name: &'a str, requested_op: Maybe<Op>, }
        /// A topic was created.
        TopicCreated: Topics 10 {
            life: TopicLife,
            created_at: Micros,
            name: &'a str,
            partitions_count: u32,
            options: ChangeOptions<'a>,
        }
        /// A topic has another name or other options.
        TopicUpdated: Topics 11 {
            life: TopicLife,
            created_at: Micros,
            name: &'a str,
            partitions_count: u32,
            options: ChangeOptions<'a>,
        }
        /// A topic is gone with all it held.
        TopicDeleted: Topics 12 { life: TopicLife, created_at: Micros, name: &'a str, requested_op: Maybe<Op>, }
        /// A topic has more or fewer partitions.
        PartitionsChanged: Partitions 20 {
            life: TopicLife,
            partitions_count: u32,
            removed: ChangePartitions,
            requested_op: Maybe<Op>,
        }
        /// A consumer group was created.
        GroupCreated: Groups 30 { life: TopicLife, group: u32, name: &'a str, groups_count: u32, }
        /// A consumer group is gone.
        GroupDeleted: Groups 31 {
            life: TopicLife,
            group: u32,
            name: &'a str,
            groups_count: u32,
            requested_op: Maybe<Op>,
        }
        /// A member joined a group.
        MemberJoined: Members 40 {
            life: TopicLife,
            group: u32,
            member: u32,
            client: ClientId,
            members_count: u32,
            partitions: ChangePartitions,
        }
        /// A member left a group.
        MemberLeft: Members 41 {
            life: TopicLife,
            group: u32,
            member: u32,
            client: ClientId,
            members_count: u32,
            reason: MemberLeft,
        }
        /// A partition of a group has another owner, or none.
        HandedOver: Members 42 { life: TopicLife, group: u32, partition: PartitionId, member: Maybe<u32>, }
        /// A user was created.
        UserCreated: Users 50 {
            life: UserLife,
            username: &'a str,
            status: UserStatus,
            permissions: ChangePermissions,
            options: ChangeOptions<'a>,
        }
        /// A user has another name or status.
        UserUpdated: Users 51 {
            life: UserLife,
            username: &'a str,
            status: UserStatus,
            permissions: ChangePermissions,
            options: ChangeOptions<'a>,
        }
        /// A user is gone with its tokens.
        UserDeleted: Users 52 { life: UserLife, username: &'a str, }
        /// A user has another password.
        PasswordChanged: Users 53 { life: UserLife, username: &'a str, }
        /// A user may do something else.
        PermissionsUpdated: Users 54 {
            life: UserLife,
            username: &'a str,
            permissions: ChangePermissions,
            reason: PermissionsChanged,
        }
        /// A user has one more token. `expires_at` 0: never.
        TokenCreated: Tokens 60 { life: UserLife, name: &'a str, expires_at: Micros, }
        /// A user has one token less.
        TokenDeleted: Tokens 61 { life: UserLife, name: &'a str, reason: TokenGone, }
        /// A session began.
        SessionRegistered: Sessions 70 { life: UserLife, client: ClientId, session: SessionEpoch, }
        /// A session ended.
        SessionClosed: Sessions 71 {
            life: UserLife,
            client: ClientId,
            session: SessionEpoch,
            reason: SessionClosed,
        }
    }
}

bodies! {
    /// The body of an item of the current state. Its kind is its group.
    StateBody {
        /// A stream.
        Stream: Streams 1 { life: StreamLife, created_at: Micros, name: &'a str, options: ChangeOptions<'a>, }
        /// A topic.
        Topic: Topics 2 { life: TopicLife, created_at: Micros, name: &'a str, options: ChangeOptions<'a>, }
        /// The partitions of a topic.
        Partitions: Partitions 3 { life: TopicLife, partitions_count: u32, }
        /// A consumer group.
        Group: Groups 4 { life: TopicLife, group: u32, name: &'a str, }
        /// A member of a group.
        Member: Members 5 {
            life: TopicLife,
            group: u32,
            member: u32,
            client: ClientId,
            partitions: ChangePartitions,
        }
        /// A user.
        User: Users 6 {
            life: UserLife,
            username: &'a str,
            status: UserStatus,
            permissions: ChangePermissions,
            options: ChangeOptions<'a>,
        }
        /// A token.
        Token: Tokens 7 { life: UserLife, name: &'a str, expires_at: Micros, }
        /// A session.
        Session: Sessions 8 { life: UserLife, client: ClientId, session: SessionEpoch, }
    }
}

impl Field<'_> for StreamLife {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        Ok(StreamLife { stream: StreamId::read(reader, field)?, created_op: Op::read(reader, field)? })
    }

    fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        self.stream.put(out, field)?;
        self.created_op.put(out, field)
    }
}

impl Field<'_> for TopicLife {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        Ok(TopicLife {
            stream: StreamLife::read(reader, field)?,
            topic: TopicId::read(reader, field)?,
            created_op: Op::read(reader, field)?,
        })
    }

    fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        self.stream.put(out, field)?;
        self.topic.put(out, field)?;
        self.created_op.put(out, field)
    }
}

impl Field<'_> for UserLife {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        Ok(UserLife { user: UserId::read(reader, field)?, created_at: Micros::read(reader, field)? })
    }

    fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        self.user.put(out, field)?;
        self.created_at.put(out, field)
    }
}

impl<'a> Field<'a> for ChangeOptions<'a> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        if reader.flag(field)? {
            return Ok(ChangeOptions::Unreadable);
        }
        Ok(ChangeOptions::Readable {
            explicit: Block::read(reader, field)?,
            derived: Block::read(reader, field)?,
        })
    }

    fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        match self {
            ChangeOptions::Readable { explicit, derived } => {
                out.put_u8(0);
                explicit.put(out, field)?;
                derived.put(out, field)
            }
            ChangeOptions::Unreadable => {
                out.put_u8(1);
                Ok(())
            }
        }
    }
}

impl Field<'_> for ChangePermissions {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        let present = reader.flag(field)?;
        Ok(ChangePermissions(if present { Some(Permissions::read(reader)?) } else { None }))
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u8(self.0.is_some().into());
        if let Some(permissions) = &self.0 {
            permissions.put(out);
        }
        Ok(())
    }
}

impl Field<'_> for ChangePartitions {
    fn read(reader: &mut Reader<'_>, field: &'static str) -> Result<Self, DecodeError> {
        let mut partitions = Vec::new();
        for _ in 0..reader.u32(field)? {
            partitions.push(PartitionId(reader.u32(field)?));
        }
        if !partitions.is_sorted_by(|left, right| left < right) {
            return Err(DecodeError::Range { field });
        }
        Ok(ChangePartitions(partitions))
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u32_le(count32(self.0.len()));
        self.0.iter().for_each(|partition| out.put_u32_le(partition.0));
        Ok(())
    }
}

impl<'a, T: Field<'a>> Field<'a> for Maybe<T> {
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let present = reader.flag(field)?;
        Ok(Maybe(if present { Some(T::read(reader, field)?) } else { None }))
    }

    fn put(&self, out: &mut BytesMut, field: &'static str) -> Result<(), EncodeError> {
        out.put_u8(self.0.is_some().into());
        self.0.as_ref().map_or(Ok(()), |value| value.put(out, field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            hex.bytes().map(|digit| (digit as char).to_digit(16).expect("hex") as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// Bodies that clients of the protocol publish as vectors: group, kind, bytes.
    const VECTORS: [(u8, u8, &str); 13] = [
        (1, 2, "03000000191000000000000040d2bf01094106000c74656c656d657472792d763201"),
        (1, 3, "03000000191000000000000040d2bf01094106000974656c656d65747279012c10000000000000"),
        (3, 20, "030000001910000000000000000000001d100000000000000a0000000000000000"),
        (4, 30, "030000001910000000000000000000001d1000000000000000000000077265616465727301000000"),
        (
            5,
            40,
            "030000001910000000000000000000001d100000000000000000000001000000100f0e0d0c0b0a0908070605040302010200000000000000",
        ),
        (
            5,
            41,
            "030000001910000000000000000000001d100000000000000000000001000000100f0e0d0c0b0a0908070605040302010100000001",
        ),
        (5, 42, "030000001910000000000000000000001d1000000000000000000000020000000101000000"),
        (
            6,
            50,
            "0700000000b832c8fb4006001074656c656d657472792d77726974657201010000000000010000000001030000000001000000000100000000000001000000000000000000000000",
        ),
        (6, 52, "0700000000b832c8fb4006001074656c656d657472792d777269746572"),
        (6, 54, "0700000000b832c8fb4006001074656c656d657472792d77726974657201000000000000000000000001"),
        (7, 60, "0700000000b832c8fb4006000863692d746f6b656e00a0a91013410600"),
        (8, 70, "0700000000b832c8fb400600100f0e0d0c0b0a0908070605040302019411000000000000"),
        (8, 71, "0700000000b832c8fb400600100f0e0d0c0b0a090807060504030201941100000000000002"),
    ];

    #[test]
    fn published_bodies_are_read_and_written_byte_for_byte() {
        for (group, kind, hex) in VECTORS {
            let body = bytes(hex);
            let parsed = ChangeBody::parse(group, kind, &body).expect("a body").expect("a known kind");
            assert_eq!(parsed.kind(), (ChangeGroup::from_byte(group).expect("a group"), kind));
            let mut out = BytesMut::new();
            parsed.put(&mut out);
            assert_eq!(out, body, "{group}/{kind}");
            for cut in 0..body.len() {
                assert!(ChangeBody::parse(group, kind, &body[..cut]).is_err(), "{group}/{kind} cut at {cut}");
            }
            assert!(ChangeBody::parse(group, kind, &[&body[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn damaged_bodies_are_refused_and_unknown_kinds_are_not() {
        let gone = bytes(VECTORS[1].2);
        let mut two = gone.clone();
        let at = two.len() - 9;
        two[at] = 2;
        assert!(ChangeBody::parse(1, 3, &two).is_err(), "a presence byte of 2");
        assert!(ChangeBody::parse(2, 1, &gone).is_err(), "a kind of another group");
        assert_eq!(ChangeBody::parse(1, 9, b"x"), Ok(None));
        assert_eq!(ChangeBody::parse(200, 1, b"x"), Ok(None));
        let mut out = BytesMut::new();
        let life = TopicLife {
            stream: StreamLife { stream: StreamId(3), created_op: Op(4) },
            topic: TopicId(5),
            created_op: Op(6),
        };
        let removed = ChangePartitions(vec![PartitionId(5), PartitionId(4)]);
        let changed =
            ChangeBody::PartitionsChanged { life, partitions_count: 2, removed, requested_op: Maybe(None) };
        changed.put(&mut out);
        assert!(ChangeBody::parse(3, 20, &out).is_err(), "removed partitions ascend");
    }

    #[test]
    fn items_of_the_state_have_no_kind_of_their_own() {
        let token = StateBody::Token {
            life: UserLife { user: UserId(7), created_at: Micros(9) },
            name: "ci",
            expires_at: Micros(0),
        };
        let mut out = BytesMut::new();
        token.put(&mut out);
        assert_eq!(token.kind(), (ChangeGroup::Tokens, 7));
        assert_eq!(StateBody::parse(7, 7, &out), Ok(Some(token)));
    }
}
