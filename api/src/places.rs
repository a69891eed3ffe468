//! Places for what takes long: a limit for all together, and one for each user, so that nobody can hold all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobs::ids::Owner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// The places.
#[derive(Debug)]
pub struct Places {
    all: Arc<Semaphore>,
    max_per_owner: usize,
    /// Those who hold a place or wait for one.
    owners: Mutex<HashMap<Owner, Arc<Semaphore>>>,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_owner: OwnedSemaphorePermit,
}

/// There is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The user holds as many as one may.
    OfOwner {
        /// The limit.
        max: usize,
    },
    /// All are taken.
    All,
}

impl Places {
    /// So many places, and so many of them for one owner.
    #[must_use]
    pub fn new(max: usize, max_per_owner: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(max)), max_per_owner, owners: Mutex::default() }
    }

    /// Takes a place, or waits for one as long as `patience`.
    pub async fn take(&self, owner: Owner, patience: Duration) -> Result<Place, Full> {
        let until = Instant::now() + patience;
        // The owner's first: who has too many must not wait among the others.
        let own = timeout_at(until, self.of(owner).acquire_owned()).await;
        let Ok(Ok(of_owner)) = own else { return Err(Full::OfOwner { max: self.max_per_owner }) };
        let all = timeout_at(until, Arc::clone(&self.all).acquire_owned()).await;
        let Ok(Ok(of_all)) = all else { return Err(Full::All) };
        Ok(Place { _of_all: of_all, _of_owner: of_owner })
    }

    fn of(&self, owner: Owner) -> Arc<Semaphore> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // A semaphore that only the map holds has neither holders nor waiters.
        owners.retain(|_, places| Arc::strong_count(places) > 1);
        Arc::clone(owners.entry(owner).or_insert_with(|| Arc::new(Semaphore::new(self.max_per_owner))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_owner_never_holds_every_place() {
        let (places, none) = (Places::new(3, 2), Duration::ZERO);
        let [alice, bob] = ["alice", "bob"].map(Owner::from_credential);
        let held = [places.take(alice, none).await.unwrap(), places.take(alice, none).await.unwrap()];
        assert_eq!(places.take(alice, none).await.unwrap_err(), Full::OfOwner { max: 2 });
        let last = places.take(bob, none).await.unwrap();
        assert_eq!(places.take(bob, none).await.unwrap_err(), Full::All);
        drop(held);
        assert!(places.take(alice, none).await.is_ok());
        drop(last);
        drop(places.take(alice, none).await);
        assert_eq!(places.owners.lock().unwrap().len(), 1, "nobody is remembered who has no place");
    }
}
