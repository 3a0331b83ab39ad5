//! Passwords: hashed with Argon2id into PHC strings, checked at the same cost whether the user exists or not.
//!
//! A hash costs about 19 MiB and some ten milliseconds of a core by design; run it where that delays nobody.

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};

/// Bytes of random salt: what the PHC format recommends.
const SALT_BYTES: usize = 16;

/// Why a password could not be hashed.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("the system gave no random bytes: {0}")]
    Random(getrandom::Error),
    #[error("the password cannot be hashed: {0}")]
    Hash(argon2::password_hash::Error),
}

/// Hashes a password into a PHC string with a new random salt.
pub fn hash(password: &str) -> Result<String, PasswordError> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(PasswordError::Random)?;
    let salt = SaltString::encode_b64(&salt).map_err(PasswordError::Hash)?;
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt).map_err(PasswordError::Hash)?;
    Ok(hash.to_string())
}

/// Checks passwords. Holds the hash that stands in for users that do not exist.
#[derive(Debug, Clone)]
pub struct Verifier {
    dummy: String,
}

impl Verifier {
    /// Makes the stand-in hash, once; it belongs to a random password that nobody knows.
    pub fn new() -> Result<Self, PasswordError> {
        Ok(Self { dummy: hash(&random_password(32)?)? })
    }

    /// Whether `password` is the one behind `stored`, the PHC string of the user, if there is such a user.
    ///
    /// An unknown user takes as long as a known one, so that the time tells nobody which names exist. A stored text that
    /// is no PHC string verifies nothing.
    pub fn verify(&self, password: &str, stored: Option<&str>) -> bool {
        let found = stored.and_then(|phc| PasswordHash::new(phc).ok());
        let known = found.is_some();
        let Some(hash) = found.or_else(|| PasswordHash::new(&self.dummy).ok()) else { return false };
        // The parameters come from the stored hash; these defaults only name the algorithm.
        Argon2::default().verify_password(password.as_bytes(), &hash).is_ok() && known
    }
}

/// A random password of ASCII letters and digits.
pub(crate) fn random_password(length: usize) -> Result<String, PasswordError> {
    const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    // Bytes from here on would make some letters more likely than others.
    const FAIR: u8 = (256 / LETTERS.len() * LETTERS.len()) as u8;
    let mut password = String::with_capacity(length);
    while password.len() < length {
        let mut bytes = [0; 64];
        getrandom::fill(&mut bytes).map_err(PasswordError::Random)?;
        let letters =
            bytes.iter().filter(|byte| **byte < FAIR).map(|byte| LETTERS[usize::from(*byte) % LETTERS.len()]);
        password.extend(letters.take(length - password.len()).map(char::from));
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_password_verifies_and_no_other() {
        let verifier = Verifier::new().unwrap();
        let stored = hash("correct horse").unwrap();
        assert!(stored.starts_with("$argon2id$"));
        assert!(verifier.verify("correct horse", Some(&stored)));
        assert!(!verifier.verify("correct horsf", Some(&stored)));
        assert!(!verifier.verify("", Some(&stored)));
    }

    #[test]
    fn unknown_users_and_broken_hashes_verify_nothing() {
        let verifier = Verifier::new().unwrap();
        assert!(!verifier.verify("anything", None));
        assert!(!verifier.verify("anything", Some("anything")));
        assert!(!verifier.verify("anything", Some("")));
    }

    #[test]
    fn each_hash_has_its_own_salt() {
        assert_ne!(hash("same").unwrap(), hash("same").unwrap());
    }

    #[test]
    fn random_passwords_have_the_length_and_differ() {
        let (first, second) = (random_password(24).unwrap(), random_password(24).unwrap());
        assert_ne!(first, second);
        assert!(first.len() == 24 && first.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_eq!(random_password(200).unwrap().len(), 200);
    }
}
