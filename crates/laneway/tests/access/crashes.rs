//! What a killed broker remembers of its users, and what nobody finds in its files.

use std::fs;
use std::path::{Path, PathBuf};

use laneway_wire::Identifier;
use laneway_wire::reply::{StreamHeader, read_list};
use laneway_wire::request::{DeleteStream, GetStreams};

use crate::accounts::{PASSWORD, Refused, global, login, token_login};
use crate::client::Client;
use crate::serve::Serve;

const WRONG: Refused = Refused::Evicted(9);
const CHANGED: &str = "changed-password-of-ann";

/// Three streams and two users, the middle stream goes, a password changes, the process is killed, and killed again after
/// each of three starts. Nothing of it is lost, and no secret is in any file or in the log.
#[test]
fn users_survive_being_killed_and_their_secrets_stay_secret() {
    let home = tempfile::tempdir().unwrap();
    let options = ["LANEWAY_LOG_FILTER=trace"];
    let serve = Serve::start(home.path(), 2, &options);
    let mut root = Client::sign_in(serve.address);
    for stream in ["first", "middle", "last"] {
        root.create_stream(stream);
    }
    root.create_user("ann", global(|flags| flags.read_streams = true)).payload();
    root.create_user("bob", None).payload();
    let mut ann = login(serve.address, "ann", PASSWORD).expect("ann signs in");
    let token = ann.token("token");
    root.must(&DeleteStream { stream: Identifier::Name("middle") });
    assert_eq!(ann.change_password("ann", PASSWORD, CHANGED).outcome(), 0);
    assert!(login(serve.address, "bob", "a-wrong-password").is_err());
    let mut log = serve.said();
    serve.kill();

    for _ in 0..3 {
        let serve = Serve::start(home.path(), 2, &options);
        assert_eq!(login(serve.address, "ann", PASSWORD).err(), Some(WRONG));
        let mut ann = login(serve.address, "ann", CHANGED).expect("the new password works");
        assert!(login(serve.address, "bob", PASSWORD).is_ok());
        assert!(token_login(serve.address, &token).is_ok());
        let body = ann.must(&GetStreams {});
        let streams = read_list::<StreamHeader<'_>>(&body).expect("streams");
        let found: Vec<_> = streams.iter().map(|stream| (stream.id.0, stream.name)).collect();
        assert_eq!(found, [(0, "first"), (2, "last")]);
        let mut root = Client::sign_in(serve.address);
        assert_eq!(root.user(Identifier::Name("bob")).map(|(id, ..)| id), Some(2));
        log.push_str(&serve.said());
        serve.kill();
    }

    let secrets = [PASSWORD, CHANGED, "a-wrong-password", &token];
    let mut files = files_below(home.path());
    assert!(log.contains("DEBUG") && log.contains("sign-in refused"), "the log is looked at, too: {log}");
    files.sort();
    assert!(secrets.iter().all(|secret| !log.contains(secret)), "a secret is in the log");
    for file in files {
        let bytes = fs::read(&file).unwrap();
        for secret in secrets {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} is in {}", file.display());
        }
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}
