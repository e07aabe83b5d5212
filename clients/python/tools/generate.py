"""Writes the messages of the protocol as Python modules and stubs: `python tools/generate.py [DIR]`."""

import shutil
import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(__file__).resolve().parents[1] / "src"


def generate(into: Path) -> None:
    """Writes `pumice/v1/*_pb2.py` and `.pyi` below `into`."""
    proto = ROOT / "proto"
    files = sorted(str(path) for path in (proto / "pumice" / "v1").glob("*.proto"))
    beside = Path(sys.executable).parent
    plugin = shutil.which("protoc-gen-mypy", path=str(beside)) or shutil.which("protoc-gen-mypy")
    if plugin is None:
        raise SystemExit("protoc-gen-mypy is missing: pip install -r requirements-dev.txt")
    into.mkdir(parents=True, exist_ok=True)
    code: int = protoc.main(
        [
            "protoc",
            f"--proto_path={proto}",
            f"--proto_path={Path(grpc_tools.__file__).parent / '_proto'}",
            f"--plugin=protoc-gen-mypy={plugin}",
            f"--python_out={into}",
            f"--mypy_out=quiet:{into}",
            *files,
        ]
    )
    if code != 0:
        raise SystemExit(code)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
