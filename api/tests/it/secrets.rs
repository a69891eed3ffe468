//! The CLI id leaves the service towards `KernelBot` and in no other direction.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, PgPool};

use crate::support::{Form, Service, logs, send};
use reqwest::Method;

/// Every row of every table as text; bytes are written in hexadecimal.
pub async fn dump(pool: &PgPool) -> String {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT quote_ident(table_schema) || '.' || quote_ident(table_name) FROM information_schema.tables
         WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let mut dump = String::new();
    for table in tables {
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(format!("SELECT row_to_json(t)::text FROM {table} t")))
                .fetch_all(pool)
                .await
                .unwrap();
        writeln!(dump, "{table}: {}", rows.join("\n")).unwrap();
    }
    dump
}

#[tokio::test]
async fn the_cli_id_is_in_no_answer_no_log_line_and_no_table() {
    const SECRET: &str = "5ecre7c11id";
    let service = Service::start_with(&[("NCU_SERVICE_KERNELBOT_TIMEOUT_SECS", "1")]).await;
    let mut answers = String::new();
    for word in ["good", "bad", "odd", "ill", "page", "moved", "silent"] {
        let cli_id = format!("{word}-{SECRET}");
        let submitted = service.submit(&cli_id, Form::usual()).await;
        if word == "good" {
            let id = submitted.json()["job_id"].as_str().unwrap().to_owned();
            for path in [format!("/jobs/{id}"), format!("/jobs/{id}/artifacts/a.zip"), "/health".to_owned()] {
                writeln!(answers, "{}", service.get(&path, &cli_id).await.json()).unwrap();
            }
        }
        writeln!(answers, "{:?} {}", submitted.headers, String::from_utf8_lossy(&submitted.bytes)).unwrap();
        service.submit(&cli_id, Form::new()).await;
        service.submit(&format!("{word} {SECRET}"), Form::usual()).await;
    }
    let (log, tables) = (logs::all(), dump(&service.pool).await);
    // Each of the three was really looked at.
    assert!(answers.contains("requested_benchmarks"));
    assert!(log.contains("job queued") && log.contains("KernelBot did not answer in time"));
    assert!(tables.contains("linalg/qr_v2") && tables.contains("apalis"), "{tables}");

    let hex = SECRET.bytes().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    for (place, text) in [("answers", answers), ("log", log), ("tables", tables)] {
        assert!(!text.contains(SECRET) && !text.contains(&hex), "the CLI id is in the {place}");
    }
}

#[tokio::test]
async fn the_operators_token_is_in_no_answer_no_log_line_and_no_table() {
    const TOKEN: &str = "0pera70rs-70ken-of-thirty-two-and-more";
    const GUESS: &str = "a-gue55-that-may-be-another-services-secret";
    let service = Service::start_with(&[("NCU_SERVICE_ADMIN_TOKEN", TOKEN)]).await;
    let mut answers = String::new();
    for (token, path) in [(TOKEN, "/admin/queue"), (TOKEN, "/admin/nonsense"), (GUESS, "/admin/queue")] {
        let answer = send(service.request(Method::GET, path, None).bearer_auth(token)).await;
        writeln!(answers, "{:?} {}", answer.headers, String::from_utf8_lossy(&answer.bytes)).unwrap();
    }
    let (log, tables) = (logs::all(), dump(&service.pool).await);
    assert!(answers.contains("paused_at") && answers.contains("Bearer"));
    assert!(log.contains("a request under /admin was refused") && tables.contains("wrong token"), "{tables}");
    for (place, text) in [("answers", answers), ("log", log), ("tables", tables)] {
        assert!(!text.contains(TOKEN) && !text.contains(GUESS), "a token is in the {place}");
    }
}
