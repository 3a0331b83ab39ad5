//! `laneway users ...` and `laneway tokens ...`: the arguments.

use std::time::Duration;

use clap::{Args, Subcommand};
use laneway_config::units::parse_duration;

use super::{ConnectionArgs, Target};

const USERS_HELP: &str = "\
Examples:
  laneway users create ann                        a random password, printed once
  laneway users create ann --grant logs/web:poll_messages
  printf '%s\\n' \"$NEW\" | laneway users create ann --password-stdin
  laneway users permissions ann --grant read_streams --grant logs:send_messages
  laneway users show ann
  laneway users deactivate ann
  laneway users delete ann";

/// Who may sign in.
#[derive(Debug, Args)]
#[command(after_help = USERS_HELP)]
pub struct UsersArgs {
    #[command(subcommand)]
    pub command: UsersCommand,
}

/// What to do with users.
#[derive(Debug, Subcommand)]
pub enum UsersCommand {
    /// Create a user.
    Create(CreateUserArgs),
    /// List all users.
    List(ListUsersArgs),
    /// Show one user and what it may do.
    Show(ShowUserArgs),
    /// Replace what a user may do.
    Permissions(PermissionsArgs),
    /// Change a password.
    Password(PasswordArgs),
    /// Give a user another name.
    Rename(RenameUserArgs),
    /// Let a user sign in again.
    Activate(UserArgs),
    /// Let a user sign in no more, and end its sessions.
    Deactivate(UserArgs),
    /// Delete a user with its tokens, and end its sessions.
    Delete(UserArgs),
}

const GRANTS_HELP: &str = "\
A grant is a list of flags, on the whole server, on one stream, or on one topic:
  --grant read_streams,read_servers       on the server
  --grant logs:manage_topics              on the stream logs
  --grant logs/web:poll_messages          on the topic web of it
On the server: manage_servers, read_servers, manage_users, read_users,
  manage_streams, read_streams, manage_topics, read_topics, poll_messages,
  send_messages, all
On a stream: manage_stream, read_stream, manage_topics, read_topics,
  poll_messages, send_messages, all
On a topic: manage_topic, read_topic, poll_messages, send_messages, all
Any one flag that a command asks for is enough; what manages includes what reads,
and what is above includes what is below. To send and to poll are two flags.
`laneway users show` prints grants with ids instead of names, which are accepted
here as well. The table is docs/permissions.md.";

/// Creates a user.
#[derive(Debug, Args)]
#[command(after_help = GRANTS_HELP)]
pub struct CreateUserArgs {
    /// Name, 3 to 50 bytes.
    pub name: String,
    /// Read the password, 3 to 100 bytes, from the first line of standard input instead of making a random one.
    #[arg(long)]
    pub password_stdin: bool,
    /// What it may do; may be repeated.
    #[arg(long = "grant", value_name = "GRANT")]
    pub grants: Vec<String>,
    /// It may not sign in yet.
    #[arg(long)]
    pub inactive: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Replaces what a user may do.
#[derive(Debug, Args)]
#[command(after_help = GRANTS_HELP)]
pub struct PermissionsArgs {
    /// Name or id of the user.
    #[arg(value_name = "USER")]
    pub user: Target,
    /// What it may do from now on; may be repeated.
    #[arg(long = "grant", value_name = "GRANT", required_unless_present = "none")]
    pub grants: Vec<String>,
    /// Nothing from now on.
    #[arg(long, conflicts_with = "grants")]
    pub none: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Lists users.
#[derive(Debug, Args)]
pub struct ListUsersArgs {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Names one user.
#[derive(Debug, Args)]
pub struct UserArgs {
    /// Name or id of the user.
    #[arg(value_name = "USER")]
    pub user: Target,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Shows one user.
#[derive(Debug, Args)]
pub struct ShowUserArgs {
    #[command(flatten)]
    pub of: UserArgs,
    /// JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

const PASSWORD_HELP: &str = "\
Reads two lines of standard input, the current password of that user and the new
one. Nobody changes a password without the current one, not even root: a user who
forgot it is deleted and created again.

Example:
  printf '%s\\n' \"$OLD\" \"$NEW\" | laneway users password ann";

/// Changes a password.
#[derive(Debug, Args)]
#[command(after_help = PASSWORD_HELP)]
pub struct PasswordArgs {
    #[command(flatten)]
    pub of: UserArgs,
}

/// Renames a user.
#[derive(Debug, Args)]
pub struct RenameUserArgs {
    /// Name or id of the user.
    #[arg(value_name = "USER")]
    pub user: Target,
    /// Its new name, 3 to 50 bytes.
    pub name: String,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

const TOKENS_HELP: &str = "\
A token signs in as its user, without the password, with the clients of the protocol
that take one. The commands of laneway itself do not: they want a password. A token
is shown once; the broker keeps its hash only.

Examples:
  laneway tokens create deploy --expires '90 d' > token
  iggy --token \"$(cat token)\" stream list       the published command line
  laneway tokens list
  laneway tokens delete deploy";

/// Personal access tokens of the user that asks.
#[derive(Debug, Args)]
#[command(after_help = TOKENS_HELP)]
pub struct TokensArgs {
    #[command(subcommand)]
    pub command: TokensCommand,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokensCommand {
    /// Make a token and print it, once.
    Create(CreateTokenArgs),
    /// List your tokens.
    List(ListUsersArgs),
    /// Delete one of your tokens.
    Delete(DeleteTokenArgs),
}

/// Makes a token.
#[derive(Debug, Args)]
pub struct CreateTokenArgs {
    /// Name, 3 to 30 bytes.
    pub name: String,
    /// How long it works. Without it: until it is deleted.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub expires: Option<Duration>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Deletes a token.
#[derive(Debug, Args)]
pub struct DeleteTokenArgs {
    /// Its name.
    pub name: String,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}
