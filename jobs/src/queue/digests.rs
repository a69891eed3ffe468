//! The `digests` table: what the report of each shape says. Polls do not touch it.

use sqlx::PgConnection;
use sqlx::types::Json;

use super::Queue;
use super::runs::RunLease;
use crate::Result;
use crate::digest::Digest;
use crate::ids::{JobId, Owner};

/// Keeps the digest of a shape that ends.
pub(super) async fn keep_digest(db: &mut PgConnection, run: RunLease, digest: &Digest) -> Result<()> {
    sqlx::query!(
        "INSERT INTO digests (job_id, benchmark_index, schema, digest) VALUES ($1, $2, $3, $4)
         ON CONFLICT (job_id, benchmark_index) DO UPDATE SET schema = excluded.schema, digest = excluded.digest",
        run.job.0,
        run.benchmark_index.cast_signed(),
        Digest::SCHEMA.cast_signed(),
        Json(digest) as _,
    )
    .execute(db)
    .await?;
    Ok(())
}

impl Queue {
    /// The digests of a job that belongs to `owner`, by shape. Those of a layout that this version does not know are left out, and
    /// those of a shape that is to be done again.
    pub async fn digests(&self, id: JobId, owner: &Owner) -> Result<Vec<Digest>> {
        let rows = sqlx::query_scalar!(
            r#"SELECT digest AS "digest: Json<Digest>" FROM digests
               JOIN runs USING (job_id, benchmark_index) JOIN jobs ON jobs.id = job_id
               WHERE job_id = $1 AND owner = $2 AND schema = $3 AND summary IS NOT NULL ORDER BY benchmark_index"#,
            id.0,
            owner.as_bytes(),
            Digest::SCHEMA.cast_signed(),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|digest| digest.0).collect())
    }
}
