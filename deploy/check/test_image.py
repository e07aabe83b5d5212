"""Images: their steps run, the build sees what it needs, and no step names an architecture."""

import re

import pytest

import image as images
from tools import DEPLOY, ROOT, compiled_files

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"


def test_the_build_sees_every_file_that_it_compiles() -> None:
    seen = images.copied_files(DEPLOY / "docker" / "Dockerfile.dockerignore")
    compiled = compiled_files()
    assert compiled - seen == set()
    assert {"Cargo.lock", "Cargo.toml", "build.rs", "LICENSE", "deploy/docker/build.sh"} <= seen
    assert any(name.startswith("proto/") for name in seen)
    assert not [name for name in seen - compiled if name.startswith(("tests/", "docs/", "clients/"))]


def test_the_build_of_the_scheduler_sees_its_modules_and_the_licence() -> None:
    seen = images.copied_files(DEPLOY / "docker" / "kube-scheduler.Dockerfile.dockerignore")
    assert {"LICENSE", "clients/go/go.mod", "clients/go/kubescheduler/go.mod"} <= seen
    assert not [name for name in seen if not name.startswith(("LICENSE", "clients/go/"))]


def test_the_image_has_the_program_and_its_licence(server_image: images.BuiltImage) -> None:
    assert server_image.entrypoint == ["/usr/local/bin/pumice"]
    assert server_image.command == ["serve"]
    assert server_image.user == "65532:65532"
    program = server_image.root / "usr/local/bin/pumice"
    assert program.stat().st_mode & 0o777 == 0o755
    for name in ("LICENSE", "THIRD-PARTY-LICENSES.txt"):
        assert (server_image.root / "usr/share/doc/pumice" / name).read_text() == (ROOT / name).read_text()


@pytest.mark.parametrize("name", ["Dockerfile", "kube-scheduler.Dockerfile"])
def test_a_dockerfile_has_two_stages_and_names_no_architecture(name: str) -> None:
    text = (DEPLOY / "docker" / name).read_text()
    steps = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert not re.search(r"amd64|x86_64|arm64|aarch64", steps)
    build, last = images.read_stages(DEPLOY / "docker" / name)
    assert build.name == "build"
    assert last.base.startswith("gcr.io/distroless/")
    assert last.base.endswith(":nonroot")
    assert [word for word, _ in last.steps if word == "RUN"] == []
    for word, rest in build.steps:
        if word == "RUN":
            script = re.sub(r"--mount=\S+\s*", "", rest).split()[0]
            assert (ROOT / script).stat().st_mode & 0o100, script
