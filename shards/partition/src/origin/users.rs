//! Reads of users and tokens: answered from this shard's copy of the metadata.

use std::rc::Rc;

use laneway_metadata::permissions::Rule;
use laneway_wire::reply::Record;
use laneway_wire::request::GetUser;
use laneway_wire::{Frame, Status};

use crate::connections::Binding;
use crate::message::ReplyTo;
use crate::shard::Shard;

impl Shard {
    /// GetUser (31). Everybody may read about itself; a missing user is an empty answer, whoever asks.
    pub(super) fn serve_user(self: &Rc<Self>, reply_to: ReplyTo, binding: &Binding, frame: &Frame) {
        let request = match GetUser::parse(&frame.body) {
            Ok(request) => request,
            Err(error) => return self.refuse_here(reply_to, error.status()),
        };
        let metadata = self.metadata();
        let Ok(user) = metadata.users().find(request.user) else {
            return self.answer(reply_to, |_| {});
        };
        if user.id != binding.user
            && let Err(status) = metadata.permit(binding.user, Rule::ReadUsers)
        {
            return self.refuse_here(reply_to, status);
        }
        self.answer(reply_to, |out| user.details().put(out));
    }

    /// GetUsers (32), without permissions.
    pub(super) fn serve_users(self: &Rc<Self>, reply_to: ReplyTo, binding: &Binding) {
        let metadata = self.metadata();
        match metadata.permit(binding.user, Rule::ReadUsers) {
            Ok(()) => {
                self.answer(reply_to, |out| metadata.users().iter().for_each(|user| user.header().put(out)));
            }
            Err(status) => self.refuse_here(reply_to, status),
        }
    }

    /// GetPersonalAccessTokens (41): the caller's own, by name.
    pub(super) fn serve_tokens(self: &Rc<Self>, reply_to: ReplyTo, binding: &Binding) {
        let metadata = self.metadata();
        match metadata.users().user(binding.user) {
            Some(user) => {
                self.answer(reply_to, |out| user.tokens.values().for_each(|token| token.record().put(out)));
            }
            // The session of a user that is gone is over as well.
            None => self.refuse_here(reply_to, Status::StaleClient),
        }
    }
}
