//! What ops write into the change log. A handler notes a change once it has made it; a refused op notes nothing.

use laneway_wire::reply::{
    ChangeBody, ChangeOptions, ChangePartitions, ChangePermissions, Maybe, PermissionsChanged, SessionClosed,
    StreamLife, TokenGone, TopicLife, UserLife,
};
use laneway_wire::{ClientId, Micros, Op, PartitionId, SessionEpoch, UserId};

use crate::metadata::Metadata;
use crate::options::StoredOptions;
use crate::sessions::{EndReason, Session};
use crate::streams::Stream;
use crate::tokens::Token;
use crate::topics::Topic;
use crate::users::User;

impl Stream {
    pub(crate) fn life(&self) -> StreamLife {
        StreamLife { stream: self.id, created_op: self.created_op }
    }
}

impl Topic {
    pub(crate) fn life(&self, stream: StreamLife) -> TopicLife {
        TopicLife { stream, topic: self.id, created_op: self.created_op }
    }
}

impl User {
    pub(crate) fn life(&self) -> UserLife {
        UserLife { user: self.id, created_at: self.created_at }
    }

    pub(crate) fn change_permissions(&self) -> ChangePermissions {
        ChangePermissions(self.permissions.as_ref().map(Into::into))
    }
}

impl Session {
    pub(crate) fn user_life(&self) -> UserLife {
        UserLife { user: self.user, created_at: self.user_created_at }
    }
}

impl Token {
    pub(crate) fn change_expiry(&self) -> Micros {
        self.expires_at.unwrap_or(Micros(0))
    }
}

pub(crate) fn options(stored: &StoredOptions) -> ChangeOptions<'_> {
    ChangeOptions::Readable { explicit: stored.explicit(), derived: stored.derived() }
}

/// What happened to a stream or a topic that is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Created,
    Updated,
}

/// What happened to a user that is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserChange {
    Created,
    Updated,
    Password,
    Permissions(PermissionsChanged),
}

impl Metadata {
    pub(crate) fn note_stream(&mut self, stream: &Stream, made: Made) {
        let (life, created_at, name) = (stream.life(), stream.created_at, &*stream.name);
        let options = options(&stream.options);
        self.changes.note(&match made {
            Made::Created => ChangeBody::StreamCreated { life, created_at, name, options },
            Made::Updated => ChangeBody::StreamUpdated { life, created_at, name, options },
        });
    }

    /// `requested_op`: the op that asked for it, when this one only finishes it.
    pub(crate) fn note_stream_deleted(&mut self, stream: &Stream, requested_op: Option<Op>) {
        self.changes.note(&ChangeBody::StreamDeleted {
            life: stream.life(),
            created_at: stream.created_at,
            name: &stream.name,
            requested_op: Maybe(requested_op),
        });
    }

    pub(crate) fn note_topic(&mut self, stream: StreamLife, topic: &Topic, made: Made) {
        let (life, created_at, name) = (topic.life(stream), topic.created_at, &*topic.name);
        let (partitions_count, options) = (topic.partitions_count(), options(&topic.options));
        self.changes.note(&match made {
            Made::Created => ChangeBody::TopicCreated { life, created_at, name, partitions_count, options },
            Made::Updated => ChangeBody::TopicUpdated { life, created_at, name, partitions_count, options },
        });
    }

    /// `requested_op`: see [`Self::note_stream_deleted`].
    pub(crate) fn note_topic_deleted(&mut self, stream: StreamLife, topic: &Topic, requested_op: Option<Op>) {
        self.changes.note(&ChangeBody::TopicDeleted {
            life: topic.life(stream),
            created_at: topic.created_at,
            name: &topic.name,
            requested_op: Maybe(requested_op),
        });
    }

    /// `topic`: as it is now. `before`: the partitions that it had. `requested_op`: see [`Self::note_stream_deleted`].
    pub(crate) fn note_partitions(
        &mut self,
        stream: StreamLife,
        topic: &Topic,
        before: u32,
        requested_op: Option<Op>,
    ) {
        let partitions_count = topic.partitions_count();
        self.changes.note(&ChangeBody::PartitionsChanged {
            life: topic.life(stream),
            partitions_count,
            removed: ChangePartitions((partitions_count..before).map(PartitionId).collect()),
            requested_op: Maybe(requested_op),
        });
    }

    pub(crate) fn note_user(&mut self, user: &User, change: UserChange) {
        let (life, username, status) = (user.life(), &*user.username, user.status.into());
        let (permissions, options) = (user.change_permissions(), options(&user.options));
        self.changes.note(&match change {
            UserChange::Created => ChangeBody::UserCreated { life, username, status, permissions, options },
            UserChange::Updated => ChangeBody::UserUpdated { life, username, status, permissions, options },
            UserChange::Password => ChangeBody::PasswordChanged { life, username },
            UserChange::Permissions(reason) => {
                ChangeBody::PermissionsUpdated { life, username, permissions, reason }
            }
        });
    }

    /// Notes what a user is now. The user is there.
    pub(crate) fn note_user_of(&mut self, id: UserId, change: UserChange) {
        let user = self.users.user(id).expect("the caller found the user").clone();
        self.note_user(&user, change);
    }

    pub(crate) fn note_user_deleted(&mut self, user: &User) {
        self.changes.note(&ChangeBody::UserDeleted { life: user.life(), username: &user.username });
    }

    pub(crate) fn note_token(&mut self, user: UserLife, token: &Token) {
        let expires_at = token.change_expiry();
        self.changes.note(&ChangeBody::TokenCreated { life: user, name: &token.name, expires_at });
    }

    pub(crate) fn note_token_deleted(&mut self, user: UserLife, name: &str, reason: TokenGone) {
        self.changes.note(&ChangeBody::TokenDeleted { life: user, name, reason });
    }

    pub(crate) fn note_session(&mut self, user: UserLife, client: ClientId, session: SessionEpoch) {
        self.changes.note(&ChangeBody::SessionRegistered { life: user, client, session });
    }

    pub(crate) fn note_session_closed(&mut self, session: &Session, reason: EndReason) {
        let reason = match reason {
            EndReason::Logout => SessionClosed::Logout,
            EndReason::Expired => SessionClosed::Expired,
            EndReason::Revoked => SessionClosed::Revoked,
        };
        self.changes.note(&ChangeBody::SessionClosed {
            life: session.user_life(),
            client: session.client,
            session: session.epoch,
            reason,
        });
    }
}
