//! Grants as people type them: `read_streams`, `logs:manage_topics`, `logs/web:poll_messages`.

use laneway_client::Client;
use laneway_wire::permissions::{GlobalPermissions, Permissions, StreamFlags, TopicPermissions};

use super::CommandError;
use super::connect::identifier;
use super::{streams, topics};
use crate::cli::{Target, TopicTarget};

/// A flag by its name, and where it is in a row of flags.
type Flag<F> = (&'static str, fn(&mut F) -> &mut bool);

macro_rules! flags {
    ($type:ty: $($flag:ident),* $(,)?) => {
        &[$((stringify!($flag), (|flags: &mut $type| &mut flags.$flag) as fn(&mut $type) -> &mut bool)),*]
    };
}

const SERVER: &[Flag<GlobalPermissions>] = flags!(GlobalPermissions:
    manage_servers, read_servers, manage_users, read_users, manage_streams, read_streams, manage_topics,
    read_topics, poll_messages, send_messages);
const STREAM: &[Flag<StreamFlags>] = flags!(StreamFlags:
    manage_stream, read_stream, manage_topics, read_topics, poll_messages, send_messages);
const TOPIC: &[Flag<TopicPermissions>] =
    flags!(TopicPermissions: manage_topic, read_topic, poll_messages, send_messages);

/// Where a grant counts.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Server,
    Stream(Target),
    Topic(TopicTarget),
}

/// The permissions that grants add up to. Streams and topics are looked up: the broker wants their ids.
pub fn resolve(client: &mut Client, grants: &[String]) -> Result<Permissions, CommandError> {
    let mut permissions = Permissions::default();
    for grant in grants {
        let (place, names) = parse(grant)?;
        match place {
            Place::Server => set(SERVER, &mut permissions.global, names, "the server")?,
            Place::Stream(stream) => {
                let found = client.stream(&identifier(&stream))?.ok_or_else(|| streams::missing(&stream))?;
                let flags = &mut permissions.streams.entry(found.summary.id).or_default().flags;
                set(STREAM, flags, names, "a stream")?;
            }
            Place::Topic(target) => {
                let found = client
                    .stream(&identifier(&target.stream))?
                    .ok_or_else(|| streams::missing(&target.stream))?;
                let topic = topics::find(client, &target, None)?.summary.id;
                let topics = &mut permissions.streams.entry(found.summary.id).or_default().topics;
                set(TOPIC, topics.entry(topic).or_default(), names, "a topic")?;
            }
        }
    }
    Ok(permissions)
}

/// The grants of permissions, as [`resolve`] takes them; streams and topics by their ids.
pub fn texts(permissions: &Permissions) -> Vec<String> {
    let mut grants = Vec::new();
    let mut add = |place: String, names: String| {
        if !names.is_empty() {
            grants.push(place + &names);
        }
    };
    add(String::new(), names(SERVER, permissions.global));
    for (stream, grant) in &permissions.streams {
        add(format!("{}:", stream.0), names(STREAM, grant.flags));
        for (topic, flags) in &grant.topics {
            add(format!("{}/{}:", stream.0, topic.0), names(TOPIC, *flags));
        }
    }
    grants
}

/// The place is what stands before the last colon: a name may hold some, a flag none.
fn parse(grant: &str) -> Result<(Place, &str), CommandError> {
    let wrong = |error: crate::cli::TargetError| CommandError::Usage(format!("--grant {grant}: {error}"));
    match grant.rsplit_once(':') {
        None => Ok((Place::Server, grant)),
        Some((place, names)) if place.contains('/') => {
            Ok((Place::Topic(place.parse().map_err(wrong)?), names))
        }
        Some((place, names)) => Ok((Place::Stream(place.parse().map_err(wrong)?), names)),
    }
}

fn set<F>(table: &[Flag<F>], flags: &mut F, names: &str, place: &str) -> Result<(), CommandError> {
    for name in names.split(',').map(str::trim) {
        let mut known = false;
        for (_, flag) in table.iter().filter(|(flag, _)| name == "all" || *flag == name) {
            *flag(flags) = true;
            known = true;
        }
        if !known {
            let all: Vec<&str> = table.iter().map(|(flag, _)| *flag).collect();
            return Err(CommandError::Usage(format!(
                "{name:?} is no flag on {place}: use {} or all",
                all.join(", ")
            )));
        }
    }
    Ok(())
}

fn names<F: Copy>(table: &[Flag<F>], mut flags: F) -> String {
    let held: Vec<&str> = table.iter().filter(|(_, flag)| *flag(&mut flags)).map(|(name, _)| *name).collect();
    if held.len() == table.len() { "all".to_owned() } else { held.join(",") }
}

#[cfg(test)]
mod tests {
    use laneway_wire::permissions::StreamPermissions;
    use laneway_wire::{StreamId, TopicId};

    use super::*;

    #[test]
    fn the_last_colon_ends_the_place() {
        assert_eq!(parse("read_streams").unwrap(), (Place::Server, "read_streams"));
        assert_eq!(parse("a:b:all").unwrap(), (Place::Stream(Target::Name("a:b".into())), "all"));
        let topic = TopicTarget { stream: Target::Name("logs".into()), topic: Target::Id(7) };
        assert_eq!(parse("logs/7:all").unwrap(), (Place::Topic(topic), "all"));
        assert!(parse(":all").is_err());
    }

    #[test]
    fn flags_are_set_by_name_and_unknown_ones_are_refused() {
        let mut flags = TopicPermissions::default();
        set(TOPIC, &mut flags, "poll_messages, read_topic", "a topic").unwrap();
        assert_eq!(names(TOPIC, flags), "read_topic,poll_messages");
        assert!(set(TOPIC, &mut flags, "read_streams", "a topic").is_err());
        assert!(set(TOPIC, &mut flags, "", "a topic").is_err());
        set(TOPIC, &mut flags, "all", "a topic").unwrap();
        assert_eq!(names(TOPIC, flags), "all");
    }

    #[test]
    fn permissions_are_shown_as_they_are_typed() {
        let topics = [(TopicId(2), TopicPermissions { read_topic: true, ..Default::default() })].into();
        let flags = StreamFlags { send_messages: true, ..Default::default() };
        let mut permissions = Permissions {
            streams: [(StreamId(1), StreamPermissions { flags, topics })].into(),
            ..Permissions::default()
        };
        assert_eq!(texts(&permissions), ["1:send_messages", "1/2:read_topic"]);
        permissions.global = Permissions::root().global;
        assert_eq!(texts(&permissions)[0], "all");
    }
}
