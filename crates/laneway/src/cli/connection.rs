//! Where the client subcommands connect, and as whom: flags, environment, or a connection string.

use std::time::Duration;

use clap::Args;
use laneway_config::units::parse_duration;

/// Where a broker without any configuration listens.
const SERVER_DEFAULT: &str = "127.0.0.1:8090";
/// Port of the binary protocol where none is named.
const PORT_DEFAULT: u16 = 8090;
/// User name where none is given: the root user of a broker that was not told otherwise.
const USERNAME_DEFAULT: &str = "iggy";

/// The arguments that every client subcommand shares.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// Broker: HOST, HOST:PORT or iggy://USER:PASSWORD@HOST:PORT.
    #[arg(
        long,
        value_name = "SERVER",
        env = "LANEWAY_SERVER",
        default_value = SERVER_DEFAULT,
        hide_env_values = true
    )]
    pub server: String,
    /// User name [default: the one in --server, else iggy].
    #[arg(long, short = 'u', value_name = "NAME", env = "LANEWAY_USERNAME")]
    pub username: Option<String>,
    /// Password [default: the one in --server]. Prefer the variable: other users can see arguments.
    #[arg(long, short = 'p', value_name = "PASSWORD", env = "LANEWAY_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,
    /// How long to wait for the connection and for each answer.
    #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// A resolved target: where to connect, and as whom. Created by [`ConnectionArgs::resolve`].
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    /// Host name or address, an IPv6 address without its brackets.
    pub host: String,
    pub port: u16,
    pub username: String,
    pub password: String,
    /// Longest wait for the connection and for each answer.
    pub timeout: Duration,
}

/// Why the connection arguments say nothing usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    #[error(
        "no password: set LANEWAY_PASSWORD, pass --password, or use --server iggy://USER:PASSWORD@HOST:PORT"
    )]
    NoPassword,
    #[error("the server address names no host: write HOST:PORT or iggy://USER:PASSWORD@HOST:PORT")]
    NoHost,
    #[error("{0:?} is not a port: write a number from 1 to 65535 after HOST:")]
    Port(String),
    #[error("the scheme {0:?} is not known: use iggy:// or iggy+tcp://")]
    Scheme(String),
}

impl ConnectionArgs {
    /// Host and port alone, for what needs no login.
    pub fn resolve_endpoint(&self) -> Result<(String, u16), ConnectionError> {
        let (_, address) = self.split_server()?;
        split_address(address)
    }

    /// Puts flags, environment and connection string together; `--username` and `--password` win over the string.
    ///
    /// Errors name the fix and never repeat a password.
    pub fn resolve(&self) -> Result<Connection, ConnectionError> {
        let (credentials, address) = self.split_server()?;
        let (host, port) = split_address(address)?;
        let (user, password) = match credentials.map(|c| c.split_once(':').unwrap_or((c, ""))) {
            Some((user, password)) => (non_empty(user), non_empty(password)),
            None => (None, None),
        };
        Ok(Connection {
            host,
            port,
            username: given(&self.username).or(user).unwrap_or_else(|| USERNAME_DEFAULT.to_owned()),
            password: given(&self.password).or(password).ok_or(ConnectionError::NoPassword)?,
            timeout: self.timeout,
        })
    }

    /// Credentials (`user:password`, if any) and address of the server argument.
    fn split_server(&self) -> Result<(Option<&str>, &str), ConnectionError> {
        let server = if self.server.is_empty() { SERVER_DEFAULT } else { self.server.as_str() };
        let rest = match server.split_once("://") {
            None => server,
            Some(("iggy" | "iggy+tcp" | "laneway", rest)) => rest,
            Some((scheme, _)) => return Err(ConnectionError::Scheme(scheme.to_owned())),
        };
        // Options of the SDK's connection strings follow a question mark; none of them concerns this tool.
        let rest = rest.split_once('?').map_or(rest, |(before, _)| before).trim_end_matches('/');
        // A password may hold an @, a host may not.
        Ok(match rest.rsplit_once('@') {
            Some((credentials, address)) => (Some(credentials), address),
            None => (None, rest),
        })
    }
}

impl Connection {
    /// `host:port` as the standard library resolves it and as a person reads it.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{} (password hidden)", self.username, self.address())
    }
}

/// A variable that is set to nothing counts as not set.
fn given(text: &Option<String>) -> Option<String> {
    text.as_deref().and_then(non_empty)
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn split_address(address: &str) -> Result<(String, u16), ConnectionError> {
    let (host, port) = if let Some(bracketed) = address.strip_prefix('[') {
        let (host, after) = bracketed.split_once(']').ok_or(ConnectionError::NoHost)?;
        (host, after.strip_prefix(':'))
    } else {
        match address.split_once(':') {
            // More than one colon and no brackets: an IPv6 address without a port.
            Some((_, after)) if after.contains(':') => (address, None),
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        }
    };
    if host.is_empty() {
        return Err(ConnectionError::NoHost);
    }
    let port = match port {
        None => PORT_DEFAULT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| ConnectionError::Port(text.to_owned()))?,
    };
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(server: &str) -> ConnectionArgs {
        ConnectionArgs {
            server: server.into(),
            username: None,
            password: None,
            timeout: Duration::from_secs(10),
        }
    }

    fn check(server: &str, host: &str, port: u16, username: &str, password: &str) {
        let connection = args(server).resolve().unwrap();
        let found = (
            connection.host.as_str(),
            connection.port,
            connection.username.as_str(),
            connection.password.as_str(),
        );
        assert_eq!(found, (host, port, username, password), "{server}");
    }

    #[test]
    fn connection_strings_are_taken_apart() {
        check("iggy://me:secret@example.org:9000", "example.org", 9000, "me", "secret");
        check("iggy+tcp://me:se:c@ret@example.org", "example.org", 8090, "me", "se:c@ret");
        check("iggy://me:secret@[::1]:9000/?heartbeat_interval=5s", "::1", 9000, "me", "secret");
    }

    #[test]
    fn flags_win_over_the_string() {
        let mut args = args("iggy://me:secret@h:1");
        args.username = Some("you".into());
        args.password = Some("other".into());
        let connection = args.resolve().unwrap();
        assert_eq!((connection.username.as_str(), connection.password.as_str()), ("you", "other"));
    }

    #[test]
    fn plain_addresses_need_a_password_from_elsewhere() {
        assert_eq!(args("localhost").resolve(), Err(ConnectionError::NoPassword));
        let mut with = args("localhost");
        with.password = Some("iggy".into());
        assert_eq!(with.resolve().unwrap().address(), "localhost:8090");
        with.server = "::1".into();
        assert_eq!(with.resolve().unwrap().address(), "[::1]:8090");
        with.server = String::new();
        assert_eq!(with.resolve().unwrap().address(), "127.0.0.1:8090");
        with.password = Some(String::new());
        assert_eq!(with.resolve(), Err(ConnectionError::NoPassword));
    }

    #[test]
    fn unusable_addresses_name_the_fix() {
        assert_eq!(args("http://h:1").resolve(), Err(ConnectionError::Scheme("http".into())));
        assert_eq!(args("iggy://u:p@:1").resolve(), Err(ConnectionError::NoHost));
        for port in ["0", "65536", "x", ""] {
            assert_eq!(args(&format!("u:{port}")).resolve(), Err(ConnectionError::Port(port.into())));
        }
    }

    #[test]
    fn debug_output_hides_the_password() {
        let connection = args("iggy://me:secret@h:1").resolve().unwrap();
        assert!(!format!("{connection:?}").contains("secret"));
    }
}
