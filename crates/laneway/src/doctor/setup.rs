//! The configuration, the port and the state of the data directory.

use std::fs::{self, File, TryLockError};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use laneway_config::Config;
use laneway_encryption::KeyRing;
use laneway_storage::version::{FORMAT, Version};

use super::Check;
use crate::root_user::RootCredentials;
use crate::{keys, logging};

/// Everything that a start checks before it makes anything.
pub fn configuration(config: &Config) -> Vec<Check> {
    let verdict = |result: Result<(), String>, name, remedy: &str| match result {
        Ok(()) => Check::ok(name, "in order"),
        Err(error) => Check::fail(name, error, remedy),
    };
    let keys = match keys::ring(&config.encryption) {
        Ok(ring) if ring.generates() => {
            Check::ok("encryption", format!("new streams are encrypted; {}", fingerprints(&ring)))
        }
        Ok(ring) if ring.has_key() => Check::ok(
            "encryption",
            format!("streams with a key of their own are encrypted; {}", fingerprints(&ring)),
        ),
        Ok(_) => Check::ok("encryption", "off"),
        Err(error) => Check::fail("encryption", error.to_string(), "a key: head -c 32 /dev/urandom | base64"),
    };
    vec![
        verdict(
            config.validate().map_err(|error| error.to_string()),
            "config",
            "`laneway config --keys` lists every key with its range",
        ),
        verdict(
            logging::check_filter(&config.log.filter).map_err(|error| error.to_string()),
            "config.log",
            "set log.filter to info",
        ),
        verdict(
            RootCredentials::decide(&config.root).map(drop).map_err(|error| error.to_string()),
            "config.root",
            "set both variables or none",
        ),
        keys,
    ]
}

/// Names of the keys, the current one first: what `encryption.retired_keys` takes.
fn fingerprints(ring: &KeyRing) -> String {
    let names: Vec<String> = ring.fingerprints().map(|name| name.to_string()).collect();
    format!("fingerprints of keys: {}", names.join(", "))
}

/// The process that holds the data directory, if one does.
pub fn running_broker(directory: &Path) -> Option<u32> {
    let path = directory.join("LOCK");
    let file = File::open(&path).ok()?;
    match file.try_lock() {
        // The lock goes with the file.
        Ok(()) => None,
        Err(TryLockError::WouldBlock) => {
            Some(fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0))
        }
        Err(TryLockError::Error(_)) => None,
    }
}

/// What the data directory is.
pub fn data_directory(directory: &Path, running: Option<u32>) -> Check {
    const NAME: &str = "data_dir";
    let shown = directory.display();
    if let Some(pid) = running {
        return Check::ok(NAME, format!("{shown} is in use by process {pid}"));
    }
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Check::ok(NAME, format!("{shown} is not there yet; the first start makes it"));
        }
        Err(error) => {
            return Check::fail(
                NAME,
                format!("{shown}: {error}"),
                "choose a directory that the broker's user owns",
            );
        }
    };
    match fs::read(directory.join("VERSION")) {
        Ok(bytes) => match readable(&bytes) {
            Ok(()) => {
                let journals = fs::read_dir(directory.join("journal")).map_or(0, |entries| entries.count());
                Check::ok(NAME, format!("{shown} holds data of this format; journals: {journals}"))
            }
            Err(error) => Check::fail(
                NAME,
                format!("{shown}/VERSION: {error}"),
                "use the broker that wrote it, or restore the file from a backup",
            ),
        },
        Err(_) if entries.count() == 0 => {
            Check::ok(NAME, format!("{shown} is empty; the first start fills it"))
        }
        Err(_) => Check::fail(
            NAME,
            format!("{shown} holds something else: there is no VERSION file in it"),
            "set data_dir to an empty directory of its own",
        ),
    }
}

/// Whether this build reads a directory with this VERSION file.
fn readable(bytes: &[u8]) -> Result<(), String> {
    match Version::parse(bytes) {
        Ok(version) if version.format <= FORMAT => Ok(()),
        Ok(version) => Err(format!("format {}, this build reads {FORMAT}", version.format)),
        Err(damage) => Err(damage.to_string()),
    }
}

/// Whether the broker could listen.
pub fn port(address: Option<SocketAddr>, running: Option<u32>) -> Check {
    const NAME: &str = "port";
    let Some(address) = address else { return Check::ok(NAME, "TCP is off") };
    match TcpListener::bind(address) {
        Ok(_) => Check::ok(NAME, format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && running.is_some() => {
            Check::ok(NAME, format!("{address} is in use, as the data directory is: by the running broker"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => Check::fail(
            NAME,
            format!("{address}: {error}"),
            "set tcp.address to an address of this machine (`ip address` lists them), or to 0.0.0.0:PORT for all",
        ),
        Err(error) => Check::fail(
            NAME,
            format!("{address}: {error}"),
            "stop who listens there (`ss -ltnp`), or set tcp.address to another port",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn directories_are_told_apart() {
        let home = tempfile::tempdir().unwrap();
        let check = |path: &Path, verdict, part: &str| {
            let check = data_directory(path, None);
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.found.contains(part), "{check:?}");
        };
        check(&home.path().join("missing"), Verdict::Ok, "not there yet");
        check(home.path(), Verdict::Ok, "empty");
        fs::write(home.path().join("letter.txt"), "dear").unwrap();
        check(home.path(), Verdict::Fail, "something else");
        fs::write(home.path().join("VERSION"), [7; 64]).unwrap();
        check(home.path(), Verdict::Fail, "VERSION");
        assert!(data_directory(home.path(), Some(12)).found.contains("process 12"));
    }

    #[test]
    fn a_busy_port_fails_unless_the_broker_of_this_directory_has_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().ok();
        assert_eq!(port(address, None).verdict, Verdict::Fail);
        assert_eq!(port(address, Some(1)).verdict, Verdict::Ok);
        drop(taken);
        assert_eq!(port(address, None).verdict, Verdict::Ok);
        assert_eq!(port(None, None).verdict, Verdict::Ok);
    }

    #[test]
    fn a_lock_shows_its_holder() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(running_broker(home.path()), None);
        let path = home.path().join("LOCK");
        fs::write(&path, "4711\n").unwrap();
        assert_eq!(running_broker(home.path()), None);
        let held = File::open(&path).unwrap();
        held.lock().unwrap();
        assert_eq!(running_broker(home.path()), Some(4711));
    }
}
