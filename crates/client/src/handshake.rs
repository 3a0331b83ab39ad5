//! How a session comes to be: who the client is, how it signs in, and how it shows later that it is the same one.
//! Source: wire protocol, sections 2.3 to 2.5.

use std::fmt;

use laneway_wire::primitive::Secret;
use laneway_wire::reply::{Record, Registered};
use laneway_wire::request::{BindSecret, BindSession, LoginRegister, VersionPrefix};
use laneway_wire::{ClientId, Op, ProtocolVersion, Reader, RequestNumber, SessionEpoch, UserId};

use crate::error::{ClientError, PROTOCOL};

/// How this client names itself to the broker.
const VERSION: VersionPrefix<'static> =
    VersionPrefix { protocol: PROTOCOL, sdk_name: "laneway", sdk_version: env!("CARGO_PKG_VERSION") };

/// What makes one session different from every other. Made of random bytes by the driver, never reused.
#[derive(Clone)]
pub struct Identity {
    /// Id of the session; never 0.
    pub client: ClientId,
    /// Proves to the broker that a new connection belongs to the session.
    secret: [u8; 32],
    /// Start of the request checksums, which are identities and not digests.
    salt: u128,
}

impl Identity {
    /// Random bytes that an identity is made of.
    pub const RANDOM_BYTES: usize = 64;

    /// Builds an identity from random bytes.
    pub fn from_random(random: &[u8; Self::RANDOM_BYTES]) -> Self {
        let (client, rest) = random.split_first_chunk::<16>().expect("64 bytes hold 16");
        let (salt, rest) = rest.split_first_chunk::<16>().expect("48 bytes hold 16");
        let secret = *rest.first_chunk::<32>().expect("32 bytes are left");
        // Version 4, variant 1: what other clients call a random UUID. It also keeps the id from being 0.
        let client = u128::from_le_bytes(*client) & !(0xf << 76 | 0x3 << 62) | 4 << 76 | 2 << 62;
        Self { client: ClientId(client), secret, salt: u128::from_le_bytes(*salt) }
    }

    /// Identity of one request, the same for every resend of it; never 0.
    pub fn request_checksum(&self, number: RequestNumber) -> u128 {
        match self.salt.wrapping_add(u128::from(number.0)) {
            0 => u128::MAX,
            checksum => checksum,
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:032x})", self.client.0)
    }
}

/// User name and password.
#[derive(Clone)]
pub struct Credentials {
    /// 3 to 50 bytes.
    pub username: String,
    /// 3 to 100 bytes.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({}, password hidden)", self.username)
    }
}

/// What the broker says when a session is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedIn {
    /// The user that the session acts as.
    pub user: UserId,
    /// The session epoch; never 0.
    pub session: SessionEpoch,
    /// Protocol that the server names.
    pub protocol: ProtocolVersion,
    /// Version of the broker's build.
    pub server_version: String,
}

impl SignedIn {
    /// Reads the payload of a Register or BindSession reply. Bytes after it are ignored, as clients do it.
    pub fn parse(payload: &[u8]) -> Result<Self, ClientError> {
        let registered = Registered::read(&mut Reader::new(payload))?;
        if registered.session.0 == 0 {
            return Err(ClientError::Protocol { what: "a session epoch of 0".into() });
        }
        Ok(Self {
            user: registered.user_id,
            session: registered.session,
            protocol: registered.protocol,
            server_version: registered.server_version.to_owned(),
        })
    }
}

/// A registration with user name and password.
pub(crate) fn register<'a>(identity: &Identity, credentials: &'a Credentials) -> LoginRegister<'a> {
    LoginRegister {
        version: VERSION,
        bind_secret: BindSecret(identity.secret),
        username: &credentials.username,
        password: Secret(credentials.password.as_bytes()),
        context: &[],
    }
}

/// The request that attaches a connection to a session.
pub(crate) fn bind(identity: &Identity, session: SessionEpoch, watermark: Op) -> BindSession<'static> {
    BindSession {
        version: VERSION,
        client: identity.client,
        session,
        metadata_watermark: watermark,
        bind_secret: BindSecret(identity.secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use laneway_wire::request::Request;

    #[test]
    fn identity_is_a_random_uuid_and_never_zero() {
        let zero = Identity::from_random(&[0; 64]);
        assert_eq!(format!("{:032x}", zero.client.0), "00000000000040008000000000000000");
        let ones = Identity::from_random(&[0xff; 64]);
        assert_eq!(format!("{:032x}", ones.client.0), "ffffffffffff4fffbfffffffffffffff");
        assert_ne!(zero.request_checksum(RequestNumber(0)), 0);
        assert_ne!(ones.request_checksum(RequestNumber(1)), 0);
        assert_ne!(ones.request_checksum(RequestNumber(1)), ones.request_checksum(RequestNumber(2)));
    }

    #[test]
    fn register_body_is_laid_out_as_the_reference_shows() {
        let identity = Identity::from_random(&[7; 64]);
        let mut out = BytesMut::new();
        let credentials = Credentials { username: "iggy".into(), password: "iggy".into() };
        register(&identity, &credentials).encode(&mut out).unwrap();
        let mut expected = vec![0x02, 0x30, 0, 0, 7];
        expected.extend(b"laneway");
        expected.push(VERSION.sdk_version.len() as u8);
        expected.extend(VERSION.sdk_version.as_bytes());
        expected.extend([7; 32]);
        expected.extend(b"\x04iggy\x04iggy\0\0\0\0");
        assert_eq!(out.as_ref(), expected);
        assert!(!format!("{credentials:?} {identity:?}").contains("iggy\""));
    }

    #[test]
    fn answer_of_the_reference_is_read() {
        let mut payload = vec![0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0x30, 0, 0, 5];
        payload.extend(b"0.1.0");
        let signed_in = SignedIn::parse(&payload).unwrap();
        assert_eq!((signed_in.user, signed_in.session), (UserId(0), SessionEpoch(7)));
        assert_eq!(
            (signed_in.protocol, signed_in.server_version.as_str()),
            (ProtocolVersion::V0_12_1, "0.1.0")
        );
        for cut in 0..payload.len() {
            assert!(SignedIn::parse(&payload[..cut]).is_err());
        }
        payload[4] = 0;
        assert!(SignedIn::parse(&payload).is_err());
    }
}
