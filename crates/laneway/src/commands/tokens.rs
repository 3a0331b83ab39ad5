//! `laneway tokens create|list|delete`.

use std::io::{self, Write};

use laneway_client::TokenSummary;
use serde::Serialize;

use super::CommandError;
use super::connect;
use super::output::{Row, Style, moment_text, write_rows};
use super::streams::say;
use crate::cli::{CreateTokenArgs, DeleteTokenArgs, ListUsersArgs, TokensArgs, TokensCommand};

/// Runs one of the subcommands.
pub fn tokens(args: &TokensArgs) -> Result<(), CommandError> {
    match &args.command {
        TokensCommand::Create(args) => create(args),
        TokensCommand::List(args) => list(args),
        TokensCommand::Delete(args) => delete(args),
    }
}

fn create(args: &CreateTokenArgs) -> Result<(), CommandError> {
    let lives_us = match args.expires {
        None => None,
        Some(expires) => match u64::try_from(expires.as_micros()) {
            Ok(lives_us @ 1..) => Some(lives_us),
            _ => {
                return Err(CommandError::Usage(
                    "--expires: a token lives longer than that, or not at all".into(),
                ));
            }
        },
    };
    let token = connect::sign_in(&args.connection)?.create_token(&args.name, lives_us)?;
    say(&format!("created token {}, shown once:", args.name));
    writeln!(io::stdout().lock(), "{token}").map_err(CommandError::Output)
}

fn list(args: &ListUsersArgs) -> Result<(), CommandError> {
    let tokens = connect::sign_in(&args.connection)?.tokens()?;
    let rows: Vec<TokenRow> = tokens.iter().map(TokenRow::from).collect();
    write_rows(&mut io::stdout().lock(), Style::detect(args.json), &rows).map_err(CommandError::Output)
}

fn delete(args: &DeleteTokenArgs) -> Result<(), CommandError> {
    connect::sign_in(&args.connection)?.delete_token(&args.name)?;
    say(&format!("deleted token {}", args.name));
    Ok(())
}

/// A token in a list.
#[derive(Debug, Serialize)]
struct TokenRow {
    name: String,
    /// None: never.
    expires_at: Option<String>,
}

impl From<&TokenSummary> for TokenRow {
    fn from(token: &TokenSummary) -> Self {
        Self { name: token.name.clone(), expires_at: token.expires_at.map(|moment| moment_text(moment.0)) }
    }
}

impl Row for TokenRow {
    const HEADINGS: &'static [&'static str] = &["name", "expires"];

    fn cells(&self, _: Style) -> Vec<String> {
        vec![self.name.clone(), self.expires_at.clone().unwrap_or_else(|| "never".to_owned())]
    }
}
