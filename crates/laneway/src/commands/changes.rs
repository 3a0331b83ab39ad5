//! `laneway changes`.

use std::io::{self, Write};
use std::thread::sleep;
use std::time::Duration;

use laneway_wire::reply::{ChangeBody, ChangeRecord, ChangesPage, ChangesStatus, StreamLife, TopicLife};
use laneway_wire::request::{ChangeStart, GetMetadataChanges};
use serde::Serialize;

use super::CommandError;
use super::connect;
use super::output::{Row, Style, moment_text, write_rows};
use crate::cli::ChangesArgs;

/// Records of one request.
const PAGE_RECORDS: u32 = 1000;
/// Time between two looks for what is new. The log answers at once and does not wait.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// Prints the change log, and goes on with it if that was asked for.
pub fn changes(args: &ChangesArgs) -> Result<(), CommandError> {
    let mut client = connect::sign_in(&args.connection)?;
    let groups: Vec<u8> = args.groups.iter().map(|group| *group as u8).collect();
    let style = Style::detect(args.json);
    let mut out = io::stdout().lock();
    let mut start = if args.new { ChangeStart::Latest } else { ChangeStart::Earliest };
    loop {
        let request =
            GetMetadataChanges { start, since: None, until: None, limit: PAGE_RECORDS, groups: &groups };
        let answer = client.changes(&request)?;
        let page = ChangesPage::parse(&answer).map_err(laneway_client::ClientError::from)?;
        let rows: Vec<ChangeRow> = page.records.iter().map(ChangeRow::of).collect();
        if !rows.is_empty() {
            // A heading above each page would stand between the changes: a table is for one list.
            let style = if args.follow && style == Style::Table { Style::Plain } else { style };
            write_rows(&mut out, style, &rows).and_then(|()| out.flush()).map_err(CommandError::Output)?;
        }
        match (page.status, page.next) {
            (ChangesStatus::Ok | ChangesStatus::Behind, Some(next)) => start = ChangeStart::After(next),
            (ChangesStatus::Ok | ChangesStatus::Behind, None) => {}
            (ChangesStatus::Expired | ChangesStatus::Reset, _) => {
                return Err(CommandError::Missing {
                    what: "change record that follows the last one shown".to_owned(),
                    hint: "more happened than the broker keeps, or its data were replaced: start again"
                        .to_owned(),
                });
            }
        }
        if !page.has_more {
            if !args.follow {
                return Ok(());
            }
            sleep(FOLLOW_INTERVAL);
        }
    }
}

/// One change. `actor` is the number of the user who asked for it, if somebody did.
#[derive(Serialize)]
struct ChangeRow {
    op: u64,
    ordinal: u32,
    at_us: u64,
    actor: Option<u32>,
    what: &'static str,
    of: String,
}

impl ChangeRow {
    fn of(record: &ChangeRecord<'_>) -> Self {
        let body = ChangeBody::parse(record.group, record.kind, record.body).ok().flatten();
        let (what, of) = body.map_or_else(
            || ("unknown", format!("group {}, kind {}", record.group, record.kind)),
            |body| describe(&body),
        );
        Self {
            op: record.op.0,
            ordinal: record.ordinal,
            at_us: record.timestamp.0,
            actor: record.actor.map(|user| user.0),
            what,
            of,
        }
    }
}

impl Row for ChangeRow {
    const HEADINGS: &'static [&'static str] = &["op", "at", "by user", "what", "of"];

    fn cells(&self, style: Style) -> Vec<String> {
        let at = match style {
            Style::Table => moment_text(self.at_us),
            _ => self.at_us.to_string(),
        };
        let actor = self.actor.map_or_else(|| "-".to_owned(), |user| user.to_string());
        vec![self.op.to_string(), at, actor, self.what.to_owned(), self.of.clone()]
    }
}

/// What happened, in the protocol's words, and to what.
fn describe(body: &ChangeBody<'_>) -> (&'static str, String) {
    use ChangeBody::*;
    let stream = |life: &StreamLife, name: &str| format!("stream {} {name}", life.stream);
    let topic = |life: &TopicLife| format!("stream {} topic {}", life.stream.stream, life.topic);
    match body {
        StreamCreated { life, name, .. } => ("stream_created", stream(life, name)),
        StreamUpdated { life, name, .. } => ("stream_updated", stream(life, name)),
        StreamDeleted { life, name, .. } => ("stream_deleted", stream(life, name)),
        TopicCreated { life, name, .. } => ("topic_created", format!("{} {name}", topic(life))),
        TopicUpdated { life, name, .. } => ("topic_updated", format!("{} {name}", topic(life))),
        TopicDeleted { life, name, .. } => ("topic_deleted", format!("{} {name}", topic(life))),
        PartitionsChanged { life, partitions_count, .. } => {
            ("partitions_changed", format!("{}: {partitions_count} partitions", topic(life)))
        }
        GroupCreated { life, name, .. } => {
            ("consumer_group_created", format!("{} group {name}", topic(life)))
        }
        GroupDeleted { life, name, .. } => {
            ("consumer_group_deleted", format!("{} group {name}", topic(life)))
        }
        MemberJoined { life, group, member, .. } => {
            ("consumer_group_member_joined", format!("{} group {group} member {member}", topic(life)))
        }
        MemberLeft { life, group, member, .. } => {
            ("consumer_group_member_left", format!("{} group {group} member {member}", topic(life)))
        }
        HandedOver { life, group, partition, .. } => (
            "consumer_group_partition_handed_over",
            format!("{} group {group} partition {partition}", topic(life)),
        ),
        UserCreated { life, username, .. } => ("user_created", format!("user {} {username}", life.user)),
        UserUpdated { life, username, .. } => ("user_updated", format!("user {} {username}", life.user)),
        UserDeleted { life, username } => ("user_deleted", format!("user {} {username}", life.user)),
        PasswordChanged { life, username } => {
            ("user_password_changed", format!("user {} {username}", life.user))
        }
        PermissionsUpdated { life, username, .. } => {
            ("user_permissions_updated", format!("user {} {username}", life.user))
        }
        TokenCreated { life, name, .. } => {
            ("personal_access_token_created", format!("user {} token {name}", life.user))
        }
        TokenDeleted { life, name, .. } => {
            ("personal_access_token_deleted", format!("user {} token {name}", life.user))
        }
        SessionRegistered { life, client, .. } => {
            ("session_registered", format!("user {} client {client}", life.user))
        }
        SessionClosed { life, client, .. } => {
            ("session_closed", format!("user {} client {client}", life.user))
        }
    }
}
