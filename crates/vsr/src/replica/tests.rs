//! Tests of whole replicas: alone, one at a time over made-up messages, and in small clusters over a network and disks
//! that this module makes up.

mod alone;
mod bench;
mod cluster;
mod random;
mod rules;
