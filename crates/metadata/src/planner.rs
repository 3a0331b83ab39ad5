//! From a parsed request to the command that the log orders, on the primary, before anything happened.
//!
//! Refused here is what does not depend on the order of ops: names and counts out of range, options that the catalogue
//! does not admit, and the cap on partitions, which counts committed ones only. All else is decided at apply.

use laneway_encryption::{StreamKey, WrapSet};
use laneway_wire::options::Options;
use laneway_wire::request::{self, ResetNames, UserStatus as WireUserStatus};
use laneway_wire::{Identifier, Status, UserId};

use crate::command::{Mutation, NewToken, NewUser, PasswordChange};
use crate::lanes::LaneClass;
use crate::limits::{self, PARTITIONS_PER_REQUEST_MAX};
use crate::metadata::Metadata;
use crate::names::RefKey;
use crate::options::admission::{AdmittedPatch, RawOption, Refusal, admit_create, admit_update, stream_key};
use crate::options::encryption;
use crate::options::{Key, OptionDefaults, OptionSet, Scope, TopicSettings};
use crate::permissions::{Permissions, PermissionsRecord, Rule};
use crate::tokens::TokenHash;
use crate::users::{PasswordHash, UserStatus};

/// What the node was set to. May differ between nodes and change over time: its effect is written into the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSettings {
    /// `metadata.partitions_max`: most partitions on the server, 0 for no cap.
    pub partitions_max: u64,
    /// Nodes of the cluster; the most that `replication_factor` may be.
    pub nodes: u32,
    /// What topics get for the options that their creator left out.
    pub option_defaults: OptionDefaults,
    /// `tokens.per_user_max`: most personal access tokens of one user.
    pub tokens_max: u32,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self {
            partitions_max: 0,
            nodes: 1,
            option_defaults: OptionDefaults::default(),
            tokens_max: limits::TOKENS_PER_USER_MAX_DEFAULT,
        }
    }
}

/// Plans the commands of requests on one applied state.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'a> {
    /// The state that the plan is made on. Ops in between may change it; apply copes with that.
    pub metadata: &'a Metadata,
    /// What the node was set to.
    pub settings: &'a PlanSettings,
    /// Who asks.
    pub user: UserId,
}

impl Planner<'_> {
    /// CreateStream (202) on a node without a key.
    pub fn create_stream(&self, name: &str, options: Options<'_>) -> Result<Mutation, Refusal> {
        self.create_stream_with(name, options, no_server_key)
    }

    /// CreateStream (202). `wrap` makes the envelopes: of the key that the request names, or, given none, of one that the
    /// node draws if it is set to. It runs only when everything else was admitted.
    pub fn create_stream_with(
        &self,
        name: &str,
        options: Options<'_>,
        wrap: impl FnOnce(Option<StreamKey>) -> Result<Option<WrapSet>, Status>,
    ) -> Result<Mutation, Refusal> {
        let block = RawOption::of_block(options);
        let admitted = admit_create(Scope::Stream, name, &block)?;
        let key = if admitted.stream_key { stream_key(&block) } else { None };
        let envelopes = wrap(key).map_err(|status| Refusal::of_key(status, Key::EncryptionKey.name()))?;
        let mut options =
            OptionSet::created(Scope::Stream, admitted.explicit, &self.settings.option_defaults);
        if let Some(envelopes) = &envelopes {
            encryption::store(&mut options, envelopes);
        }
        Ok(Mutation::CreateStream { name: name.to_owned(), options: options.to_records() })
    }

    /// DeleteStream (203).
    pub fn delete_stream<'a>(&self, stream: impl Into<RefKey<'a>>) -> Mutation {
        Mutation::DeleteStream { stream: stream.into().to_owned() }
    }

    /// CreateTopic (302).
    pub fn create_topic<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        partitions_count: u32,
        name: &str,
        options: Options<'_>,
    ) -> Result<Mutation, Refusal> {
        if partitions_count > PARTITIONS_PER_REQUEST_MAX {
            return Err(Status::TooManyPartitions.into());
        }
        let admitted = admit_create(Scope::Topic, name, &RawOption::of_block(options))?;
        let options = OptionSet::created(Scope::Topic, admitted.explicit, &self.settings.option_defaults);
        let settings = TopicSettings::of(&options);
        self.check_topic(&settings, partitions_count)?;

        let stream = stream.into();
        let may = |found: &crate::streams::Stream| {
            self.metadata.permit(self.user, Rule::CreateTopic(found.id)).is_ok()
        };
        if self.metadata.stream(stream).is_ok_and(|found| may(found)) {
            self.check_partitions_cap(partitions_count)?;
        }
        let class = LaneClass { durability: settings.durability };
        Ok(Mutation::CreateTopic {
            stream: stream.to_owned(),
            name: name.to_owned(),
            options: options.to_records(),
            lanes: self.metadata.lanes().plan(class, partitions_count),
        })
    }

    /// DeleteTopic (303).
    pub fn delete_topic<'a>(&self, stream: impl Into<RefKey<'a>>, topic: impl Into<RefKey<'a>>) -> Mutation {
        Mutation::DeleteTopic { stream: stream.into().to_owned(), topic: topic.into().to_owned() }
    }

    /// CreatePartitions (402).
    pub fn create_partitions<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        topic: impl Into<RefKey<'a>>,
        count: u32,
    ) -> Result<Mutation, Refusal> {
        check_count(count)?;
        let (stream, topic) = (stream.into(), topic.into());
        let class = match self.metadata.topic(stream, topic) {
            Ok((stream, topic)) => {
                if self.metadata.permit(self.user, Rule::ManageTopic(stream.id, topic.id)).is_ok() {
                    self.check_partitions_cap(count)?;
                }
                LaneClass { durability: topic.settings.durability }
            }
            // Apply will find the topic missing, or one that an op on its way makes; then it plans again.
            Err(_) => LaneClass { durability: crate::options::Durability::Persisted },
        };
        Ok(Mutation::CreatePartitions {
            stream: stream.to_owned(),
            topic: topic.to_owned(),
            lanes: self.metadata.lanes().plan(class, count),
        })
    }

    /// DeletePartitions (403).
    pub fn delete_partitions<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        topic: impl Into<RefKey<'a>>,
        count: u32,
    ) -> Result<Mutation, Refusal> {
        check_count(count)?;
        Ok(Mutation::DeletePartitions {
            stream: stream.into().to_owned(),
            topic: topic.into().to_owned(),
            count,
        })
    }

    /// UpdateResource (16) of a stream.
    pub fn update_stream<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        reset: ResetNames<'_>,
        set: Options<'_>,
    ) -> Result<Mutation, Refusal> {
        let stream = stream.into();
        let current = self.metadata.stream(stream).ok().map(|stream| stream.options.set());
        let patch = self.admit_update(Scope::Stream, reset, set, current)?;
        // Its name is all of a stream that may change, and an update that changes nothing was refused.
        let name = patch.name().ok_or(Status::InvalidCommand)?.to_owned();
        Ok(Mutation::UpdateStream { stream: stream.to_owned(), name })
    }

    /// UpdateResource (16) of a topic. What depends on the topic's other options is decided at apply.
    pub fn update_topic<'a>(
        &self,
        stream: impl Into<RefKey<'a>>,
        topic: impl Into<RefKey<'a>>,
        reset: ResetNames<'_>,
        set: Options<'_>,
    ) -> Result<Mutation, Refusal> {
        let (stream, topic) = (stream.into(), topic.into());
        let current = self.metadata.topic(stream, topic).ok().map(|(_, topic)| topic.options.set());
        let patch = self.admit_update(Scope::Topic, reset, set, current)?;
        Ok(Mutation::UpdateTopic {
            stream: stream.to_owned(),
            topic: topic.to_owned(),
            name: patch.name().map(str::to_owned),
            options: patch.entries(&self.settings.option_defaults).to_records(),
        })
    }

    /// Steps 1 to 8 of option admission. `current`: what the resource stores, if it exists.
    fn admit_update(
        &self,
        scope: Scope,
        reset: ResetNames<'_>,
        set: Options<'_>,
        current: Option<&OptionSet>,
    ) -> Result<AdmittedPatch, Refusal> {
        let none = OptionSet::default();
        let reset: Vec<&str> = reset.iter().collect();
        let defaults = &self.settings.option_defaults;
        admit_update(scope, &RawOption::of_block(set), &reset, current.unwrap_or(&none), defaults)
    }

    /// CreateUser (33). `password_hash` is what the password was hashed to, or none for a caller who may not make users.
    pub fn create_user(
        &self,
        user: &request::CreateUser<'_>,
        password_hash: Option<PasswordHash>,
    ) -> Result<Mutation, Refusal> {
        let admitted = admit_create(Scope::User, user.username, &RawOption::of_block(user.options))?;
        check_password(user.password.0)?;
        let status = match user.status {
            WireUserStatus::Active => UserStatus::Active,
            WireUserStatus::Inactive => UserStatus::Inactive,
            WireUserStatus::Unknown(_) => return Err(Status::InvalidUserStatus.into()),
        };
        let options = OptionSet::created(Scope::User, admitted.explicit, &self.settings.option_defaults);
        Ok(Mutation::CreateUser(NewUser {
            username: user.username.to_owned(),
            password_hash,
            status,
            permissions: grants(user.permissions.as_ref())?,
            options: options.to_records(),
        }))
    }

    /// DeleteUser (34).
    pub fn delete_user<'a>(&self, user: impl Into<RefKey<'a>>) -> Mutation {
        Mutation::DeleteUser { user: user.into().to_owned() }
    }

    /// UpdateResource (16) of a user.
    pub fn update_user(
        &self,
        user: Identifier<'_>,
        reset: ResetNames<'_>,
        set: Options<'_>,
    ) -> Result<Mutation, Refusal> {
        let current = self.metadata.users().find(user).ok().map(|user| user.options.set());
        let patch = self.admit_update(Scope::User, reset, set, current)?;
        let (mut username, mut status) = (None, None);
        for (key, text) in patch.columns {
            match key {
                Key::Status if text == "active" => status = Some(UserStatus::Active),
                Key::Status => status = Some(UserStatus::Inactive),
                _ => username = Some(text),
            }
        }
        Ok(Mutation::UpdateUser { user: RefKey::from(user).to_owned(), username, status })
    }

    /// UpdatePermissions (36).
    pub fn update_permissions(&self, update: &request::UpdatePermissions<'_>) -> Result<Mutation, Refusal> {
        Ok(Mutation::UpdatePermissions {
            user: RefKey::from(update.user).to_owned(),
            permissions: grants(update.permissions.as_ref())?,
        })
    }

    /// ChangePassword (37). `change` is what checking and hashing the two passwords gave.
    pub fn change_password(
        &self,
        request: &request::ChangePassword<'_>,
        change: Option<PasswordChange>,
    ) -> Result<Mutation, Refusal> {
        check_password(request.new_password.0)?;
        Ok(Mutation::ChangePassword { user: RefKey::from(request.user).to_owned(), change })
    }

    /// CreatePersonalAccessToken (42). `hash` is what the new token will be recognised by.
    pub fn create_token(
        &self,
        request: &request::CreatePersonalAccessToken<'_>,
        hash: TokenHash,
    ) -> Result<Mutation, Refusal> {
        if !limits::TOKEN_NAME_BYTES.contains(&request.name.len()) {
            return Err(Status::InvalidPersonalAccessTokenName.into());
        }
        Ok(Mutation::CreateToken(NewToken {
            name: request.name.to_owned(),
            hash,
            lives_us: (!matches!(request.expiry_us, 0 | u64::MAX)).then_some(request.expiry_us),
            tokens_max: self.settings.tokens_max,
        }))
    }

    /// DeletePersonalAccessToken (43).
    pub fn delete_token(&self, name: &str) -> Mutation {
        Mutation::DeleteToken { name: name.to_owned() }
    }

    /// Step 9 of option admission: what depends on several options at once, or on the cluster.
    fn check_topic(&self, settings: &TopicSettings, partitions_count: u32) -> Result<(), Refusal> {
        if settings.replication_factor > self.settings.nodes {
            return Err(Refusal::of_key(Status::InvalidReplicationFactor, Key::ReplicationFactor.name()));
        }
        if !settings.fits_one_segment() {
            return Err(Refusal::of_key(Status::InvalidTopicSize, Key::MaxTopicSize.name()));
        }
        if !settings.may_preallocate(partitions_count) {
            return Err(Refusal::of_key(Status::InvalidOptionValue, Key::PreallocateSegments.name()));
        }
        Ok(())
    }

    fn check_partitions_cap(&self, added: u32) -> Result<(), Refusal> {
        let max = self.settings.partitions_max;
        let after = self.metadata.streams().partitions_count() + u64::from(added);
        if added > 0 && max > 0 && after > max { Err(Status::PartitionsLimitReached.into()) } else { Ok(()) }
    }
}

/// Checks a new password against its length rule. Source: resources, section 2.2.
pub fn check_password(password: &[u8]) -> Result<(), Refusal> {
    let is_text = std::str::from_utf8(password).is_ok();
    match is_text && limits::PASSWORD_BYTES.contains(&password.len()) {
        true => Ok(()),
        false => Err(Status::InvalidPassword.into()),
    }
}

fn grants(
    permissions: Option<&laneway_wire::permissions::Permissions>,
) -> Result<Option<PermissionsRecord>, Refusal> {
    let record = permissions.map(|permissions| PermissionsRecord::from(&Permissions::from(permissions)));
    match record.as_ref().is_none_or(|record| record.grants() <= limits::GRANTS_MAX) {
        true => Ok(record),
        false => Err(Status::InvalidCommand.into()),
    }
}

/// There is nothing to wrap the key of a stream with.
fn no_server_key(key: Option<StreamKey>) -> Result<Option<WrapSet>, Status> {
    match key {
        Some(_) => Err(Status::StreamEncryptionUnavailable),
        None => Ok(None),
    }
}

fn check_count(count: u32) -> Result<(), Refusal> {
    if (1..=PARTITIONS_PER_REQUEST_MAX).contains(&count) {
        Ok(())
    } else {
        Err(Status::TooManyPartitions.into())
    }
}
