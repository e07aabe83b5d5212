"""Bearer tokens in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pumice._connect import resolve


def test_a_token_goes_over_tls_or_stays_on_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    for target in ["127.0.0.1:7461", "localhost:7461", "[::1]:7461", "unix:/run/pumice.sock", "https://pumice.test"]:
        assert resolve(target, None, (), file).credentials is not None, target
    with pytest.raises(ValueError, match="could read the token"):
        resolve("pumice.test:7461", None, (), file)
    file.write_text("\n")
    with pytest.raises(ValueError, match="has no token"):
        resolve("localhost:7461", None, (), file)
