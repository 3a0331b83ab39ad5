//! Where the client subcommands connect, and as whom: flags, environment, or a connection string.

use std::env::VarError;
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
    /// Broker: HOST, HOST:PORT or iggy://USER:PASSWORD@HOST:PORT [env: LANEWAY_SERVER] [default: 127.0.0.1:8090].
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// User name [default: the one in --server] [env: LANEWAY_USERNAME] [default: iggy].
    #[arg(long, short = 'u', value_name = "NAME")]
    pub username: Option<String>,
    /// Password [default: the one in --server] [env: LANEWAY_PASSWORD]. Other users can see arguments, but no variable.
    #[arg(long, short = 'p', value_name = "PASSWORD")]
    pub password: Option<String>,
    /// How long to wait for the connection and for each answer.
    #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// What the environment says about the connection. Read here and not by the parser: what is typed inside `--server` must
/// win over it, and the parser does not tell where a value comes from.
#[derive(Clone, Default)]
struct Environment {
    server: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl Environment {
    fn read() -> Result<Self, ConnectionError> {
        Ok(Self {
            server: variable("LANEWAY_SERVER")?,
            username: variable("LANEWAY_USERNAME")?,
            password: variable("LANEWAY_PASSWORD")?,
        })
    }
}

/// A variable that is set to nothing counts as not set.
fn variable(name: &'static str) -> Result<Option<String>, ConnectionError> {
    match std::env::var(name) {
        Ok(value) => Ok(non_empty(&value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(ConnectionError::NotText(name)),
    }
}

/// A server as it was written, taken apart.
struct Server {
    host: String,
    port: u16,
    username: Option<String>,
    password: Option<String>,
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
    #[error("the variable {0} holds bytes that are no text")]
    NotText(&'static str),
    #[error("the scheme {0:?} is not known: use iggy:// or iggy+tcp://")]
    Scheme(String),
}

impl ConnectionArgs {
    /// Host and port alone, for what needs no login.
    pub fn resolve_endpoint(&self) -> Result<(String, u16), ConnectionError> {
        let (server, _) = self.server(&Environment::read()?)?;
        Ok((server.host, server.port))
    }

    /// Puts flags, environment and connection string together. What is typed wins over the environment, and what says
    /// one thing over what says several: `--username` and `--password`, `--server`, `LANEWAY_USERNAME` and
    /// `LANEWAY_PASSWORD`, `LANEWAY_SERVER`.
    ///
    /// Errors name the fix and never repeat a password.
    pub fn resolve(&self) -> Result<Connection, ConnectionError> {
        self.resolve_with(Environment::read()?)
    }

    fn resolve_with(&self, environment: Environment) -> Result<Connection, ConnectionError> {
        let (server, is_typed) = self.server(&environment)?;
        let choose = |flag: &Option<String>, string: Option<String>, variable: Option<String>| {
            let (first, second) = if is_typed { (string, variable) } else { (variable, string) };
            flag.as_deref().and_then(non_empty).or(first).or(second)
        };
        Ok(Connection {
            host: server.host,
            port: server.port,
            username: choose(&self.username, server.username, environment.username)
                .unwrap_or_else(|| USERNAME_DEFAULT.to_owned()),
            password: choose(&self.password, server.password, environment.password)
                .ok_or(ConnectionError::NoPassword)?,
            timeout: self.timeout,
        })
    }

    /// The server, and whether it was typed. A typed one leaves nothing of the other: credentials belong to their broker.
    fn server(&self, environment: &Environment) -> Result<(Server, bool), ConnectionError> {
        let typed = self.server.as_deref().filter(|server| !server.is_empty());
        let text = typed.or(environment.server.as_deref()).unwrap_or(SERVER_DEFAULT);
        Ok((split_server(text)?, typed.is_some()))
    }
}

fn split_server(server: &str) -> Result<Server, ConnectionError> {
    let rest = match server.split_once("://") {
        None => server,
        Some(("iggy" | "iggy+tcp" | "laneway", rest)) => rest,
        Some((scheme, _)) => return Err(ConnectionError::Scheme(scheme.to_owned())),
    };
    // Options of the SDK's connection strings follow a question mark; none of them concerns this tool.
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before).trim_end_matches('/');
    // A password may hold an @, a host may not.
    let (credentials, address) = match rest.rsplit_once('@') {
        Some((credentials, address)) => (credentials, address),
        None => ("", rest),
    };
    let (username, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let (host, port) = split_address(address)?;
    Ok(Server { host, port, username: non_empty(username), password: non_empty(password) })
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
            server: Some(server.into()),
            username: None,
            password: None,
            timeout: Duration::from_secs(10),
        }
    }

    fn check(server: &str, host: &str, port: u16, username: &str, password: &str) {
        let connection = args(server).resolve_with(Environment::default()).unwrap();
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
        let connection = args.resolve_with(Environment::default()).unwrap();
        assert_eq!((connection.username.as_str(), connection.password.as_str()), ("you", "other"));
    }

    #[test]
    fn what_is_typed_wins_over_the_environment() {
        let environment = Environment {
            server: Some("iggy://their:string@env:1".into()),
            username: Some("variable".into()),
            password: Some("variable-password".into()),
        };
        let found = |args: &ConnectionArgs, environment: &Environment| {
            let connection = args.resolve_with(environment.clone()).unwrap();
            (connection.host, connection.username, connection.password)
        };
        let expect = |host: &str, user: &str, password: &str| (host.into(), user.into(), password.into());
        let mut typed = args("iggy://me:secret@h:1");
        assert_eq!(found(&typed, &environment), expect("h", "me", "secret"));
        typed.username = Some("flag".into());
        assert_eq!(found(&typed, &environment), expect("h", "flag", "secret"));
        assert_eq!(found(&args("h"), &environment), expect("h", "variable", "variable-password"));
        let nothing = ConnectionArgs { server: None, ..args("") };
        assert_eq!(found(&nothing, &environment), expect("env", "variable", "variable-password"));
        let only_server = Environment { username: None, password: None, ..environment };
        assert_eq!(found(&nothing, &only_server), expect("env", "their", "string"));
        // The credentials of one broker are not shown to another.
        assert_eq!(args("h").resolve_with(only_server), Err(ConnectionError::NoPassword));
    }

    #[test]
    fn plain_addresses_need_a_password_from_elsewhere() {
        assert_eq!(args("localhost").resolve_with(Environment::default()), Err(ConnectionError::NoPassword));
        let mut with = args("localhost");
        with.password = Some("iggy".into());
        assert_eq!(with.resolve_with(Environment::default()).unwrap().address(), "localhost:8090");
        with.server = Some("::1".into());
        assert_eq!(with.resolve_with(Environment::default()).unwrap().address(), "[::1]:8090");
        with.server = Some(String::new());
        assert_eq!(with.resolve_with(Environment::default()).unwrap().address(), "127.0.0.1:8090");
        with.password = Some(String::new());
        assert_eq!(with.resolve_with(Environment::default()), Err(ConnectionError::NoPassword));
    }

    #[test]
    fn unusable_addresses_name_the_fix() {
        assert_eq!(
            args("http://h:1").resolve_with(Environment::default()),
            Err(ConnectionError::Scheme("http".into()))
        );
        assert_eq!(args("iggy://u:p@:1").resolve_with(Environment::default()), Err(ConnectionError::NoHost));
        for port in ["0", "65536", "x", ""] {
            assert_eq!(
                args(&format!("u:{port}")).resolve_with(Environment::default()),
                Err(ConnectionError::Port(port.into()))
            );
        }
    }

    #[test]
    fn debug_output_hides_the_password() {
        let connection = args("iggy://me:secret@h:1").resolve_with(Environment::default()).unwrap();
        assert!(!format!("{connection:?}").contains("secret"));
    }
}
