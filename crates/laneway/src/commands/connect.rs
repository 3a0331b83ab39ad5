//! From connection arguments to a client that is signed in.

use laneway_client::{Client, Credentials, Settings};

use super::CommandError;
use crate::cli::{Connection, ConnectionArgs, Target};
use laneway_wire::Identifier;

/// Resolves the arguments, connects and signs in.
pub fn sign_in(args: &ConnectionArgs) -> Result<Client, CommandError> {
    let connection = args.resolve()?;
    let credentials =
        Credentials { username: connection.username.clone(), password: connection.password.clone() };
    Ok(Client::connect(settings(&connection, Some(credentials)))?)
}

/// Connects without signing in: enough for a ping.
pub fn visit(args: &ConnectionArgs) -> Result<Client, CommandError> {
    let (host, port) = args.resolve_endpoint()?;
    let nobody =
        Connection { host, port, username: String::new(), password: String::new(), timeout: args.timeout };
    Ok(Client::connect(settings(&nobody, None))?)
}

fn settings(connection: &Connection, credentials: Option<Credentials>) -> Settings {
    Settings { address: connection.address(), credentials, timeout: connection.timeout }
}

/// A stream or topic of the command line as the protocol names it.
pub fn identifier(target: &Target) -> Identifier<'_> {
    match target {
        Target::Id(id) => Identifier::Numeric(*id),
        Target::Name(name) => Identifier::Name(name),
    }
}
