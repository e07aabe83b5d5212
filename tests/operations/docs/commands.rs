//! Runs the commands of the pages. Bash runs a block ` ```sh run `, page by page, against a server of the page's own. A
//! block ` ```sh run fails ` must fail. A block whose words end with `answer` is the expected output of the previous
//! block; errors are included if that block must fail. There `…` stands for any text, and for any number of lines where
//! it is alone.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::{page, pages, root};
use crate::support::TestDirectory;
use crate::support::process::ServeProcess;

/// Block that is run or compared.
#[derive(Debug)]
struct CommandBlock {
    line: usize,
    is_output: bool,
    must_fail: bool,
    text: String,
}

/// Blocks of a page that are run or compared.
fn blocks(page: &str) -> Vec<CommandBlock> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| *line != "```")
            .collect();
        let result = info.ends_with(" answer");
        let must_fail = info == "sh run fails";
        if info == "sh run" || must_fail || result {
            blocks.push(CommandBlock {
                line: at + 1,
                is_output: result,
                must_fail,
                text: body.join("\n"),
            });
        }
    }
    blocks
}

/// True if the output is the one that the page shows. The number of blanks does not matter, because column widths
/// depend on the content.
fn output_matches(said: &str, written: &str) -> bool {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let said: Vec<String> = said.lines().map(words).collect();
    let written: Vec<String> = written.lines().map(words).collect();
    lines_fit(&said, &written)
}

fn lines_fit(said: &[String], written: &[String]) -> bool {
    match (said, written) {
        ([], []) => true,
        ([first, rest @ ..], _) if first == "…" => {
            (0..=written.len()).any(|left_out| lines_fit(rest, &written[left_out..]))
        }
        ([first, said @ ..], [line, written @ ..]) => line_fits(first, line) && lines_fit(said, written),
        ([], _) | (_, []) => false,
    }
}

/// True if one line matches; `…` is any text.
fn line_fits(said: &str, line: &str) -> bool {
    let Some((head, tail)) = said.split_once('…') else {
        return said == line;
    };
    line.strip_prefix(head).is_some_and(|rest| {
        rest.char_indices()
            .map(|(at, _)| at)
            .chain([rest.len()])
            .any(|at| rest.get(at..).is_some_and(|rest| line_fits(tail, rest)))
    })
}

/// Runs a page. Returns the problems, block by block.
fn run(name: &str) -> String {
    let blocks = blocks(&page(name));
    let mut problems = String::new();
    if blocks.is_empty() {
        return problems;
    }
    let server = ServeProcess::start(&[]);
    let (grpc, http) = (server.grpc.to_string(), server.http.to_string());
    let folder = TestDirectory::named(&format!("docs-{}", name.replace('/', "-")));
    for part in ["docs", "examples", "policies", "proto", "tests"] {
        std::os::unix::fs::symlink(root().join(part), folder.path().join(part)).unwrap();
    }
    let mut written = String::new();
    for block in blocks {
        if block.is_output {
            if !output_matches(&block.text, &written) {
                writeln!(
                    problems,
                    "{name}:{}: the page says:\n{}\nand it is:\n{written}",
                    block.line, block.text
                )
                .unwrap();
            }
            continue;
        }
        let text = block
            .text
            .replace("127.0.0.1:7461", &grpc)
            .replace("127.0.0.1:7462", &http);
        let output = Command::new("bash")
            .args(["--norc", "-euo", "pipefail", "-c", &text])
            .current_dir(folder.path())
            .env("PATH", path())
            .env("PUMICE_SERVER", &grpc)
            .env("PUMICE_METRICS", format!("http://{http}/metrics"))
            .env("XDG_CONFIG_HOME", folder.path())
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        let shown = if block.must_fail {
            format!("{out}{err}")
        } else {
            out.to_string()
        };
        written = shown.replace(&grpc, "127.0.0.1:7461").replace(&http, "127.0.0.1:7462");
        if output.status.success() == block.must_fail {
            writeln!(
                problems,
                "{name}:{}: {}:\n{}\n{out}{err}",
                block.line, output.status, block.text
            )
            .unwrap();
        }
    }
    problems
}

/// Search path: the program that was built, the tools that `make docs` fetches, and the machine's own.
fn path() -> std::ffi::OsString {
    let built = Path::new(env!("CARGO_BIN_EXE_pumice")).parent().unwrap().to_owned();
    let fetched = root().join(".cache/go/bin");
    let own = std::env::var_os("PATH").unwrap();
    std::env::join_paths([built, fetched].into_iter().chain(std::env::split_paths(&own))).unwrap()
}

#[test]
#[ignore = "needs grpcurl: make docs"]
#[expect(clippy::print_stdout, reason = "who runs the pages sees how far they are")]
fn commands_do_what_the_pages_say() {
    let grpcurl = Command::new("grpcurl").arg("-version").env("PATH", path()).output();
    assert!(
        grpcurl.is_ok_and(|output| output.status.success()),
        "grpcurl is missing: run `make docs`"
    );
    let mut problems = super::links::problems();
    for name in pages() {
        let found = run(&name);
        println!("{name}: {}", if found.is_empty() { "ok" } else { "FAULTS" });
        problems.push_str(&found);
    }
    assert!(problems.is_empty(), "\n{problems}");
}

#[test]
fn what_a_page_says_is_compared() {
    let page = "a\n```sh run\necho a\necho b\n```\n\n```text answer\na\nb\n```\n```sh\nnot run\n```\n```sh run fails\nfalse\n```\n";
    let found: Vec<_> = blocks(page)
        .into_iter()
        .map(|block| (block.line, block.is_output, block.must_fail, block.text))
        .collect();
    assert_eq!(
        found,
        [
            (2, false, false, "echo a\necho b".to_owned()),
            (7, true, false, "a\nb".to_owned()),
            (14, false, true, "false".to_owned()),
        ]
    );
    for said in ["a\nb\nc\n", "…", "a\n…", "…\nb\n…", "a \nb\n…\nc", "…\nc", "a\n…\nb\nc"] {
        assert!(output_matches(said, "a\nb\nc\n"), "{said}");
    }
    for said in ["", "a\nb", "b\n…", "…\nb", "a\nc\nb", "…\na…b"] {
        assert!(!output_matches(said, "a\nb\nc\n"), "{said}");
    }
    assert!(output_matches("version …, revision …", "version 1, revision 7\n"));
    assert!(!output_matches("version …, revision …", "version 1\n"));
}
