//! Console: a folder of static files that is embedded in the program. The files hold no data: the page calls methods, and
//! each call needs its roles.

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{HeaderName, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;

use super::connect::CallExposure;

/// First part of the paths of the console.
const PREFIX: &str = "/console/";
/// Folder of files whose names change with their content.
const ASSETS: &str = "assets/";

/// A page loads scripts, styles and data from this server only, and no other site shows it in a frame.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Embedded file, and its path below the prefix.
struct ConsoleFile {
    /// Path in the folder, such as `assets/app-1a2b3c.js`.
    path: &'static str,
    content: &'static [u8],
}

// CONSOLE_FILES: all files, sorted by path. The build script lists them.
include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

/// True if the path is one of the console.
pub(crate) fn is_console_path(path: &str) -> bool {
    path.starts_with(PREFIX) || path == PREFIX.trim_end_matches('/')
}

/// Router of the console's files, for callers on connections on which calls are served.
pub(crate) fn console_router(exposure: CallExposure) -> Router {
    let to_console = || std::future::ready(Redirect::permanent(PREFIX));
    Router::new()
        .route(PREFIX.trim_end_matches('/'), get(to_console))
        .route(PREFIX, get(serve_file))
        .route(&format!("{PREFIX}{{*file}}"), get(serve_file))
        .with_state(exposure)
}

async fn serve_file(Shared(exposure): Shared<CallExposure>, request: Request<axum::body::Body>) -> Response {
    if let Err(reason) = check_caller(exposure, &request) {
        return (StatusCode::FORBIDDEN, reason + "\n").into_response();
    }
    let path = request
        .uri()
        .path()
        .strip_prefix(PREFIX)
        .filter(|path| !path.is_empty());
    let path = path.unwrap_or("index.html");
    let found = CONSOLE_FILES.binary_search_by(|file| file.path.cmp(path));
    let Some(file) = found.ok().and_then(|at| CONSOLE_FILES.get(at)) else {
        return (StatusCode::NOT_FOUND, "the console has no such file\n").into_response();
    };
    file.response()
}

fn check_caller(exposure: CallExposure, request: &Request<axum::body::Body>) -> Result<(), String> {
    exposure.check_connection(request.extensions())?;
    if !exposure.has_identities && !CallExposure::is_local(request.extensions()) {
        return Err("for other machines the console needs roles: set `identities_file`".to_owned());
    }
    exposure.check_host(request.headers(), request.extensions())
}

impl ConsoleFile {
    fn response(&self) -> Response {
        let caching = if self.path.starts_with(ASSETS) {
            "public, max-age=31536000, immutable"
        } else {
            "no-cache"
        };
        let headers = [
            (header::CONTENT_TYPE, self.content_type()),
            (header::CACHE_CONTROL, caching),
            (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ];
        (headers, self.content).into_response()
    }

    fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map_or("", |(_, extension)| extension) {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "woff2" => "font/woff2",
            "json" => "application/json",
            _ => "application/octet-stream",
        }
    }
}
