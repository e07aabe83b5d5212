//! `pumice reservations`: lists and releases the reservations of the admission ledger.

use clap::{Args, Subcommand};

use pumice_console::{ClientArgs, CommandError, OutputFormat, listings, output};
use pumice_protocol::v1 as pb;

/// Command on reservations.
#[derive(Debug, Subcommand)]
pub(super) enum ReservationsCommand {
    /// List the reservations of jobs, with the reserved amounts that no task holds yet
    List(ListReservationsArgs),
    /// Release the reservation of a job; a late confirmation cannot restore it
    Release(ReleaseReservationArgs),
}

/// Arguments of `pumice reservations list`.
#[derive(Debug, Args)]
pub(super) struct ListReservationsArgs {
    /// List only reservations of this queue, such as research; repeatable
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Arguments of `pumice reservations release`.
#[derive(Debug, Args)]
pub(super) struct ReleaseReservationArgs {
    /// Job as `namespace/name`, such as train/bert
    #[arg(value_name = "JOB")]
    job: String,
    /// Kubernetes uid of the job; empty: any uid
    #[arg(long, default_value = "")]
    uid: String,
    /// Highest attempt to release, such as 2; earlier attempts are also released [default: the listed attempt]
    #[arg(long)]
    attempt: Option<u64>,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) async fn run(command: ReservationsCommand) -> Result<(), CommandError> {
    match command {
        ReservationsCommand::List(args) => list(args).await,
        ReservationsCommand::Release(args) => release(args).await,
    }
}

async fn list(args: ListReservationsArgs) -> Result<(), CommandError> {
    let mut connection = args.client.connect().await?;
    let request = pb::ListReservationsRequest {
        queues: args.queues,
        ..pb::ListReservationsRequest::default()
    };
    listings::show(&mut connection, request, args.client.output, &HEAD, cells, None).await
}

/// Columns of the list of reservations.
const HEAD: [&str; 7] = [
    "JOB",
    "QUEUE",
    "ATTEMPT",
    "RESERVED",
    "OUTSTANDING",
    "CONFIRMED",
    "EXPIRES",
];

fn cells(row: pb::Reservation) -> [String; 7] {
    [
        row.job,
        row.queue,
        row.attempt.to_string(),
        amounts(&row.reserved),
        amounts(&row.outstanding),
        row.confirm_time.map(|time| time.to_string()).unwrap_or_default(),
        row.expire_time
            .map_or_else(|| "paused".to_owned(), |time| time.to_string()),
    ]
}

async fn release(args: ReleaseReservationArgs) -> Result<(), CommandError> {
    let mut connection = args.client.connect().await?;
    let attempt = if let Some(attempt) = args.attempt {
        attempt
    } else {
        let all = listings::rows(&mut connection, pb::ListReservationsRequest::default()).await?;
        let listed = all.into_iter().find(|row| row.job == args.job);
        let missing = || CommandError::message(format!("error: job `{}` has no reservation", args.job));
        listed.ok_or_else(missing)?.attempt
    };
    let request = pb::ReleaseReservationRequest {
        job: args.job.clone(),
        job_uid: args.uid,
        attempt,
    };
    let reply = connection.state.release_reservation(request).await?.into_inner();
    if args.client.output == OutputFormat::Json {
        return output::json(&reply);
    }
    output::line(&match &reply.reservation {
        Some(row) => format!(
            "{}: released {}, of which {} was held back",
            row.job,
            amounts(&row.reserved),
            amounts(&row.outstanding)
        ),
        None => format!(
            "{}: nothing was reserved; attempts up to {attempt} are refused from now on",
            args.job
        ),
    })
}

/// Amounts as people write them: cores, bytes with a unit, cards.
fn amounts(amounts: &[pb::Amount]) -> String {
    if amounts.is_empty() {
        return "-".to_owned();
    }
    let shown = amounts.iter().map(|amount| match amount.resource.as_str() {
        "memory" => format!("memory={}Mi", amount.value / 1_048_576.0),
        name => format!("{name}={}", amount.value / 1_000.0),
    });
    shown.collect::<Vec<_>>().join(" ")
}
