//! `laneway users ...`.

use std::io::{self, BufRead, Write};

use laneway_client::{Client, NewUser, UserDetails, UserSummary};
use laneway_wire::permissions::Permissions;
use laneway_wire::{Identifier, Status};
use serde::Serialize;

use super::CommandError;
use super::connect::{self, identifier};
use super::grants;
use super::output::{Row, Style, moment_text, write_json, write_rows};
use super::streams::say;
use crate::cli::{
    CreateUserArgs, ListUsersArgs, PasswordArgs, PermissionsArgs, RenameUserArgs, ShowUserArgs, Target,
    UserArgs, UsersArgs, UsersCommand,
};
use crate::passwords::random_password;

/// Letters and digits of a random password: 142 bits.
const RANDOM_LENGTH: usize = 24;

/// Runs one of the subcommands.
pub fn users(args: &UsersArgs) -> Result<(), CommandError> {
    match &args.command {
        UsersCommand::Create(args) => create(args),
        UsersCommand::List(args) => list(args),
        UsersCommand::Show(args) => show(args),
        UsersCommand::Permissions(args) => permissions(args),
        UsersCommand::Password(args) => password(args),
        UsersCommand::Rename(args) => rename(args),
        UsersCommand::Activate(args) => set_active(args, true),
        UsersCommand::Deactivate(args) => set_active(args, false),
        UsersCommand::Delete(args) => delete(args),
    }
}

fn create(args: &CreateUserArgs) -> Result<(), CommandError> {
    let given = if args.password_stdin { Some(read_lines::<1>(&mut io::stdin().lock())?) } else { None };
    let random = match given {
        Some(_) => None,
        None => Some(random_password(RANDOM_LENGTH).map_err(|error| CommandError::Usage(error.to_string()))?),
    };
    let mut client = connect::sign_in(&args.connection)?;
    let permissions = match args.grants.as_slice() {
        [] => None,
        grants => Some(grants::resolve(&mut client, grants)?),
    };
    let [password] = given.or_else(|| random.clone().map(|password| [password])).unwrap_or_default();
    client.create_user(&NewUser {
        username: &args.name,
        password: &password,
        active: !args.inactive,
        permissions,
    })?;
    say(&format!("created user {}", args.name));
    match random {
        Some(password) => {
            say("its password, shown once:");
            writeln!(io::stdout().lock(), "{password}").map_err(CommandError::Output)
        }
        None => Ok(()),
    }
}

fn list(args: &ListUsersArgs) -> Result<(), CommandError> {
    let users = connect::sign_in(&args.connection)?.users()?;
    let rows: Vec<UserRow> = users.iter().map(UserRow::from).collect();
    write_rows(&mut io::stdout().lock(), Style::detect(args.json), &rows).map_err(CommandError::Output)
}

fn show(args: &ShowUserArgs) -> Result<(), CommandError> {
    let mut client = connect::sign_in(&args.of.connection)?;
    let details = find(&mut client, &args.of.user)?;
    let user = UserRow::from(&details.summary);
    let grants = details.permissions.as_ref().map(grants::texts).unwrap_or_default();
    let mut out = io::stdout().lock();
    let style = Style::detect(args.json);
    let written = match style {
        Style::Json => write_json(&mut out, &UserAndGrants { user, grants }),
        // The first line is the user, the others are its grants, as `permissions` takes them.
        Style::Plain | Style::Table => write_rows(&mut out, style, &[user])
            .and_then(|()| grants.iter().try_for_each(|grant| writeln!(out, "{grant}"))),
    };
    written.map_err(CommandError::Output)
}

fn permissions(args: &PermissionsArgs) -> Result<(), CommandError> {
    let mut client = connect::sign_in(&args.connection)?;
    let permissions: Option<Permissions> = match args.none {
        true => None,
        false => Some(grants::resolve(&mut client, &args.grants)?),
    };
    client.update_permissions(&identifier(&args.user), permissions)?;
    let may = if args.none { "has no permissions now" } else { "may do this now, and nothing else" };
    say(&format!("user {} {may}", args.user));
    Ok(())
}

fn password(args: &PasswordArgs) -> Result<(), CommandError> {
    let UserArgs { user, connection } = &args.of;
    let [current, new] = read_lines::<2>(&mut io::stdin().lock())?;
    let mut client = connect::sign_in(connection)?;
    client.change_password(&identifier(user), &current, &new).map_err(|error| match error.status() {
        Some(Status::InvalidCredentials) => CommandError::WrongPassword { user: user.to_string() },
        _ => error.into(),
    })?;
    say(&format!("changed the password of user {user}"));
    Ok(())
}

fn rename(args: &RenameUserArgs) -> Result<(), CommandError> {
    connect::sign_in(&args.connection)?.rename_user(&identifier(&args.user), &args.name)?;
    say(&format!("user {} is called {} now", args.user, args.name));
    Ok(())
}

fn set_active(args: &UserArgs, active: bool) -> Result<(), CommandError> {
    connect::sign_in(&args.connection)?.set_user_active(&identifier(&args.user), active)?;
    let may = if active { "may sign in" } else { "may sign in no more; its sessions have ended" };
    say(&format!("user {} {may}", args.user));
    Ok(())
}

fn delete(args: &UserArgs) -> Result<(), CommandError> {
    connect::sign_in(&args.connection)?.delete_user(&identifier(&args.user))?;
    say(&format!("deleted user {}", args.user));
    Ok(())
}

fn find(client: &mut Client, user: &Target) -> Result<UserDetails, CommandError> {
    let name: Identifier<'_> = identifier(user);
    client.user(&name)?.ok_or_else(|| CommandError::Missing {
        what: format!("user {user}"),
        hint: "see `laneway users list`, or create it with `laneway users create`".to_owned(),
    })
}

/// Lines of standard input, without their ends. Passwords come this way, because arguments are seen by everybody.
fn read_lines<const N: usize>(input: &mut impl BufRead) -> Result<[String; N], CommandError> {
    let mut lines = [const { String::new() }; N];
    for line in &mut lines {
        let bytes = input.read_line(line).map_err(|error| CommandError::Usage(error.to_string()))?;
        if bytes == 0 {
            return Err(CommandError::Usage(format!("standard input has fewer than {N} lines")));
        }
        line.truncate(line.trim_end_matches(['\n', '\r']).len());
    }
    Ok(lines)
}

#[derive(Debug, Serialize)]
struct UserAndGrants {
    #[serde(flatten)]
    user: UserRow,
    grants: Vec<String>,
}

/// A user in a list.
#[derive(Debug, Serialize)]
struct UserRow {
    id: u32,
    username: String,
    status: &'static str,
    created_at: String,
}

impl From<&UserSummary> for UserRow {
    fn from(user: &UserSummary) -> Self {
        Self {
            id: user.id.0,
            username: user.username.clone(),
            status: if user.active { "active" } else { "inactive" },
            created_at: moment_text(user.created_at.0),
        }
    }
}

impl Row for UserRow {
    const HEADINGS: &'static [&'static str] = &["id", "username", "status", "created"];

    fn cells(&self, _: Style) -> Vec<String> {
        vec![self.id.to_string(), self.username.clone(), self.status.to_owned(), self.created_at.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_whole_lines() {
        let read = |text: &str| read_lines::<2>(&mut text.as_bytes()).ok();
        assert_eq!(read("old one\nnew one\n"), Some(["old one".into(), "new one".into()]));
        assert_eq!(read("old\r\nnew"), Some(["old".into(), "new".into()]));
        assert_eq!(read("only one\n"), None);
    }
}
