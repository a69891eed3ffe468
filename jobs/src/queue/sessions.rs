//! The `sessions` table: browsers that are signed in at the page.

use std::time::Duration;

use super::Queue;
use super::jobs::interval;
use crate::Result;
use crate::browser::SessionKey;
use crate::ids::Owner;

/// Sessions that one owner may have at a time; the oldest make room.
const MAX_SESSIONS: i64 = 10;

impl Queue {
    /// Begins a session. Those that are over are forgotten here, so the table stays as small as there are people.
    pub async fn open_session(&self, key: &SessionKey, owner: &Owner, lifetime: Duration) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!("DELETE FROM sessions WHERE expires_at <= now()").execute(&mut *tx).await?;
        sqlx::query!(
            "DELETE FROM sessions WHERE key IN (
                 SELECT key FROM sessions WHERE owner = $1 ORDER BY created_at DESC OFFSET $2)",
            owner.as_bytes(),
            MAX_SESSIONS - 1
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!(
            "INSERT INTO sessions (key, owner, expires_at) VALUES ($1, $2, now() + $3)",
            key.as_bytes(),
            owner.as_bytes(),
            interval(lifetime)
        )
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Whose session it is; `None` where there is none, or its time is over.
    pub async fn session_owner(&self, key: &SessionKey) -> Result<Option<Owner>> {
        let found =
            sqlx::query_scalar!("SELECT owner FROM sessions WHERE key = $1 AND expires_at > now()", key.as_bytes());
        let found = found.fetch_optional(&self.pool).await?;
        Ok(found.map(|owner| Owner::decode(&owner)).transpose()?)
    }

    /// Ends a session, if there is such a one.
    pub async fn end_session(&self, key: &SessionKey) -> Result<()> {
        sqlx::query!("DELETE FROM sessions WHERE key = $1", key.as_bytes()).execute(&self.pool).await?;
        Ok(())
    }
}
