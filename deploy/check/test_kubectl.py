"""kubectl-pumice: it runs the program with the port that kubectl forwards, and says what kubectl says."""

import os
import subprocess
import sys
from pathlib import Path

from cluster import free_port
from tools import DEPLOY, run, until

PLUGIN = DEPLOY / "kubectl-pumice"


def environment(folder: Path, kubectl: str) -> dict[str, str]:
    """A search path with this kubectl and the program."""
    (folder / "kubectl").write_text(f"#!{sys.executable}\n{kubectl}\n")
    (folder / "kubectl").chmod(0o755)
    (folder / "pumice").symlink_to(os.environ["PUMICE_BIN"])
    return {"PATH": f"{folder}:{os.environ['PATH']}", "PUMICE_NAMESPACE": "there"}


def test_the_plugin_runs_the_program_with_a_forwarded_port(tmp_path: Path) -> None:
    port, probes = free_port(), free_port()
    program = os.environ["PUMICE_BIN"]
    addresses = [f"--grpc-address=127.0.0.1:{port}", f"--http-address=127.0.0.1:{probes}"]
    server = subprocess.Popen([program, "serve", *addresses], stderr=subprocess.DEVNULL)
    try:
        until("it serves", lambda: run(program, "state", "show", "--server", f"127.0.0.1:{port}"))
        said = f"import sys, time; assert sys.argv[1:5] == ['--namespace', 'there', 'port-forward', 'service/pumice']; \
print('Forwarding from 127.0.0.1:{port} -> 7461', flush=True); time.sleep(60)"
        done = run(PLUGIN, "state", "show", env=environment(tmp_path, said))
        assert "policies: default" in done.stdout
    finally:
        server.terminate()
        server.wait()


def test_the_plugin_says_what_kubectl_says(tmp_path: Path) -> None:
    said = "import sys; sys.exit('services \"pumice\" not found')"
    failed = run(PLUGIN, "state", "show", env=environment(tmp_path, said), check=False)
    assert failed.returncode == 3
    assert 'services "pumice" not found' in failed.stderr
