//! Damaged golden bytes: cut at every byte and flipped at every byte, they are refused or read as another valid value,
//! and never panic. A whole frame that is cut is never a frame.

mod common;

use common::samples::{self, Kind};

/// What is decoded from damaged bytes must encode to something that decodes to itself.
fn check(sample: &samples::Sample, damaged: &[u8]) {
    if let Ok(once) = sample.recode(damaged) {
        assert_eq!(sample.recode(&once).as_ref(), Ok(&once), "{}", sample.name);
    }
}

#[test]
fn every_truncation_is_refused_or_another_value() {
    for sample in samples::all() {
        for end in 0..sample.bytes.len() {
            let cut = &sample.bytes[..end];
            check(&sample, cut);
            let framed =
                matches!(sample.kind, Kind::Request | Kind::Reply(..) | Kind::Eviction | Kind::Record);
            assert!(!framed || sample.recode(cut).is_err(), "{} cut at {end}", sample.name);
        }
    }
}

#[test]
fn every_truncated_body_is_refused_or_another_value() {
    // As above, but with a size field that agrees, so that the body decoders see the cut.
    for sample in samples::all() {
        for end in 256..sample.bytes.len() {
            let mut cut = sample.bytes[..end].to_vec();
            if matches!(sample.kind, Kind::Request | Kind::Reply(..)) {
                cut[48..52].copy_from_slice(&(end as u32).to_le_bytes());
                check(&sample, &cut);
            }
        }
    }
}

#[test]
fn every_flipped_byte_is_refused_or_another_value() {
    for sample in samples::all() {
        let mut damaged = sample.bytes.clone();
        for at in 0..damaged.len() {
            for flip in [0x01, 0x80, 0xff] {
                damaged[at] ^= flip;
                check(&sample, &damaged);
                damaged[at] ^= flip;
            }
        }
    }
}

#[test]
fn bytes_behind_an_exact_body_are_refused() {
    for name in [
        "spec-5.2.1-update-resource-body",
        "spec-5.6-fetch-body",
        "spec-reads-1.4-deferred-poll-body",
        "spec-4.6-send-body",
    ] {
        let sample =
            samples::all().into_iter().find(|sample| sample.name == name).expect("the sample exists");
        let longer = [&sample.bytes[..], &[0]].concat();
        assert!(sample.recode(&longer).is_err(), "{name}");
    }
    // A fixed body tolerates them.
    for code in
        [laneway_wire::Code::GetTopic, laneway_wire::Code::PollMessages, laneway_wire::Code::BindSession]
    {
        let sample = samples::all()
            .into_iter()
            .find(|sample| sample.name == format!("{:03}-request-{}", code.number(), code.name()))
            .expect("the sample exists");
        let body = [&sample.bytes[256..], &[1, 2, 3]].concat();
        assert_eq!(common::recode::request_body(code, &body).as_deref(), Ok(&sample.bytes[256..]));
    }
}
