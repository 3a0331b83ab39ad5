//! `laneway serve`: the flags. Each one is the twin of a configuration key; their values are checked by `laneway-config`,
//! so that a flag, a variable and a file line that say the same wrong thing get the same answer.

use std::path::PathBuf;

use clap::Args;
use laneway_config::{ConfigError, FlagValue, Resolved, load};

const AFTER_HELP: &str = "\
Nothing is required. The first start creates the root user: from
LANEWAY_ROOT_USERNAME and LANEWAY_ROOT_PASSWORD (IGGY_ROOT_* work too), as
iggy/iggy with --dev, or else as iggy with a random password, printed once.

Examples:
  laneway serve --dev
  laneway serve --data-dir /var/lib/laneway --config /etc/laneway.toml
  LANEWAY_SESSIONS_TIMEOUT=30m laneway --set connections.max=1000

SIGTERM and SIGINT drain and exit 0; a second one ends the process at once,
with 128 plus its number.";

/// Flags of the broker. The ones that are absent leave the environment, the file and the defaults in charge.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ServeArgs {
    /// Directory of all data; created when missing [default: ./laneway-data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Address of the TCP listener, or `off` [default: 127.0.0.1:8090]. Port 0 picks a free one.
    #[arg(long, value_name = "ADDR|off")]
    pub tcp: Option<String>,
    /// Address of the HTTP listener, or `off` [default: off].
    #[arg(long, value_name = "ADDR|off")]
    pub http: Option<String>,
    /// Number of shards, or `auto` for one per available core [default: auto].
    #[arg(long, value_name = "N|auto")]
    pub shards: Option<String>,
    /// TOML file with settings [environment: LANEWAY_CONFIG].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,laneway_storage=debug` [default: info].
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,
    /// Any other key of the configuration; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// For development: a new root user gets the well-known password iggy/iggy.
    #[arg(long)]
    pub dev: bool,
}

impl ServeArgs {
    /// Puts flags, the environment of the process, the file and the defaults together.
    pub fn load(&self) -> Result<Resolved, ConfigError> {
        let variable =
            || std::env::var_os("LANEWAY_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        let file = self.config.clone().or_else(variable);
        load(file.as_deref(), std::env::vars_os(), &self.flag_values()?)
    }

    /// The flags that were given, as values of keys. A flag of its own wins over a `--set` of the same key.
    pub fn flag_values(&self) -> Result<Vec<FlagValue>, ConfigError> {
        let mut values =
            self.set.iter().map(|text| FlagValue::parse_set(text)).collect::<Result<Vec<_>, _>>()?;
        let flags = [
            ("--data-dir", "data_dir", self.data_dir.as_deref()),
            ("--tcp", "tcp.address", self.tcp.as_deref()),
            ("--http", "http.address", self.http.as_deref()),
            ("--shards", "shards", self.shards.as_deref()),
            ("--log", "log.filter", self.log.as_deref()),
            ("--dev", "dev", self.dev.then_some("true")),
        ];
        values.extend(flags.into_iter().filter_map(|(flag, key, value)| {
            Some(FlagValue { flag: flag.to_owned(), key: key.to_owned(), value: value?.to_owned() })
        }));
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};
    use laneway_config::{keys, resolve};

    use super::super::{Cli, Command};
    use super::*;

    fn parse(words: &[&str]) -> ServeArgs {
        match Cli::try_parse_from([&["laneway"], words].concat()).unwrap().into_command() {
            Command::Serve(args) => args,
            other => panic!("not serve: {other:?}"),
        }
    }

    #[test]
    fn every_flag_of_the_table_is_there_and_every_flag_sets_its_key() {
        let not_keys = ["config", "set", "help", "version"];
        let there: BTreeSet<String> = Cli::command()
            .get_arguments()
            .filter_map(|arg| arg.get_long())
            .filter(|long| !not_keys.contains(long))
            .map(|long| format!("--{long}"))
            .collect();
        let table: BTreeSet<String> = keys::KEYS.iter().filter_map(|key| key.flag).map(Into::into).collect();
        assert_eq!(there, table);
        let all = parse(&[
            "--data-dir",
            "d",
            "--tcp",
            "off",
            "--http",
            "off",
            "--shards",
            "1",
            "--log",
            "warn",
            "--dev",
        ]);
        for value in all.flag_values().unwrap() {
            assert_eq!(keys::key(&value.key).unwrap().flag, Some(value.flag.as_str()));
        }
        assert_eq!(all.flag_values().unwrap().len(), table.len());
    }

    #[test]
    fn help_shows_the_defaults_of_the_table() {
        let command = Cli::command();
        for key in keys::KEYS.iter().filter(|key| key.flag.is_some() && key.name != "dev") {
            let long = key.flag.unwrap().trim_start_matches("--");
            let argument = command.get_arguments().find(|arg| arg.get_long() == Some(long)).unwrap();
            let help = argument.get_help().unwrap().to_string();
            assert!(help.contains(&format!("[default: {}]", key.default)), "{}: {help}", key.name);
        }
    }

    #[test]
    fn a_flag_wins_over_a_set_of_the_same_key() {
        let args = parse(&["--set", "shards=3", "--shards", "2", "--set", "sessions.timeout=50s"]);
        let config = resolve(None, [], &args.flag_values().unwrap()).unwrap().config;
        assert_eq!((config.shards, config.sessions.timeout.as_secs()), (Some(2), 50));
    }
}
