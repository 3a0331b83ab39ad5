//! Changes of what streams and topics are called and of what they store. Source: resources, sections 10.4 and 10.5.

use std::sync::Arc;

use laneway_wire::{Status, UserId};

use super::Effect;
use crate::changes::notes::Made;
use crate::metadata::Metadata;
use crate::names::{Missing, Ref};
use crate::options::set::OptionRecord;
use crate::options::{OptionSet, Scope, StoredOptions, TopicSettings};
use crate::permissions::Rule;
use crate::replies::ReplyBody;
use crate::topics::Topic;

impl Metadata {
    pub(super) fn update_stream(
        &mut self,
        user: UserId,
        stream: &Ref,
        name: &str,
    ) -> Result<ReplyBody, Status> {
        let id = self.stream(stream).map_err(Missing::committed_status)?.id;
        self.permit(user, Rule::ManageStream(id))?;
        if self.streams.id_of(name).is_some_and(|taken| taken != id) {
            return Err(Status::StreamNameAlreadyExists);
        }
        self.streams.update(id, |stream| stream.name = name.into());
        let stream = self.stream(id.0).map_err(Missing::committed_status)?.clone();
        self.note_stream(&stream, Made::Updated);
        Ok(ReplyBody::Empty)
    }

    pub(super) fn update_topic(
        &mut self,
        user: UserId,
        stream: &Ref,
        topic: &Ref,
        name: Option<&str>,
        changes: &[OptionRecord],
        effects: &mut Vec<Effect>,
    ) -> Result<ReplyBody, Status> {
        let (stream, topic) = self.managed_topic(user, stream, topic)?;
        let names = &self.stream(stream.0).map_err(Missing::committed_status)?.topics;
        if name.and_then(|name| names.id_of(name)).is_some_and(|taken| taken != topic.id) {
            return Err(Status::TopicNameAlreadyExists);
        }
        // Planned on an older state: the topic may be another one by now, with other options.
        let changes = OptionSet::from_records(changes.to_vec()).expect("the command's bounds were checked");
        let mut options = topic.options.set().clone();
        options.merge(&changes);
        if !options.fits_a_block() {
            return Err(Status::OptionsBlockTooLarge);
        }
        let settings = TopicSettings::of(&options);
        if !settings.fits_one_segment() {
            return Err(Status::InvalidTopicSize);
        }
        let mut topic = Topic::clone(&topic);
        if let Some(name) = name {
            topic.name = name.into();
        }
        topic.options = Arc::new(StoredOptions::new(Scope::Topic, options));
        if topic.settings != settings {
            effects.push(Effect::TopicChanged { stream, topic: topic.id });
        }
        topic.settings = settings;
        self.note_topic(self.stream_life(stream), &topic, Made::Updated);
        self.streams.update(stream, |stream| stream.topics.replace(topic));
        Ok(ReplyBody::Empty)
    }
}
