//! The groups of one topic.

use std::sync::Arc;

use imbl::OrdMap;
use laneway_wire::{Incarnation, Op};

use super::group::Group;
use crate::names::RefKey;

/// Live groups of one topic at most. Source: consumer groups, section 1.2.
pub const GROUPS_MAX: usize = 1 << 20;

/// Why a group was not created. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateGroupError {
    /// The name is taken, also by a group that is being deleted.
    #[error("a consumer group of this name exists")]
    NameTaken,
    /// There are [`GROUPS_MAX`] groups, or every number of 32 bits was given out once.
    #[error("the topic holds as many consumer groups as it can")]
    TooMany,
}

/// The groups of one topic. Copying it shares what did not change.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    by_id: OrdMap<u32, Arc<Group>>,
    by_name: OrdMap<Arc<str>, u32>,
    /// The number of the next group. Wider than a number, so that "none is left" has a value.
    next_id: u64,
}

impl Groups {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// The number that the next group gets, if one is left.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// The groups, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.by_id.values()
    }

    /// Finds one by number or by its exact name. A name of digits is still a name (G4).
    pub fn find<'a>(&self, target: impl Into<RefKey<'a>>) -> Option<&Arc<Group>> {
        let id = match target.into() {
            RefKey::Id(id) => id,
            RefKey::Name(name) => *self.by_name.get(name)?,
        };
        self.by_id.get(&id)
    }

    /// Adds a group on a topic with these partitions.
    ///
    /// Errors: the name is taken (5004), or there are too many (5010).
    pub fn create(
        &mut self,
        name: &str,
        op: Op,
        partitions: impl IntoIterator<Item = Incarnation>,
    ) -> Result<Arc<Group>, CreateGroupError> {
        if self.by_name.contains_key(name) {
            return Err(CreateGroupError::NameTaken);
        }
        let id = u32::try_from(self.next_id).map_err(|_| CreateGroupError::TooMany)?;
        if self.by_id.len() >= GROUPS_MAX {
            return Err(CreateGroupError::TooMany);
        }
        let name: Arc<str> = name.into();
        let group = Arc::new(Group::new(id, op, name.clone(), partitions));
        self.next_id += 1;
        self.by_name.insert(name, id);
        self.by_id.insert(id, group.clone());
        Ok(group)
    }

    /// Changes one group, in place if nobody else holds it. Nothing if it is not there.
    pub fn change<R>(&mut self, id: u32, change: impl FnOnce(&mut Group) -> R) -> Option<R> {
        self.by_id.get_mut(&id).map(|group| change(Arc::make_mut(group)))
    }

    /// Removes a group. Its number stays spent.
    pub fn remove(&mut self, id: u32) -> Option<Arc<Group>> {
        let group = self.by_id.remove(&id)?;
        let named = self.by_name.remove(&group.name);
        assert_eq!(named, Some(id), "every group is found by its name");
        Some(group)
    }

    /// Rebuilds the groups of a snapshot; none unless numbers ascend, are below `next_id` and names are distinct (G2).
    pub fn restore(groups: Vec<Group>, next_id: u64) -> Option<Self> {
        let ascend = groups.is_sorted_by(|left, right| left.id < right.id);
        let spent = groups.last().is_none_or(|last| u64::from(last.id) < next_id);
        if !ascend || !spent || groups.len() > GROUPS_MAX || next_id > 1 << 32 {
            return None;
        }
        let mut restored = Self { next_id, ..Self::default() };
        for group in groups {
            if restored.by_name.insert(group.name.clone(), group.id).is_some() {
                return None;
            }
            restored.by_id.insert(group.id, Arc::new(group));
        }
        Some(restored)
    }
}
