//! The root user of a new data directory: whose name and password, and who is told.
//!
//! Decided before any thread starts, so that a mistake costs nothing; used only when the metadata has no root user yet.
//! On a later start the stored root wins and the variables are ignored. Rules: resources, section 11.1.

use std::io::{self, Write};

use laneway_config::{Root, Secret};

use crate::passwords::{PasswordError, random_password};

/// Name of the root user where none is given.
pub const USERNAME_DEFAULT: &str = "iggy";
/// Password of `--dev`, as well known as the name.
pub const PASSWORD_DEV: &str = "iggy";
/// Letters and digits of a random password: 142 bits.
const RANDOM_LENGTH: usize = 24;
/// Bytes of a user name. Source: resources, section 2.2.
const USERNAME_BYTES: std::ops::RangeInclusive<usize> = 3..=50;
/// Bytes of a password. Source: resources, section 2.2.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 3..=100;

/// Where the credentials come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Both were given.
    Given,
    /// Both were given and `--dev` as well, which then says nothing.
    GivenDespiteDev,
    /// At least one is the well-known one of `--dev`.
    WellKnown,
    /// A random password, known to nobody until it is printed.
    Random,
}

/// Name and password for a root user that does not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootCredentials {
    pub username: String,
    pub password: Secret,
    pub origin: Origin,
}

/// Why the credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error(
        "{given} is set without {missing}: set both, or neither for a random password, or use --dev for iggy/iggy"
    )]
    Half { given: &'static str, missing: &'static str },
    #[error("the root user's name has {0} bytes: LANEWAY_ROOT_USERNAME takes 3 to 50")]
    UsernameLength(usize),
    #[error("the root user's password has {0} bytes: LANEWAY_ROOT_PASSWORD takes 3 to 100")]
    PasswordLength(usize),
    #[error(transparent)]
    Password(#[from] PasswordError),
}

impl RootCredentials {
    /// Decides the credentials of a root user that may have to be created.
    pub fn decide(root: &Root) -> Result<Self, RootError> {
        let (username, password, origin) = match (&root.username, &root.password, root.dev) {
            (Some(username), Some(password), false) => (username.clone(), password.clone(), Origin::Given),
            (Some(username), Some(password), true) => {
                (username.clone(), password.clone(), Origin::GivenDespiteDev)
            }
            (username, password, true) => (
                username.clone().unwrap_or_else(|| USERNAME_DEFAULT.to_owned()),
                password.clone().unwrap_or_else(|| Secret::new(PASSWORD_DEV)),
                Origin::WellKnown,
            ),
            (None, None, false) => {
                (USERNAME_DEFAULT.to_owned(), Secret::new(random_password(RANDOM_LENGTH)?), Origin::Random)
            }
            (Some(_), None, false) => {
                return Err(RootError::Half {
                    given: "LANEWAY_ROOT_USERNAME",
                    missing: "LANEWAY_ROOT_PASSWORD",
                });
            }
            (None, Some(_), false) => {
                return Err(RootError::Half {
                    given: "LANEWAY_ROOT_PASSWORD",
                    missing: "LANEWAY_ROOT_USERNAME",
                });
            }
        };
        if !USERNAME_BYTES.contains(&username.len()) {
            return Err(RootError::UsernameLength(username.len()));
        }
        if !PASSWORD_BYTES.contains(&password.reveal().len()) {
            return Err(RootError::PasswordLength(password.reveal().len()));
        }
        Ok(Self { username, password, origin })
    }

    /// Tells the person at the console what they have to know, after the root user was created (and only then). A random
    /// password goes to `out` alone, never to the log, because logs are kept and shipped.
    pub fn announce(&self, out: &mut impl Write) -> io::Result<()> {
        match self.origin {
            Origin::Given => {}
            Origin::GivenDespiteDev => tracing::warn!("--dev is ignored: root credentials were given"),
            Origin::WellKnown => {
                tracing::warn!(
                    username = self.username,
                    "the root user has a well-known password: for development only"
                );
            }
            Origin::Random => {
                writeln!(out, "================================================================")?;
                writeln!(out, "  Root user created. This is shown once; write it down:")?;
                writeln!(out, "    username: {}", self.username)?;
                writeln!(out, "    password: {}", self.password.reveal())?;
                writeln!(out, "  laneway's commands read them from LANEWAY_USERNAME and LANEWAY_PASSWORD.")?;
                writeln!(out, "================================================================")?;
                out.flush()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(
        username: Option<&str>,
        password: Option<&str>,
        dev: bool,
    ) -> Result<RootCredentials, RootError> {
        RootCredentials::decide(&Root {
            username: username.map(Into::into),
            password: password.map(Secret::new),
            dev,
        })
    }

    fn check(username: Option<&str>, password: Option<&str>, dev: bool, expected: (&str, &str, Origin)) {
        let found = decide(username, password, dev).unwrap();
        assert_eq!((found.username.as_str(), found.password.reveal(), found.origin), expected);
    }

    #[test]
    fn given_credentials_win_and_dev_fills_what_is_missing() {
        check(Some("admin"), Some("secret"), false, ("admin", "secret", Origin::Given));
        check(Some("admin"), Some("secret"), true, ("admin", "secret", Origin::GivenDespiteDev));
        check(Some("admin"), None, true, ("admin", "iggy", Origin::WellKnown));
        check(None, Some("secret"), true, ("iggy", "secret", Origin::WellKnown));
        check(None, None, true, ("iggy", "iggy", Origin::WellKnown));
    }

    #[test]
    fn half_a_pair_is_refused_and_names_the_other_half() {
        let error = decide(Some("admin"), None, false).unwrap_err().to_string();
        assert!(error.starts_with("LANEWAY_ROOT_USERNAME is set without LANEWAY_ROOT_PASSWORD"), "{error}");
        let error = decide(None, Some("secret"), false).unwrap_err().to_string();
        assert!(error.starts_with("LANEWAY_ROOT_PASSWORD is set without LANEWAY_ROOT_USERNAME"), "{error}");
    }

    #[test]
    fn lengths_are_checked_at_both_ends() {
        for (username, password, ok) in
            [(2, 3, false), (3, 3, true), (50, 100, true), (51, 3, false), (3, 101, false)]
        {
            let found = decide(Some(&"u".repeat(username)), Some(&"p".repeat(password)), false);
            assert_eq!(found.is_ok(), ok, "{username} {password}");
        }
        assert!(matches!(decide(Some("root"), Some("pw"), false), Err(RootError::PasswordLength(2))));
    }

    #[test]
    fn only_a_random_password_is_printed() {
        let mut out = Vec::new();
        let random = decide(None, None, false).unwrap();
        assert_eq!((random.username.as_str(), random.origin), ("iggy", Origin::Random));
        random.announce(&mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains(random.password.reveal()));
        for given in [decide(Some("admin"), Some("secret"), false), decide(None, None, true)] {
            let mut out = Vec::new();
            given.unwrap().announce(&mut out).unwrap();
            assert!(out.is_empty());
        }
    }
}
