//! Tests of whole replicas: alone, and in small clusters over a network and disks that this module makes up.

mod alone;
mod cluster;
mod random;
