"""The release: one version everywhere, and workflows that a linter finds nothing in."""

import os
import re
import sys

from tools import DEPLOY, ROOT, compiled_files, run


def test_every_file_names_the_same_version() -> None:
    run(sys.executable, DEPLOY / "release" / "versions.py")
    refused = run(sys.executable, DEPLOY / "release" / "versions.py", "v99.0.0", check=False)
    assert refused.returncode == 1
    assert "99.0.0" in refused.stderr


def test_the_workflows_are_valid_and_run_what_is_there() -> None:
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert {file.stem for file in files} == {"ci", "nightly", "release"}
    run(os.environ["ACTIONLINT"], "-shellcheck=", "-pyflakes=", *files)
    makefile = (ROOT / "Makefile").read_text()
    for file in files:
        text = file.read_text()
        for target in re.findall(r"\bmake ([a-z-]+)", text):
            assert f"\n{target}:" in makefile, target
        matrix = re.search(r"\n +target:\n((?: +- .*\n)+)", text)
        for target in re.findall(r"- ([a-z-]+)", matrix[1]) if matrix else []:
            assert f"\n{target}:" in makefile, target
        for script in re.findall(r"\bdeploy/\S+\.(?:sh|py|Dockerfile)\b", text):
            assert (ROOT / script).is_file(), script


def test_the_files_are_built_on_the_glibc_of_the_image() -> None:
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    rust = re.search(r"ARG RUST_VERSION=(.*)", dockerfile)
    assert rust
    assert f"image: rust:{rust[1]}-bookworm\n" in release
    assert f'rust-version = "{rust[1]}"' in (ROOT / "Cargo.toml").read_text()


def test_the_crate_has_every_file_that_it_compiles() -> None:
    listed = run("cargo", "package", "--list", "--allow-dirty", "--manifest-path", ROOT / "Cargo.toml", "-p", "pumice")
    shipped = set(listed.stdout.split())
    compiled = compiled_files()
    own = {name for name in compiled if not name.startswith("crates/")}
    assert own - shipped == set()
    assert not [name for name in shipped - own if name.startswith(("clients/", "deploy/", "docs/", "tests/"))]
    assert {"LICENSE", "README.md", "build.rs"} <= shipped
