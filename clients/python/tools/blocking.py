"""Writes the blocking client, which is the asyncio client without `await`: `python tools/blocking.py [DIR]`."""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "pumice"
FILES = {"aio.py": "client.py", "_async_feed.py": "_blocking_feed.py"}
# Each stands in one of the files at least.
SENTENCES = {
    "Client for asyncio, with the same methods as `pumice.client`.": "Client whose calls block.",
    "Feed of the client for asyncio.": "Feed of the client whose calls block.",
    "Use it from one event loop.": "It is safe to use from several threads.",
    "the others from tasks of the feed.": "the others from threads of the feed.",
    "calls `full` in its own task.": "calls `full` from its own thread.",
}
WORDS = {
    r" \| AsyncIterable\[v1\.Batch\]": "",
    r"import grpc\.aio\n": "",
    r"grpc\.aio\.": "grpc.",
    r"pumice\._loop": "pumice._threads",
    r"pumice\._async_feed": "pumice._blocking_feed",
    r"pumice\.aio": "pumice.client",
    r"(?:Coroutine\[Any, Any, R\]|Awaitable\[R\])": "R",
    r"\bAsync(?=[A-Z])": "",
    r"\basync (?=def|with|for|`)": "",
    r"\bawait ": "",
    r"__a(?=enter__|exit__)": "__",
}


def blocking(text: str, source: str) -> str:
    """Returns the text of a module without `await`."""
    for sentence, other in SENTENCES.items():
        text = text.replace(sentence, other)
    for pattern, other in WORDS.items():
        text = re.sub(pattern, other, text)
    head, end, rest = text.partition('"""\n')
    return f"{head}{end}\n# `python tools/blocking.py` writes this file; {source} is its source.\n{rest}"


def write(into: Path) -> None:
    """Writes the modules into a folder."""
    sources = {name: (PACKAGE / name).read_text() for name in FILES}
    gone = [sentence for sentence in SENTENCES if not any(sentence in text for text in sources.values())]
    if gone:
        raise SystemExit(f"no module has this sentence any more: {gone}")
    for source, text in sources.items():
        name = FILES[source]
        # Names that are imported for `await` alone, the order of the others, and `with` in `with`.
        tidy = ruff(["check", "--fix", "--select", "F401,I,SIM117"], name, blocking(text, source))
        (into / name).write_text(ruff(["format"], name, tidy))


def ruff(arguments: list[str], name: str, text: str) -> str:
    """Returns what ruff makes of the text of a module."""
    command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename", str(PACKAGE / name), "-"]
    return subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
