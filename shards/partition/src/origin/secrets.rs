//! Requests that carry passwords or ask for tokens: the secret becomes a hash before anything is ordered.

use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use laneway_metadata::permissions::Rule;
use laneway_metadata::planner::check_password;
use laneway_metadata::{Admit, Metadata, PasswordChange, PasswordHash, TokenHash};
use laneway_wire::request::{ChangePassword, CreateUser};
use laneway_wire::{Frame, Operation, RequestHeader, Status};

use super::login::token_hash;
use crate::connections::{Binding, Connection};
use crate::damping::Source;
use crate::message::{Prepared, ReplyTo};
use crate::passwords::{Checked, Guess, Work};
use crate::secret::Secret;
use crate::shard::Shard;

/// Random bytes of a token. Source: resources, section 12.
const TOKEN_RANDOM_BYTES: usize = 50;

/// Whether a request waits for the threads that know passwords. The connection is not read meanwhile, so that its
/// changes of metadata keep their order.
pub(super) fn carries_password(operation: Operation) -> bool {
    matches!(operation, Operation::CreateUser | Operation::ChangePassword)
}

/// A new token and what it is kept as; none when the system has no random bytes.
pub(super) fn new_token() -> Option<(Secret, TokenHash)> {
    let mut random = [0; TOKEN_RANDOM_BYTES];
    getrandom::fill(&mut random).ok()?;
    let token = STANDARD.encode(random);
    let hash = token_hash(token.as_bytes());
    Some((Secret::new(token), hash))
}

impl Shard {
    /// Serves a change of metadata that carries passwords.
    pub(super) async fn serve_password_write(
        self: &Rc<Self>,
        connection: &Connection,
        reply_to: ReplyTo,
        binding: Binding,
        operation: Operation,
        frame: Frame,
    ) {
        let prepared = match operation {
            Operation::CreateUser => self.prepare_user(&binding, &frame).await,
            _ => self.prepare_change(connection, &binding, &frame).await,
        };
        match prepared {
            Ok(prepared) => self.order(reply_to, binding, frame.body, prepared),
            Err(status) => self.refuse_here(reply_to, status),
        }
    }

    /// Hashes the password of a new user, for a caller who may make one.
    async fn prepare_user(&self, binding: &Binding, frame: &Frame) -> Result<Prepared, Status> {
        let request = CreateUser::parse(&frame.body).map_err(|error| error.status())?;
        let metadata = self.metadata();
        let useful = is_new(&metadata, &frame.header)
            && metadata.permit(binding.user, Rule::ManageUsers).is_ok()
            && check_password(request.password.0).is_ok();
        if !useful {
            return Ok(Prepared::NewUser(None));
        }
        let work = Work { check: None, hash: Some(Secret::new(request.password.0)) };
        match self.change_password(work).await {
            Checked::Right(Some(hash)) => Ok(Prepared::NewUser(Some(PasswordHash::new(hash)))),
            _ => Err(Status::TransientNotAccepted),
        }
    }

    /// Checks the current password and hashes the new one, for a caller who may change it.
    async fn prepare_change(
        &self,
        connection: &Connection,
        binding: &Binding,
        frame: &Frame,
    ) -> Result<Prepared, Status> {
        let request = ChangePassword::parse(&frame.body).map_err(|error| error.status())?;
        let metadata = self.metadata();
        let may = |id| id == binding.user || metadata.permit(binding.user, Rule::ManageUsers).is_ok();
        let user = metadata.users().find(request.user).ok().filter(|user| may(user.id));
        let useful = is_new(&metadata, &frame.header) && check_password(request.new_password.0).is_ok();
        let Some(user) = user.filter(|_| useful) else { return Ok(Prepared::Change(None)) };
        let stored = user.password_hash.clone();
        let work = Work {
            check: Some(Guess {
                source: Source::new(connection.peer.ip(), &user.username),
                password: Secret::new(request.current_password.0),
                stored: Some(stored.phc().to_owned()),
            }),
            hash: Some(Secret::new(request.new_password.0)),
        };
        match self.change_password(work).await {
            Checked::Right(Some(hash)) => {
                let change = PasswordChange { verified: stored, new: PasswordHash::new(hash) };
                Ok(Prepared::Change(Some(change)))
            }
            Checked::Wrong => Ok(Prepared::Change(None)),
            _ => Err(Status::TransientNotAccepted),
        }
    }
}

/// Whether a request would be executed now. A repeated one is answered as before, and its passwords do not matter.
fn is_new(metadata: &Metadata, header: &RequestHeader) -> bool {
    let admit =
        metadata.sessions().admit(header.client, header.session, header.request, header.request_checksum);
    admit == Admit::New
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S70.
    #[test]
    fn tokens_are_68_characters_and_differ() {
        let (first, first_hash) = new_token().unwrap();
        let (second, second_hash) = new_token().unwrap();
        assert_eq!(first.reveal().len(), 68);
        assert!(STANDARD.decode(first.reveal()).is_ok_and(|random| random.len() == 50));
        assert!(first != second && first_hash != second_hash);
        assert_eq!(token_hash(first.reveal()), first_hash);
    }
}
