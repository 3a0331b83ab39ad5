//! Operation bytes: how a request travels through the replicated logs. Source: wire protocol, section 1.7.

use crate::code::Code;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// A declared operation. Bytes outside of this table deserve a typed refusal, not a closed connection.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Operation {
            $($(#[$doc])* $name = $number,)*
        }

        impl Operation {
            /// Every operation, in ascending order of its byte.
            pub const ALL: &[Operation] = &[$(Operation::$name,)*];

            /// The operation of a byte; none for 0, retired and unassigned bytes.
            pub const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($number => Some(Operation::$name),)*
                    _ => None,
                }
            }
        }
    };
}

operations! {
    /// Registers a session.
    Register = 1,
    /// A command that no log orders; its code is in the header.
    NonReplicated = 2,
    /// Ends a session.
    Logout = 3,
    /// Server form of [`Operation::CreateTopic`].
    CreateTopicWithAssignments = 64,
    /// Server form of [`Operation::CreatePartitions`].
    CreatePartitionsWithAssignments = 65,
    /// A session that ended leaves a group.
    RemoveConsumerGroupMember = 66,
    /// A partition changed its owner in a group.
    CompleteConsumerGroupRevocation = 67,
    /// Server form of [`Operation::DeleteSegments`].
    TruncatePartition = 68,
    /// A session ends.
    FinalizeSession = 70,
    /// A lifecycle operation of a partition finished.
    CompleteLifecycle = 71,
    /// Server form of [`Operation::UpdateResource`] for a stream.
    UpdateStreamResolved = 72,
    /// Server form of [`Operation::UpdateResource`] for a topic.
    UpdateTopicResolved = 73,
    /// Server form of [`Operation::UpdateResource`] for a user.
    UpdateUserResolved = 74,
    /// Stream keys are wrapped anew.
    RewrapStreamKeys = 75,
    /// Creates a stream.
    CreateStream = 128,
    /// Deletes a stream.
    DeleteStream = 130,
    /// Creates a topic.
    CreateTopic = 132,
    /// Deletes a topic.
    DeleteTopic = 134,
    /// Adds partitions.
    CreatePartitions = 136,
    /// Deletes partitions.
    DeletePartitions = 137,
    /// Deletes segments; neither metadata nor partition.
    DeleteSegments = 138,
    /// Creates a consumer group.
    CreateConsumerGroup = 139,
    /// Deletes a consumer group.
    DeleteConsumerGroup = 140,
    /// Creates a user.
    CreateUser = 141,
    /// Deletes a user.
    DeleteUser = 143,
    /// Changes a password.
    ChangePassword = 144,
    /// Replaces permissions.
    UpdatePermissions = 145,
    /// Creates a token.
    CreatePersonalAccessToken = 146,
    /// Deletes a token.
    DeletePersonalAccessToken = 147,
    /// Joins a consumer group.
    JoinConsumerGroup = 148,
    /// Leaves a consumer group.
    LeaveConsumerGroup = 149,
    /// Sets and resets options.
    UpdateResource = 150,
    /// Appends a batch.
    SendMessages = 160,
    /// Stores an offset.
    StoreConsumerOffset = 161,
    /// Deletes a stored offset.
    DeleteConsumerOffset = 162,
    /// Partition barrier: a session retires.
    RetireSession = 166,
    /// Partition barrier: a group owner is installed.
    InstallConsumerGroupOwner = 167,
    /// Partition barrier: the history changes.
    TransitionPartitionHistory = 168,
    /// Partition barrier: group owners retire.
    RetireConsumerGroupOwners = 169,
}

impl Operation {
    /// The byte on the wire.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Whether only servers may originate it; a client frame that carries it is refused.
    pub const fn is_internal(self) -> bool {
        matches!(self.byte(), 64..=75 | 166..=169)
    }

    /// Whether the metadata lane orders it, the server's internal forms included. Sessions (Register, Logout) and
    /// DeleteSegments are not metadata operations.
    pub const fn is_metadata(self) -> bool {
        matches!(self.byte(), 64..=75 | 128..=137 | 139..=150)
    }

    /// Whether a client sends it to the lane of a partition.
    pub const fn is_partition(self) -> bool {
        matches!(
            self,
            Operation::SendMessages | Operation::StoreConsumerOffset | Operation::DeleteConsumerOffset
        )
    }

    /// Whether it registers or ends a session.
    pub const fn is_session(self) -> bool {
        matches!(self, Operation::Register | Operation::Logout)
    }

    /// Whether some log orders it, so that its committed reply carries the marker.
    pub const fn is_replicated(self) -> bool {
        !matches!(self, Operation::NonReplicated)
    }

    /// Whether a reply body starts with a result section. For Register this holds for every body that is not empty.
    /// Source: wire protocol, section 1.8.
    pub const fn is_result_framed(self) -> bool {
        self.is_metadata()
            || matches!(
                self,
                Operation::Register | Operation::StoreConsumerOffset | Operation::DeleteConsumerOffset
            )
    }

    /// The operation that the client asked for, when the reply carries what the server resolved it to.
    pub const fn request_operation(self) -> Operation {
        match self {
            Operation::CreateTopicWithAssignments => Operation::CreateTopic,
            Operation::CreatePartitionsWithAssignments => Operation::CreatePartitions,
            Operation::TruncatePartition => Operation::DeleteSegments,
            Operation::UpdateStreamResolved
            | Operation::UpdateTopicResolved
            | Operation::UpdateUserResolved => Operation::UpdateResource,
            other => other,
        }
    }

    /// The command that a replicated client operation implies. None for NonReplicated (the header names the command),
    /// for Register (two commands share it, the body tells them apart) and for internal operations.
    pub const fn code(self) -> Option<Code> {
        Some(match self {
            Operation::Logout => Code::Logout,
            Operation::CreateStream => Code::CreateStream,
            Operation::DeleteStream => Code::DeleteStream,
            Operation::CreateTopic => Code::CreateTopic,
            Operation::DeleteTopic => Code::DeleteTopic,
            Operation::CreatePartitions => Code::CreatePartitions,
            Operation::DeletePartitions => Code::DeletePartitions,
            Operation::DeleteSegments => Code::DeleteSegments,
            Operation::CreateConsumerGroup => Code::CreateConsumerGroup,
            Operation::DeleteConsumerGroup => Code::DeleteConsumerGroup,
            Operation::CreateUser => Code::CreateUser,
            Operation::DeleteUser => Code::DeleteUser,
            Operation::ChangePassword => Code::ChangePassword,
            Operation::UpdatePermissions => Code::UpdatePermissions,
            Operation::CreatePersonalAccessToken => Code::CreatePersonalAccessToken,
            Operation::DeletePersonalAccessToken => Code::DeletePersonalAccessToken,
            Operation::JoinConsumerGroup => Code::JoinConsumerGroup,
            Operation::LeaveConsumerGroup => Code::LeaveConsumerGroup,
            Operation::UpdateResource => Code::UpdateResource,
            Operation::SendMessages => Code::SendMessages,
            Operation::StoreConsumerOffset => Code::StoreConsumerOffset,
            Operation::DeleteConsumerOffset => Code::DeleteConsumerOffset,
            _ => return None,
        })
    }

    /// The operation under which a command travels.
    pub const fn for_code(code: Code) -> Operation {
        match code {
            Code::LoginRegister | Code::LoginRegisterWithPat => Operation::Register,
            Code::Logout => Operation::Logout,
            Code::CreateStream => Operation::CreateStream,
            Code::DeleteStream => Operation::DeleteStream,
            Code::CreateTopic => Operation::CreateTopic,
            Code::DeleteTopic => Operation::DeleteTopic,
            Code::CreatePartitions => Operation::CreatePartitions,
            Code::DeletePartitions => Operation::DeletePartitions,
            Code::DeleteSegments => Operation::DeleteSegments,
            Code::CreateConsumerGroup => Operation::CreateConsumerGroup,
            Code::DeleteConsumerGroup => Operation::DeleteConsumerGroup,
            Code::CreateUser => Operation::CreateUser,
            Code::DeleteUser => Operation::DeleteUser,
            Code::ChangePassword => Operation::ChangePassword,
            Code::UpdatePermissions => Operation::UpdatePermissions,
            Code::CreatePersonalAccessToken => Operation::CreatePersonalAccessToken,
            Code::DeletePersonalAccessToken => Operation::DeletePersonalAccessToken,
            Code::JoinConsumerGroup => Operation::JoinConsumerGroup,
            Code::LeaveConsumerGroup => Operation::LeaveConsumerGroup,
            Code::UpdateResource => Operation::UpdateResource,
            Code::SendMessages => Operation::SendMessages,
            Code::StoreConsumerOffset => Operation::StoreConsumerOffset,
            Code::DeleteConsumerOffset => Operation::DeleteConsumerOffset,
            _ => Operation::NonReplicated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_codes_round_trip() {
        for operation in Operation::ALL {
            assert_eq!(Operation::from_byte(operation.byte()), Some(*operation));
            if let Some(code) = operation.code() {
                assert_eq!(Operation::for_code(code), *operation);
            }
        }
        for retired in [0, 69, 129, 131, 133, 135, 142, 163, 164, 165, 170, 255] {
            assert_eq!(Operation::from_byte(retired), None);
        }
    }

    #[test]
    fn every_operation_is_in_the_class_of_the_reference() {
        for operation in Operation::ALL {
            let byte = operation.byte();
            assert_eq!(operation.is_internal(), matches!(byte, 64..=75 | 166..=169), "{operation:?}");
            let framed = matches!(byte, 1 | 64..=75 | 128..=137 | 139..=150 | 161 | 162);
            assert_eq!(operation.is_result_framed(), framed, "{operation:?}");
            let classes = [operation.is_metadata(), operation.is_partition(), operation.is_session()];
            assert!(classes.iter().filter(|held| **held).count() <= 1, "{operation:?}");
            assert!(
                !operation.request_operation().is_internal() || operation == &operation.request_operation()
            );
        }
        assert_eq!(Operation::TruncatePartition.request_operation(), Operation::DeleteSegments);
        assert!(!Operation::DeleteSegments.is_metadata() && !Operation::DeleteSegments.is_partition());
    }
}
