//! The same ops give the same state, whether they are applied in one run or across snapshots.

use laneway_encryption::{KeyOrigin, KeyRing, RingConfig, StreamKey, WrapSet};
use laneway_metadata::options::set::{OptionRecord, OptionSet};
use laneway_metadata::options::{Key, OptionDefaults, OptionValue, Scope};
use laneway_metadata::permissions::{PermissionsRecord, StreamFlags, StreamPermissions, TopicFlags};
use laneway_metadata::{
    Command, CreateRoot, EndReason, EndSessions, ExpireTokens, Metadata, Mutation, NewToken, NewUser,
    Outcome, PasswordChange, PasswordHash, Permissions, ROOT, ROOT_CREATED_AT, Ref, Register,
    RequestIdentity, Rewrap, SessionId, Settings, SnapshotError, TokenHash, TokenId, UserStatus, Verifier,
    invariants,
};
use laneway_wire::{ClientId, LaneId, Micros, Op, RequestNumber, SessionEpoch, StreamId, TopicId, UserId};
use proptest::prelude::*;

/// Few of everything, so that commands meet: names are taken, numbers are used again, the session table is full.
const CLIENTS: u128 = 5;
const SETTINGS: Settings = Settings { lanes_per_class: 2, sessions_max: 3, changes_max: 16 };

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "0", "1"]).prop_map(str::to_owned)
}

fn reference() -> impl Strategy<Value = Ref> {
    prop_oneof![(0u32..3).prop_map(Ref::Id), name().prop_map(Ref::Name)]
}

fn lanes(min: usize) -> impl Strategy<Value = Vec<LaneId>> {
    prop::collection::vec((0u32..6).prop_map(LaneId), min..4)
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let topic_options = (any::<bool>(), any::<bool>()).prop_map(|(replicated, fixed)| {
        let mut explicit = Vec::new();
        if replicated {
            explicit.push((Key::Durability, OptionValue::text("replicated")));
        }
        if fixed {
            explicit.push((Key::PartitionResizePolicy, OptionValue::text("fixed")));
        }
        explicit
    });
    prop_oneof![
        1 => Just(Mutation::Logout),
        4 => (name(), any::<bool>()).prop_map(|(name, sealed)| create_stream(name, sealed)),
        2 => reference().prop_map(|stream| Mutation::DeleteStream { stream }),
        8 => (reference(), name(), topic_options, lanes(0)).prop_map(|(stream, name, explicit, lanes)| {
            let mut options = Vec::new();
            for (key, entry) in OptionSet::created(Scope::Topic, explicit, &OptionDefaults::default()).iter() {
                options.push(OptionRecord {
                    key: key.to_owned(),
                    value: entry.value.clone(),
                    explicit: entry.explicit,
                });
            }
            Mutation::CreateTopic { stream, name, options, lanes }
        }),
        3 => (reference(), reference()).prop_map(|(stream, topic)| Mutation::DeleteTopic { stream, topic }),
        4 => (reference(), reference(), lanes(1))
            .prop_map(|(stream, topic, lanes)| Mutation::CreatePartitions { stream, topic, lanes }),
        3 => (reference(), reference(), 1u32..4)
            .prop_map(|(stream, topic, count)| Mutation::DeletePartitions { stream, topic, count }),
        2 => (reference(), name()).prop_map(|(stream, name)| Mutation::UpdateStream { stream, name }),
        3 => (reference(), reference(), prop::option::of(name()), any::<bool>()).prop_map(
            |(stream, topic, name, explicit)| {
                let options = vec![laneway_metadata::options::set::OptionRecord {
                    key: Key::MessageExpiry.name().to_owned(),
                    value: OptionValue::u64(5_000_000),
                    explicit,
                }];
                Mutation::UpdateTopic { stream, topic, name, options }
            }
        ),
        8 => user_mutation(),
    ]
}

fn user_mutation() -> impl Strategy<Value = Mutation> {
    let user = || prop_oneof![(0u32..4).prop_map(Ref::Id), username().prop_map(Ref::Name)];
    let hash = || (0u8..3).prop_map(|hash| PasswordHash::new(format!("$argon2id${hash}")));
    let status = || prop::sample::select(vec![UserStatus::Active, UserStatus::Inactive]);
    let grants = || prop::option::of((any::<bool>(), 0u32..2, 0u32..2)).prop_map(grants);
    let new_user = (username(), prop::option::of(hash()), status(), grants()).prop_map(
        |(username, password_hash, status, permissions)| NewUser {
            username,
            password_hash,
            status,
            permissions,
            options: Vec::new(),
        },
    );
    let change = (hash(), hash()).prop_map(|(verified, new)| PasswordChange { verified, new });
    let token = (token_name(), 0u8..6, prop::option::of(0u64..200), 1u32..4).prop_map(
        |(name, hash, lives_us, tokens_max)| NewToken {
            name,
            hash: TokenHash([hash; 32]),
            lives_us,
            tokens_max,
        },
    );
    prop_oneof![
        3 => new_user.prop_map(Mutation::CreateUser),
        1 => user().prop_map(|user| Mutation::DeleteUser { user }),
        1 => (user(), prop::option::of(username()), prop::option::of(status()))
            .prop_map(|(user, username, status)| Mutation::UpdateUser { user, username, status }),
        2 => (user(), grants())
            .prop_map(|(user, permissions)| Mutation::UpdatePermissions { user, permissions }),
        1 => (user(), prop::option::of(change))
            .prop_map(|(user, change)| Mutation::ChangePassword { user, change }),
        3 => token.prop_map(Mutation::CreateToken),
        1 => token_name().prop_map(|name| Mutation::DeleteToken { name }),
    ]
}

fn username() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["root", "ann", "bob"]).prop_map(str::to_owned)
}

fn token_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["tok", "key", "pat"]).prop_map(str::to_owned)
}

fn grants(grant: Option<(bool, u32, u32)>) -> Option<PermissionsRecord> {
    let (everything, stream, topic) = grant?;
    let mut permissions = if everything { Permissions::all() } else { Permissions::default() };
    let topics = [(TopicId(topic), TopicFlags::ALL)].into();
    let grant = StreamPermissions { flags: StreamFlags::READ_STREAM, topics };
    permissions.streams.insert(StreamId(stream), grant);
    Some((&permissions).into())
}

fn create_stream(name: String, sealed: bool) -> Mutation {
    let wrapped = OptionRecord {
        key: Key::EncryptionKeyWrapped.name().to_owned(),
        value: OptionValue { kind: 1, bytes: envelopes(0).to_bytes() },
        explicit: false,
    };
    Mutation::CreateStream { name, options: if sealed { vec![wrapped] } else { Vec::new() } }
}

/// Envelopes of one key, before and during a rotation.
fn envelopes(keys: u8) -> WrapSet {
    let old = "/rvT1xP4V8u1EAhk4xDdqzqM2UOPXyy9XYkl4uRShgE=";
    let new = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
    let (key, previous) = if keys == 0 { (old, vec![]) } else { (new, vec![old]) };
    let config = RingConfig { key: Some(key), previous: &previous, ..RingConfig::default() };
    let ring = KeyRing::new(config).expect("good keys");
    ring.wrap(&StreamKey::new([7; 32]), KeyOrigin::Client, &[[1; 12]; 3]).expect("there is a key")
}

fn client() -> impl Strategy<Value = ClientId> {
    (1..=CLIENTS).prop_map(ClientId)
}

fn command() -> impl Strategy<Value = Command> {
    let token = prop::option::of((0u8..6).prop_map(|hash| TokenHash([hash; 32])));
    let user = prop_oneof![3 => Just(0), 2 => 1u32..4];
    let register = (client(), 0u8..2, user, token).prop_map(|(client, secret, user, token)| {
        Command::Register(Register {
            client,
            user: UserId(user),
            user_created_at: ROOT_CREATED_AT,
            verifier: Verifier([secret; 32]),
            token: token.filter(|_| user != 0),
        })
    });
    let expire = (0u32..4, token_name()).prop_map(|(user, name)| {
        let user = UserId(user);
        Command::ExpireTokens(ExpireTokens {
            tokens: vec![TokenId { user, user_created_at: ROOT_CREATED_AT, name }],
        })
    });
    let end = (client(), 1u64..40).prop_map(|(client, epoch)| {
        let sessions = vec![SessionId { client, epoch: SessionEpoch(epoch) }];
        Command::EndSessions(EndSessions { sessions, reason: EndReason::Expired })
    });
    let request =
        (client(), 0u64..20, 0u128..2, mutation()).prop_map(|(client, request, checksum, mutation)| {
            let identity = RequestIdentity {
                client,
                // The right epoch is filled in when the command is applied; here only its distance from it.
                session: SessionEpoch(0),
                request: RequestNumber(request + 1),
                request_checksum: checksum,
                user: ROOT,
                operation: 128,
            };
            Command::Request(identity, mutation)
        });
    let rewrap = (0u32..3, 0u8..2).prop_map(|(stream, keys)| {
        Command::RewrapStreams(vec![Rewrap {
            stream: StreamId(stream),
            created_op: Op(0),
            envelopes: envelopes(keys).to_bytes(),
        }])
    });
    prop_oneof![3 => register, 1 => end, 1 => expire, 1 => rewrap, 20 => request]
}

fn root() -> Command {
    Command::CreateRoot(CreateRoot {
        username: "root".into(),
        password_hash: PasswordHash::new("$argon2id$"),
        settings: SETTINGS,
    })
}

/// Applies one command and checks what always holds.
fn apply(metadata: &mut Metadata, command: &Command, timestamp: u64) -> Outcome {
    let mut command = command.clone();
    // What a generated command cannot know: the session's epoch, and when a user was created.
    match &mut command {
        Command::Request(identity, _) => {
            if let Some(session) = metadata.sessions().session(identity.client) {
                (identity.session, identity.user) = (session.epoch, session.user);
            }
        }
        Command::Register(register) => {
            if let Some(user) = metadata.users().user(register.user) {
                register.user_created_at = user.created_at;
            }
        }
        Command::ExpireTokens(expire) => {
            for token in &mut expire.tokens {
                if let Some(user) = metadata.users().user(token.user) {
                    token.user_created_at = user.created_at;
                }
            }
        }
        Command::RewrapStreams(rewraps) => {
            for rewrap in rewraps {
                if let Ok(stream) = metadata.stream(rewrap.stream.0) {
                    rewrap.created_op = stream.created_op;
                }
            }
        }
        Command::CreateRoot(_) | Command::EndSessions(_) => {}
    }
    let outcome = metadata.apply(metadata.applied().next(), Micros(timestamp), &command);
    assert_eq!(invariants::check(metadata), Ok(()));
    outcome
}

fn run(metadata: &mut Metadata, commands: &[Command]) -> Vec<Outcome> {
    let first = metadata.applied().0;
    commands.iter().zip(first..).map(|(command, at)| apply(metadata, command, at * 10)).collect()
}

proptest! {
    #[test]
    fn two_nodes_with_one_history_are_equal(commands in prop::collection::vec(command(), 1..80)) {
        let (mut left, mut right) = (Metadata::new(), Metadata::new());
        apply(&mut left, &root(), 0);
        apply(&mut right, &root(), 0);
        prop_assert_eq!(run(&mut left, &commands), run(&mut right, &commands));
        prop_assert_eq!(left.to_snapshot(), right.to_snapshot());
    }

    #[test]
    fn a_restored_node_goes_on_as_if_it_had_never_stopped(
        commands in prop::collection::vec(command(), 2..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(commands.len());
        let mut straight = Metadata::new();
        apply(&mut straight, &root(), 0);
        run(&mut straight, &commands[..cut]);
        let snapshot = straight.to_snapshot();
        let mut restored = Metadata::from_snapshot(&snapshot).unwrap();
        prop_assert_eq!(restored.applied(), straight.applied());
        prop_assert_eq!(restored.to_snapshot(), snapshot);
        prop_assert_eq!(run(&mut straight, &commands[cut..]), run(&mut restored, &commands[cut..]));
        prop_assert_eq!(straight.to_snapshot(), restored.to_snapshot());
    }

    #[test]
    fn older_versions_never_change(commands in prop::collection::vec(command(), 1..40)) {
        let mut metadata = Metadata::new();
        apply(&mut metadata, &root(), 0);
        let mut versions = Vec::new();
        for (command, at) in commands.iter().zip(1..) {
            versions.push((metadata.clone(), metadata.to_snapshot()));
            apply(&mut metadata, command, at);
        }
        for (version, snapshot) in versions {
            prop_assert_eq!(version.to_snapshot(), snapshot);
        }
    }

    #[test]
    fn damaged_snapshots_are_refused(
        commands in prop::collection::vec(command(), 1..30),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut metadata = Metadata::new();
        apply(&mut metadata, &root(), 0);
        run(&mut metadata, &commands);
        let mut bytes = metadata.to_snapshot();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Metadata::from_snapshot(&bytes).is_err());
        bytes.truncate(at);
        prop_assert!(Metadata::from_snapshot(&bytes).is_err());
    }

    /// With the checksum made right again, the archive itself has to stand the damage.
    #[test]
    fn forged_snapshots_are_refused_or_keep_every_invariant(
        commands in prop::collection::vec(command(), 1..30),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut metadata = Metadata::new();
        apply(&mut metadata, &root(), 0);
        run(&mut metadata, &commands);
        let mut bytes = metadata.to_snapshot();
        for (index, byte) in damage {
            let at = 24 + index.index(bytes.len() - 24);
            bytes[at] = byte;
        }
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[24..]);
        bytes[16..24].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(restored) = Metadata::from_snapshot(&bytes) {
            prop_assert_eq!(invariants::check(&restored), Ok(()));
        }
    }
}

#[test]
fn bytes_that_are_no_snapshot_are_refused() {
    let mut bytes = Metadata::new().to_snapshot();
    assert!(Metadata::from_snapshot(&bytes).is_ok());
    assert!(matches!(Metadata::from_snapshot(&bytes[..23]), Err(SnapshotError::Magic)));
    bytes[8] = 99;
    assert!(matches!(Metadata::from_snapshot(&bytes), Err(SnapshotError::Format { found: 99 })));
    bytes[0] = b'X';
    assert!(matches!(Metadata::from_snapshot(&bytes), Err(SnapshotError::Magic)));
}

#[test]
fn an_empty_state_has_applied_nothing() {
    let metadata = Metadata::new();
    assert_eq!(metadata.applied(), Op(0));
    assert!(metadata.root().is_none());
}
