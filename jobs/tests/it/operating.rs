//! `docs/operating.md` against a real Postgres: what it tells operators to run runs.

use clap::Subcommand;
use jobs::admin::Command;
use sqlx::{AssertSqlSafe, Column, Executor, Row, SqlSafeStr};

use crate::support::{database, job};

const DOCUMENT: &str = include_str!("../../../docs/operating.md");

/// Each SQL block, with the example of its output that follows.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let blocks: Vec<_> = DOCUMENT
        .split("```sql\n")
        .skip(1)
        .map(|rest| {
            let (sql, rest) = rest.split_once("```").unwrap();
            let example = rest.trim_start().strip_prefix("```text\n").and_then(|text| text.split_once("```"));
            (sql, example.unwrap_or_else(|| panic!("no example follows:\n{sql}")).0)
        })
        .collect();
    assert!(blocks.len() >= 10, "{}", blocks.len());
    blocks
}

#[tokio::test]
async fn every_query_of_the_document_runs_and_its_example_has_its_columns() {
    let (queue, pool) = database().await;
    queue.submit(&job("somebody", 2)).await.unwrap();
    for (sql, example) in blocks() {
        let described =
            pool.describe(AssertSqlSafe(sql).into_sql_str()).await.unwrap_or_else(|error| panic!("{error}:\n{sql}"));
        sqlx::query(AssertSqlSafe(sql)).fetch_all(&pool).await.unwrap_or_else(|error| panic!("{error}:\n{sql}"));
        for column in described.columns() {
            assert!(example.contains(column.name()), "the example lacks {}:\n{sql}", column.name());
        }
    }
}

#[tokio::test]
async fn a_role_that_reads_the_views_reads_no_source_and_no_credential() {
    let (queue, pool) = database().await;
    queue.submit(&job("somebody", 1)).await.unwrap();
    let grant = DOCUMENT.lines().map(str::trim).find(|line| line.starts_with("GRANT SELECT")).unwrap();
    // Roles belong to the whole server, which other tests use too.
    let role = format!("reader_{}", uuid::Uuid::new_v4().as_simple());
    let mut connection = pool.acquire().await.unwrap();
    for statement in
        [format!("CREATE ROLE {role}"), grant.replace("TO grafana", &format!("TO {role}")), format!("SET ROLE {role}")]
    {
        connection.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    let row = connection.fetch_one("SELECT owner, waits_for FROM queue_overview").await.unwrap();
    assert_eq!(row.get::<String, _>(0).len(), 12);
    for closed in ["SELECT * FROM submissions", "SELECT owner FROM jobs", "SELECT * FROM workers"] {
        let refused = connection.execute(closed).await.unwrap_err().to_string();
        assert!(refused.contains("permission denied"), "{closed}: {refused}");
    }
    connection.execute("RESET ROLE").await.unwrap();
    connection.execute(AssertSqlSafe(format!("DROP OWNED BY {role}"))).await.unwrap();
    connection.execute(AssertSqlSafe(format!("DROP ROLE {role}"))).await.unwrap();
}

#[test]
fn every_command_of_an_operator_is_in_the_document() {
    let commands = Command::augment_subcommands(clap::Command::new("admin"));
    let missing: Vec<&str> = commands
        .get_subcommands()
        .map(clap::Command::get_name)
        .filter(|name| !DOCUMENT.contains(&format!("| `ncu-worker admin {name}")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn ten_questions_are_answered() {
    let questions: Vec<&str> =
        DOCUMENT.lines().filter(|line| line.starts_with("### ") && line.ends_with('?')).collect();
    assert_eq!(questions.len(), 10, "{questions:?}");
    for (n, question) in (1..).zip(questions) {
        assert!(question.starts_with(&format!("### {n}. ")), "{question}");
    }
}
