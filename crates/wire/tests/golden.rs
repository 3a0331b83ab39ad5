//! Golden bytes: what this build encodes is what the files hold, and what they hold decodes and encodes to itself.
//!
//! Files are added, never changed: a file that no longer matches is a change of the wire. To write the files of new
//! samples, run this test with `LANEWAY_GOLDEN=write`; files that exist are left alone. The `spec-*` files were written
//! from the pages of the reference.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use common::samples::{self, Kind};
use common::{hex, recode};
use laneway_wire::{Code, FrameDecoder};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn every_sample_is_its_golden_file() {
    let write = std::env::var("LANEWAY_GOLDEN").is_ok_and(|mode| mode == "write");
    for sample in samples::all() {
        let path = directory().join(format!("{}.hex", sample.name));
        if write && !path.exists() {
            std::fs::write(&path, hex::format(&sample.name, &sample.bytes))
                .expect("the directory is writable");
        }
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let golden = hex::parse(&text);
        assert_eq!(sample.bytes, golden, "{} is encoded as before", sample.name);
        assert_eq!(sample.recode(&golden).as_ref(), Ok(&golden), "{} decodes to itself", sample.name);
    }
}

#[test]
fn every_golden_file_has_its_sample() {
    let samples: BTreeSet<String> =
        samples::all().iter().map(|sample| format!("{}.hex", sample.name)).collect();
    let files: BTreeSet<String> = std::fs::read_dir(directory())
        .expect("the directory exists")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("ASCII names"))
        .collect();
    assert_eq!(files, samples);
}

#[test]
fn every_command_has_a_request_and_a_reply() {
    let (mut requests, mut replies) = (BTreeSet::new(), BTreeSet::new());
    for sample in samples::all() {
        match sample.kind {
            Kind::Request => {
                let mut decoder = FrameDecoder::new();
                decoder.buffer().extend_from_slice(&sample.bytes);
                let header = decoder.poll_frame().expect("valid").expect("complete").header;
                requests.extend(recode::code_of(&header, header.validate().expect("valid")));
            }
            Kind::Reply(code, _) => drop(replies.insert(code)),
            _ => {}
        }
    }
    for code in Code::ALL.iter().filter(|code| !code.is_legacy_login()) {
        // The two logins share operation and reply; a cancellation has no reply.
        let shared = *code == Code::LoginRegisterWithPat;
        assert!(shared || requests.contains(code), "{code} has a request");
        assert!(
            shared || *code == Code::CancelDeferredRequest || replies.contains(code),
            "{code} has a reply"
        );
    }
}
