//! Frames from one client.

use std::io;

use compio::BufResult;
use compio::buf::{IntoInner, IoBuf};
use compio::io::AsyncRead;
use compio::net::TcpStream;
use laneway_wire::frame::{Frame, FrameDecoder, FrameError};

/// Why a connection gives no more frames.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The client sent a frame that cannot be delimited.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The connection failed.
    #[error("read from the client: {0}")]
    Io(#[from] io::Error),
}

/// Reads frames of one connection. Bytes are received once, into the buffer that the frame keeps.
#[derive(Debug)]
pub struct FrameReader {
    stream: TcpStream,
    decoder: FrameDecoder,
}

impl FrameReader {
    /// A reader that accepts frames of up to `frame_bytes_max` bytes, header included.
    pub fn new(stream: TcpStream, frame_bytes_max: usize) -> Self {
        Self { stream, decoder: FrameDecoder::with_limit(frame_bytes_max) }
    }

    /// Changes the largest frame from the next one on.
    pub fn set_limit(&mut self, frame_bytes_max: usize) {
        self.decoder.set_limit(frame_bytes_max);
    }

    /// The next frame; none when the client has closed.
    pub async fn next(&mut self) -> Result<Option<Frame>, ReadError> {
        loop {
            if let Some(frame) = self.decoder.poll_frame()? {
                return Ok(Some(frame));
            }
            let limit = self.decoder.spare_hint();
            let buffer = self.decoder.take_buffer();
            let received = buffer.len();
            let BufResult(result, buffer) = self.stream.read(buffer.slice(received..received + limit)).await;
            self.decoder.put_buffer(buffer.into_inner());
            if result? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use bytes::Bytes;
    use compio::io::AsyncWriteExt;
    use laneway_wire::header::{HEADER_BYTES, RequestHeader};
    use laneway_wire::operation::Operation;
    use laneway_wire::{ClientId, RequestNumber};

    use super::*;
    use crate::listener::{Bound, Listener};
    use crate::outbox::{OutFrame, Outbox, write_frames};

    fn request(number: u64, body: &[u8]) -> Vec<u8> {
        let mut header = RequestHeader::new(Operation::SendMessages, ClientId(7), body.len());
        header.request = RequestNumber(number);
        let mut frame = header.encode().to_vec();
        frame.extend_from_slice(body);
        frame
    }

    /// A connected pair: the server's side and the client's.
    async fn pair() -> (TcpStream, TcpStream) {
        let bound = Bound::new("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = Listener::new(bound.listen().unwrap()).unwrap();
        let client = TcpStream::connect(bound.address()).await.unwrap();
        let (server, _) = listener.accept().await;
        (server, client)
    }

    #[test]
    fn frames_of_every_size_arrive_whole_and_in_order() {
        compio::runtime::Runtime::new().unwrap().block_on(async {
            let (server, mut client) = pair().await;
            let sizes = [0, 1, 300, 20_000, 3_000_000, 0, 5, 3_000_000, 3_000_000, 17];
            let writer = compio::runtime::spawn(async move {
                for (number, size) in sizes.into_iter().enumerate() {
                    let body = vec![number as u8; size];
                    client.write_all(request(number as u64, &body)).await.0.unwrap();
                }
            });
            let mut reader = FrameReader::new(server, 8 << 20);
            for (number, size) in sizes.into_iter().enumerate() {
                let frame = reader.next().await.unwrap().unwrap();
                assert_eq!(frame.header.request, RequestNumber(number as u64));
                assert_eq!(frame.body.len(), size);
                assert!(frame.body.iter().all(|byte| *byte == number as u8));
            }
            writer.await.unwrap();
            assert!(reader.next().await.unwrap().is_none());
        });
    }

    #[test]
    fn steady_stream_of_large_frames_is_never_copied() {
        compio::runtime::Runtime::new().unwrap().block_on(async {
            let (server, mut client) = pair().await;
            let writer = compio::runtime::spawn(async move {
                for number in 0..40 {
                    client.write_all(request(number, &[9; 1_000_000])).await.0.unwrap();
                }
            });
            let mut reader = FrameReader::new(server, 8 << 20);
            for _ in 0..8 {
                reader.next().await.unwrap().unwrap();
            }
            let settled = reader.decoder.copied_bytes();
            for _ in 8..40 {
                reader.next().await.unwrap().unwrap();
            }
            assert_eq!(reader.decoder.copied_bytes(), settled, "a frame was moved after the first ones");
            writer.await.unwrap();
        });
    }

    #[test]
    fn frame_above_the_limit_is_refused_at_its_header() {
        compio::runtime::Runtime::new().unwrap().block_on(async {
            let (server, mut client) = pair().await;
            client.write_all(request(1, &[0; 2000])).await.0.unwrap();
            let mut reader = FrameReader::new(server, 1024);
            assert!(matches!(reader.next().await, Err(ReadError::Frame(FrameError::Size { .. }))));
        });
    }

    #[test]
    fn queued_frames_are_written_in_order_and_the_end_is_seen() {
        compio::runtime::Runtime::new().unwrap().block_on(async {
            let (server, client) = pair().await;
            let outbox = Rc::new(Outbox::default());
            let writer = {
                let outbox = outbox.clone();
                compio::runtime::spawn(async move { write_frames(server, &outbox).await })
            };
            for number in 0..500u64 {
                let body = vec![number as u8; 700];
                let frame = Bytes::from(request(number, &body));
                let (head, tail) =
                    (Bytes::slice(&frame, ..HEADER_BYTES), Bytes::slice(&frame, HEADER_BYTES..));
                outbox.push(OutFrame { parts: vec![head, tail] });
            }
            outbox.close();
            let mut reader = FrameReader::new(client, 1 << 20);
            for number in 0..500u64 {
                let frame = reader.next().await.unwrap().unwrap();
                assert_eq!(frame.header.request, RequestNumber(number));
                assert_eq!(frame.body, vec![number as u8; 700]);
            }
            assert!(reader.next().await.unwrap().is_none());
            writer.await.unwrap().unwrap();
            assert_eq!(outbox.bytes(), 0);
        });
    }

    #[test]
    fn client_that_does_not_read_holds_its_own_reader_back() {
        compio::runtime::Runtime::new().unwrap().block_on(async {
            let (server, client) = pair().await;
            let outbox = Rc::new(Outbox::default());
            let writer = {
                let outbox = outbox.clone();
                compio::runtime::spawn(async move { write_frames(server, &outbox).await })
            };
            for _ in 0..20 {
                outbox.push(OutFrame::whole(vec![0; 4 << 20]));
            }
            let room = compio::time::timeout(std::time::Duration::from_millis(50), outbox.room()).await;
            assert!(room.is_err(), "the reader may go on although nobody reads");
            // Closing with unread data resets the connection.
            drop(client);
            assert!(writer.await.unwrap().is_err());
            outbox.room().await;
        });
    }
}
