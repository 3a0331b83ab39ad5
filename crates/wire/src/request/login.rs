//! Registering a session and binding connections to it. Source: wire protocol, sections 2.3 to 2.5.

use bytes::{BufMut, BytesMut};

use super::Request;
use crate::code::Code;
use crate::field::Field;
use crate::ids::{ClientId, Op, SessionEpoch};
use crate::primitive::{DecodeError, EncodeError, Reader, Secret, put_bytes32, put_checked_str8};
use crate::protocol::ProtocolVersion;

/// Bytes of a bind secret.
pub const BIND_SECRET_BYTES: usize = 32;

/// Random bytes that prove that a new connection belongs to the client that registered. `Debug` hides them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BindSecret(pub [u8; BIND_SECRET_BYTES]);

impl std::fmt::Debug for BindSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BindSecret(..)")
    }
}

/// What every login and bind body starts with. Read it alone to gate the version before anything else of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionPrefix<'a> {
    /// The version that the client speaks.
    pub protocol: ProtocolVersion,
    /// Name of the client library.
    pub sdk_name: &'a str,
    /// Version of the client library.
    pub sdk_version: &'a str,
}

impl<'a> VersionPrefix<'a> {
    /// Reads the prefix of a body; what follows may belong to a version that this build does not know.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        VersionPrefix::read(&mut Reader::new(body), "version")
    }
}

impl<'a> Field<'a> for VersionPrefix<'a> {
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        Ok(VersionPrefix {
            protocol: ProtocolVersion(reader.u32("protocol_version")?),
            sdk_name: reader.str8("sdk_name")?,
            sdk_version: reader.str8("sdk_version")?,
        })
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_u32_le(self.protocol.0);
        put_checked_str8(out, self.sdk_name, "sdk_name")?;
        put_checked_str8(out, self.sdk_version, "sdk_version")
    }
}

impl Field<'_> for BindSecret {
    fn read(reader: &mut Reader<'_>, _: &'static str) -> Result<Self, DecodeError> {
        reader.array("bind_secret").map(BindSecret)
    }

    fn put(&self, out: &mut BytesMut, _: &'static str) -> Result<(), EncodeError> {
        out.put_slice(&self.0);
        Ok(())
    }
}

/// Registers a session with a password (40). Exact: bytes behind the context are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRegister<'a> {
    /// Who the client is.
    pub version: VersionPrefix<'a>,
    /// Proof for later binds.
    pub bind_secret: BindSecret,
    /// The user name.
    pub username: &'a str,
    /// The password.
    pub password: Secret<'a>,
    /// Free bytes; reference clients send none.
    pub context: &'a [u8],
}

impl<'a> LoginRegister<'a> {
    /// Reads the body.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let login = LoginRegister {
            version: Field::read(&mut reader, "version")?,
            bind_secret: Field::read(&mut reader, "bind_secret")?,
            username: reader.str8("username")?,
            password: Field::read(&mut reader, "password")?,
            context: reader.bytes32("context")?,
        };
        reader.finish()?;
        Ok(login)
    }
}

impl Request for LoginRegister<'_> {
    const CODE: Code = Code::LoginRegister;

    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        self.version.put(out, "version")?;
        self.bind_secret.put(out, "bind_secret")?;
        put_checked_str8(out, self.username, "username")?;
        self.password.put(out, "password")?;
        put_bytes32(out, self.context);
        Ok(())
    }
}

/// Registers a session with a personal access token (45). Exact: bytes behind the context are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRegisterWithPat<'a> {
    /// Who the client is.
    pub version: VersionPrefix<'a>,
    /// Proof for later binds.
    pub bind_secret: BindSecret,
    /// The token.
    pub token: Secret<'a>,
    /// Free bytes; reference clients send none.
    pub context: &'a [u8],
}

impl<'a> LoginRegisterWithPat<'a> {
    /// Reads the body.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let login = LoginRegisterWithPat {
            version: Field::read(&mut reader, "version")?,
            bind_secret: Field::read(&mut reader, "bind_secret")?,
            token: Field::read(&mut reader, "token")?,
            context: reader.bytes32("context")?,
        };
        reader.finish()?;
        Ok(login)
    }
}

impl Request for LoginRegisterWithPat<'_> {
    const CODE: Code = Code::LoginRegisterWithPat;

    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        self.version.put(out, "version")?;
        self.bind_secret.put(out, "bind_secret")?;
        self.token.put(out, "token")?;
        put_bytes32(out, self.context);
        Ok(())
    }
}

/// The body of a Register: the wire does not say which of the two logins it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login<'a> {
    /// With a password.
    Password(LoginRegister<'a>),
    /// With a personal access token.
    Token(LoginRegisterWithPat<'a>),
}

impl<'a> Login<'a> {
    /// Tries the password form, then the token form, each exactly. The error is the one of the password form.
    ///
    /// With an empty context the forms exclude each other: a token body read as the password form ends inside of the
    /// context length, a password body read as the token form has an impossible one. Source: wire protocol, section
    /// 2.4.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        LoginRegister::parse(body)
            .map(Login::Password)
            .or_else(|error| LoginRegisterWithPat::parse(body).map(Login::Token).map_err(|_| error))
    }

    /// Who the client is.
    pub fn version(&self) -> VersionPrefix<'a> {
        match self {
            Login::Password(login) => login.version,
            Login::Token(login) => login.version,
        }
    }

    /// Proof for later binds.
    pub fn bind_secret(&self) -> BindSecret {
        match self {
            Login::Password(login) => login.bind_secret,
            Login::Token(login) => login.bind_secret,
        }
    }
}

/// Attaches a connection to a live session (15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindSession<'a> {
    /// Who the client is.
    pub version: VersionPrefix<'a>,
    /// The logical session.
    pub client: ClientId,
    /// Its epoch; 0 asks the server to resolve a registration whose reply was lost.
    pub session: SessionEpoch,
    /// Metadata op that must be applied before the bind is answered.
    pub metadata_watermark: Op,
    /// Proof that the caller is the client that registered.
    pub bind_secret: BindSecret,
}

impl<'a> BindSession<'a> {
    /// Reads the body.
    pub fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        Ok(BindSession {
            version: Field::read(&mut reader, "version")?,
            client: ClientId(reader.u128("client_id")?),
            session: SessionEpoch(reader.u64("session")?),
            metadata_watermark: Op(reader.u64("metadata_watermark")?),
            bind_secret: Field::read(&mut reader, "bind_secret")?,
        })
    }
}

impl Request for BindSession<'_> {
    const CODE: Code = Code::BindSession;

    fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        self.version.put(out, "version")?;
        out.put_u128_le(self.client.0);
        out.put_u64_le(self.session.0);
        out.put_u64_le(self.metadata_watermark.0);
        self.bind_secret.put(out, "bind_secret")
    }
}
