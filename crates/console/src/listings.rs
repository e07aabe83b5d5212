//! Listings of a server, read page by page to their end.

use prost::{Message, Name};
use tonic::Status;

use crate::cluster_record::ClusterRecord;
use crate::output::{self, TextTable};
use crate::{CommandError, OutputFormat};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Rows that are asked for in one page; a server may return fewer.
const PAGE_ROWS: u32 = 5_000;

/// Request of a listing.
pub trait Listing: Clone + Send {
    /// Row with what the server knows of one entry, such as `NodeStatus`.
    type Row: Send;
    /// Response with one page of rows.
    type Page: Message + Name + Default;

    /// Asks for the page with this token; empty: the first page.
    fn page(
        self,
        connection: &mut ClientConnection,
        token: String,
    ) -> impl Future<Output = Result<Self::Page, Status>> + Send;

    /// Rows of a page.
    fn rows(page: &mut Self::Page) -> &mut Vec<Self::Row>;

    /// Token of the page after a page; empty: it is the last one.
    fn next_token(page: &mut Self::Page) -> &mut String;
}

/// Request of a listing of records.
pub trait RecordListing: Listing {
    /// Kind of the records.
    type Record: ClusterRecord;

    /// Listing of the records with these names in a state. No name: all. No state: the newest.
    fn new(against: Option<pb::EvaluationRef>, names: Vec<String>) -> Self;

    /// State and policy of a page.
    fn metadata(page: &Self::Page) -> Option<&pb::ResponseMetadata>;

    /// Record of a row.
    fn record(row: &Self::Row) -> Option<&Self::Record>;

    /// Record of a row, its source, and the problems of its newest version.
    fn parts(row: Self::Row) -> (Option<Self::Record>, String, Vec<pb::Problem>);
}

/// Reads all pages.
pub async fn pages<L: Listing>(connection: &mut ClientConnection, request: L) -> Result<Vec<L::Page>, CommandError> {
    let mut pages = Vec::new();
    let mut token = String::new();
    loop {
        let mut page = request.clone().page(connection, token).await?;
        token = std::mem::take(L::next_token(&mut page));
        pages.push(page);
        if token.is_empty() {
            return Ok(pages);
        }
    }
}

/// Reads all pages into one. Its other fields come from the first page.
pub async fn whole<L: Listing>(connection: &mut ClientConnection, request: L) -> Result<L::Page, CommandError> {
    let mut pages = pages(connection, request).await?.into_iter();
    let mut whole = pages.next().unwrap_or_default();
    for mut page in pages {
        L::rows(&mut whole).append(L::rows(&mut page));
    }
    Ok(whole)
}

/// Reads the rows of all pages.
pub async fn rows<L: Listing>(connection: &mut ClientConnection, request: L) -> Result<Vec<L::Row>, CommandError> {
    let mut page = whole(connection, request).await?;
    Ok(std::mem::take(L::rows(&mut page)))
}

/// Prints a listing: its response as JSON, or a table with a row of cells for each row. `counted`: the name of a row, if the
/// number of rows is printed below the table.
pub async fn show<L: Listing, const COLUMNS: usize>(
    connection: &mut ClientConnection,
    request: L,
    format: OutputFormat,
    head: &[&str],
    cells: fn(L::Row) -> [String; COLUMNS],
    counted: Option<&str>,
) -> Result<(), CommandError> {
    let mut reply = whole(connection, request).await?;
    if format == OutputFormat::Json {
        return output::json(&reply);
    }
    let rows = std::mem::take(L::rows(&mut reply));
    let count = counted.map(|name| output::count(rows.len(), name));
    let mut table = TextTable::new(head.iter().copied());
    for row in rows {
        table.row(cells(row));
    }
    output::table(&table)?;
    count.map_or(Ok(()), |count| output::line(&count))
}

/// Version, policies, plugins, sources and limits of a server.
pub async fn server_info(connection: &mut ClientConnection) -> Result<pb::GetServerInfoResponse, CommandError> {
    let info = connection.state.get_server_info(pb::GetServerInfoRequest {}).await?;
    Ok(info.into_inner())
}

/// Name of the record of a row.
pub fn name<L: RecordListing>(row: &L::Row) -> Option<String> {
    L::record(row).map(|record| record.name().to_owned())
}

/// A listing by its request, method and page, and how a request asks for the page of a token.
macro_rules! listing {
    ($request:ident, $service:ident.$call:ident, $page:ident, $rows:ident: $row:ident, $turn:expr) => {
        impl Listing for pb::$request {
            type Row = pb::$row;
            type Page = pb::$page;

            async fn page(mut self, connection: &mut ClientConnection, token: String) -> Result<pb::$page, Status> {
                let turn: fn(&mut Self, String) = $turn;
                turn(&mut self, token);
                Ok(connection.$service.$call(self).await?.into_inner())
            }

            fn rows(page: &mut pb::$page) -> &mut Vec<pb::$row> {
                &mut page.$rows
            }

            fn next_token(page: &mut pb::$page) -> &mut String {
                &mut page.next_page_token
            }
        }
    };
}

/// A listing of records.
macro_rules! record_listing {
    ($request:ident, $call:ident, $page:ident, $rows:ident: $row:ident, $record:ident: $kind:ident) => {
        listing!($request, state.$call, $page, $rows: $row, |request, token| request.page = Some(page_at(token)));

        impl RecordListing for pb::$request {
            type Record = pb::$kind;

            fn new(against: Option<pb::EvaluationRef>, names: Vec<String>) -> Self {
                let page = None;
                Self { against, names, page }
            }

            fn metadata(page: &pb::$page) -> Option<&pb::ResponseMetadata> {
                page.metadata.as_ref()
            }

            fn record(row: &pb::$row) -> Option<&pb::$kind> {
                row.$record.as_ref()
            }

            fn parts(row: pb::$row) -> (Option<pb::$kind>, String, Vec<pb::Problem>) {
                (row.$record, row.source, row.invalid)
            }
        }
    };
}

record_listing!(ListNodesRequest, list_nodes, ListNodesResponse, nodes: NodeStatus, node: Node);
record_listing!(ListQueuesRequest, list_queues, ListQueuesResponse, queues: QueueStatus, queue: Queue);
record_listing!(ListJobsRequest, list_jobs, ListJobsResponse, jobs: JobStatus, job: Job);
record_listing!(ListTasksRequest, list_tasks, ListTasksResponse, tasks: StoredTask, task: Task);
record_listing!(ListNamespacesRequest, list_namespaces, ListNamespacesResponse, namespaces: NamespaceStatus, namespace: Namespace);
listing!(
    ListReservationsRequest,
    state.list_reservations,
    ListReservationsResponse,
    reservations: Reservation,
    |request, token| request.page = Some(page_at(token))
);
listing!(
    ListSessionsRequest,
    decisions.list_sessions,
    ListSessionsResponse,
    sessions: SessionStatus,
    |request, token| request.page = Some(page_at(token))
);
listing!(
    ListPoliciesRequest,
    policies.list_policies,
    ListPoliciesResponse,
    policies: Policy,
    |request, token| request.page_token = token
);

fn page_at(token: String) -> pb::Page {
    let size = PAGE_ROWS;
    pb::Page { size, token }
}
