//! What the service knows and nobody else may: neither program writes it anywhere, however much it is told to log.

use std::fmt::Write as _;
use std::path::Path;

use sqlx::{PgPool, query, query_scalar};
use tokio::process::Command;
use tokio::time::sleep;

use super::durability::Server;
use super::engine::{containers, docker};
use super::harness::{CLI_ID, POLL, Stack, text};
use crate::secrets::dump;

/// Shows all that a process of the container may read of the others and of its own, then takes its time.
const CURIOUS: &str = "
import glob, time
import standin_gpu
places = [f'/proc/{of}/{what}' for of in ('[0-9]*', 'self') for what in ('environ', 'cmdline', 'mountinfo')]
for path in [path for place in places + ['/in/*', '/etc/hostname', '/etc/hosts'] for path in sorted(glob.glob(place))]:
    try:
        print(path, open(path, 'rb').read().decode(errors='replace').replace(chr(0), '\\n'))
    except OSError as error:
        print(path, error)
def add(a, b):
    time.sleep(3)
    return [x + y for x, y in zip(a, b)]
def custom_kernel(data):
    return standin_gpu.launch('void add<float>(float *)', 8, 128, add, *data)
";

const DATABASE_PASSWORD: &str = "5ecretOfTheDatabase";
const WRONG_PASSWORD: &str = "5ecretThatIsNotTheDatabases";
const KERNELBOT_PASSWORD: &str = "5ecretOfKernelBot";
/// `kernelbot:5ecretOfKernelBot` as a header carries it.
const KERNELBOT_BASIC: &str = "a2VybmVsYm90OjVlY3JldE9mS2VybmVsQm90";
const STORE_SECRET: &str = "5ecretOfTheStore";
const ADMIN_TOKEN: &str = "5ecretOfTheOperatorsThatIsLongEnough";
const COLLECTOR_TOKEN: &str = "5ecretOfTheCollector";

/// Postgres that asks for a password, and the URL with it.
async fn locked_database() -> (Server, String) {
    let server = Server::start().await;
    let pool = PgPool::connect(&server.url).await.unwrap();
    query(sqlx::AssertSqlSafe(format!("ALTER ROLE postgres PASSWORD '{DATABASE_PASSWORD}'")))
        .execute(&pool)
        .await
        .unwrap();
    let rules: String = query_scalar("SELECT current_setting('hba_file')").fetch_one(&pool).await.unwrap();
    std::fs::write(rules, "host all all 127.0.0.1/32 scram-sha-256\n").unwrap();
    query("SELECT pg_reload_conf()").execute(&pool).await.unwrap();
    // The server reads its rules a moment later.
    while PgPool::connect(&server.url).await.is_ok() {
        sleep(POLL).await;
    }
    let url = server.url.replace("postgres@", &format!("postgres:{DATABASE_PASSWORD}@"));
    (server, url)
}

/// Every file below a folder, except what is compressed.
fn files(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            all += &files(&entry);
        } else if let Ok(bytes) = std::fs::read(&entry) {
            // A file of a run may go while it is looked for.
            writeln!(all, "{}: {}", entry.display(), String::from_utf8_lossy(&bytes)).unwrap();
        }
    }
    all
}

/// What the engine tells of the job's containers, as often as it can be asked.
async fn watch_containers(job: &str, told: &mut String) {
    loop {
        for id in containers(job).await.lines() {
            // It may go while it is looked at.
            let inspect = Command::new("docker").args(["container", "inspect", id]).output().await.unwrap();
            *told += &String::from_utf8_lossy(&inspect.stdout);
        }
        sleep(POLL).await;
    }
}

#[tokio::test]
async fn no_secret_of_the_service_is_anywhere_that_others_look() {
    let (_server, database) = locked_database().await;
    let wrong = database.replace(DATABASE_PASSWORD, WRONG_PASSWORD);
    let stack = Stack::start_with(database.clone(), |kernelbot| {
        vec![
            ("NCU_SERVICE_LOG", "trace".to_owned()),
            ("KERNELBOT_API_URL", kernelbot.replace("://", &format!("://kernelbot:{KERNELBOT_PASSWORD}@"))),
            ("AWS_SECRET_ACCESS_KEY", STORE_SECRET.to_owned()),
            ("NCU_SERVICE_ADMIN_TOKEN", ADMIN_TOKEN.to_owned()),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1".to_owned()),
            ("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization={COLLECTOR_TOKEN}")),
        ]
    })
    .await;
    let _worker = stack.worker(&[]);

    let job = stack.submit(CURIOUS, &[("benchmark_index", "0")]).await;
    stack.capture_runs(&job).await;
    let mut places = vec![("folder of the stack in mid-run", files(stack.folder()))];
    let mut inspected = docker(&["container", "inspect", containers(&job).await.trim()]).await;
    let body = tokio::select! {
        body = stack.ended(&job) => body,
        () = watch_containers(&job, &mut inspected) => unreachable!(),
    };
    assert_eq!(body["status"], "succeeded", "{body:#}");
    // Requests that are refused, and a credential where it does not belong.
    let http = reqwest::Client::new();
    for path in [
        format!("/jobs/{job}?cli_id={CLI_ID}"),
        format!("/nowhere?{CLI_ID}"),
        format!("/nowhere/{CLI_ID}"),
        "/health".to_owned(),
    ] {
        let answer = http.get(stack.url(&path)).header("X-Popcorn-Cli-Id", CLI_ID).send().await.unwrap();
        places.push(("answers", format!("{:?} {}", answer.headers().clone(), answer.text().await.unwrap())));
    }
    let answer = http.get(stack.url("/admin/queue")).bearer_auth(ADMIN_TOKEN).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    places.push(("answers", answer.text().await.unwrap()));
    let mut archive = stack.archive(&body["artifacts"][0]).await;
    let entries: Vec<String> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
    let mut seen_inside = String::new();
    for entry in entries {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut archive.by_name(&entry).unwrap(), &mut bytes).unwrap();
        places.push(("archive", String::from_utf8_lossy(&bytes).into_owned()));
        if entry == "stdout.txt" {
            seen_inside = text(&mut archive, &entry);
        }
    }
    // What operators paste when they ask for help.
    let mut told_operators = String::new();
    for (arguments, url) in
        [(["doctor", "--json"].as_slice(), &wrong), (&["doctor"], &database), (&["migrate"], &wrong)]
    {
        let output = stack.worker_command(arguments, &[("NCU_SERVICE_DATABASE_URL", url)]).output().await.unwrap();
        write!(told_operators, "{output:?}").unwrap();
    }
    let (api_log, worker_log) = (stack.log_of("ncu-api"), stack.log_of("ncu-worker"));
    let tables = dump(&stack.pool().await).await;

    // Each place was really looked at, and the password was really asked for.
    assert!(api_log.contains("TRACE") && api_log.contains("job queued"), "{api_log}");
    assert!(worker_log.contains("TRACE") && worker_log.contains("sqlx"), "{worker_log}");
    assert_eq!(told_operators.matches("password authentication failed").count(), 2, "{told_operators}");
    assert!(inspected.contains("/out") && inspected.contains(&job), "{inspected}");
    assert!(seen_inside.contains("PATH=") && seen_inside.contains("ncu-runner"), "{seen_inside}");
    assert!(tables.contains(&job[20..]) && tables.contains("apalis"), "{tables}");
    let token: String =
        query_scalar("SELECT claim_token::text FROM jobs").fetch_one(&stack.pool().await).await.unwrap();

    let public = [("body of the job", body.to_string()), ("inside of the container", seen_inside)];
    places.extend([("log of the API", api_log), ("log of the worker", worker_log), ("tables", tables)]);
    places.extend([("engine's description of the containers", inspected), ("commands' output", told_operators)]);
    places.extend(public.clone());
    let secrets = [
        CLI_ID,
        DATABASE_PASSWORD,
        WRONG_PASSWORD,
        KERNELBOT_PASSWORD,
        KERNELBOT_BASIC,
        STORE_SECRET,
        ADMIN_TOKEN,
        COLLECTOR_TOKEN,
    ];
    for (place, content) in &places {
        for secret in secrets {
            let hex = secret.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            if let Some(at) = content.find(secret).or_else(|| content.find(&hex)) {
                let around = String::from_utf8_lossy(&content.as_bytes()[at.saturating_sub(300)..at + secret.len()]);
                panic!("{secret} is in the {place}: {around}");
            }
        }
    }
    // The token of an attempt is no secret to the engine and the tables, but nobody outside has it.
    for (place, content) in &public {
        assert!(!content.contains(&token), "the attempt's token is in the {place}");
    }
    assert!(!places.iter().any(|(place, content)| *place == "archive" && content.contains(&token)));
}
