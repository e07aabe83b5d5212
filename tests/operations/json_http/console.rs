//! Files of the console.

use super::{HttpReply, call, exchange};
use crate::support::EmbeddedServer;

fn get(server: &EmbeddedServer, path: &str, headers: &[(&str, &str)]) -> HttpReply {
    exchange(server.http, &format!("GET {path}"), headers, b"")
}

#[test]
fn the_console_is_served_to_this_machine_and_loads_nothing_from_elsewhere() {
    let server = EmbeddedServer::start();
    let own = ("Host", "localhost");
    let page = get(&server, "/console/", &[own]);
    assert_eq!(page.status, 200);
    for header in [
        "content-type: text/html",
        "cache-control: no-cache",
        "x-content-type-options: nosniff",
        "content-security-policy: default-src 'none'; script-src 'self';",
        "frame-ancestors 'none'",
    ] {
        assert!(page.head.contains(header), "{header}: {}", page.head);
    }
    assert!(!page.head.contains("unsafe"), "{}", page.head);
    for elsewhere in ["src=\"http", "href=\"http", "src=\"//", "href=\"//"] {
        assert!(!page.text().contains(elsewhere), "{}", page.text());
    }
    assert_eq!(get(&server, "/console/index.html", &[own]).body, page.body);
    let redirect = get(&server, "/console", &[own]);
    assert!(
        redirect.status == 308 && redirect.head.contains("location: /console/"),
        "{}",
        redirect.head
    );
    for absent in [
        "/console/absent",
        "/console/../Cargo.toml",
        "/console/%2e%2e/Cargo.toml",
        "/console//index.html",
        "/console//console/index.html",
    ] {
        assert_eq!(get(&server, absent, &[own]).status, 404, "{absent}");
    }
    assert_eq!(get(&server, "/console/", &[("Host", "evil.example")]).status, 403);
    let posted = exchange(server.http, "POST /console/", &[own], b"");
    assert_eq!(posted.status, 405);
}

#[test]
fn a_poll_of_a_page_learns_how_many_pages_there_are() {
    let server = EmbeddedServer::start();
    let poll = |method: &str| call(server.http, &format!("StateService/{method}"), "{}");
    for _ in 0..2 {
        assert!(poll("GetServerInfo").head.contains("pumice-viewers: 1"));
    }
    let third = poll("GetServerInfo");
    assert!(
        third.status == 200 && third.head.contains("pumice-viewers: 2"),
        "{}",
        third.head
    );
    assert!(!poll("WhoAmI").head.contains("pumice-viewers"));
}

#[test]
fn each_file_of_the_page_is_there() {
    let server = EmbeddedServer::start();
    let own = ("Host", "localhost");
    let page = get(&server, "/console/", &[own]).text();
    let quoted = page.split(['"', '\'']);
    let assets: Vec<&str> = quoted.filter(|text| text.contains("assets/")).collect();
    assert!(!assets.is_empty(), "{page}");
    for asset in assets {
        let name = asset.rsplit("assets/").next().unwrap();
        let path = format!("/console/assets/{name}");
        let file = get(&server, &path, &[own]);
        assert_eq!(file.status, 200, "{path}");
        assert!(file.head.contains("immutable"), "{}", file.head);
    }
}
