"""One probe, from inside the pod's network; the exit code is the outcome.

probe.py http|https PORT PATH | probe.py grpc PORT SERVICE
"""

import ssl
import sys
import urllib.request

import grpc

SERVING = b"\x08\x01"


def main() -> int:
    """Asks once."""
    kind, port, what = sys.argv[1:]
    if kind != "grpc":
        # The kubelet does not verify the certificate either.
        context = ssl._create_unverified_context()
        with urllib.request.urlopen(f"{kind}://127.0.0.1:{port}{what}", timeout=5, context=context) as response:
            print(response.read().decode(), end="")
            return 0 if response.status == 200 else 1
    service = what.encode()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        status = check(bytes([0x0A, len(service)]) + service, timeout=5)
    print("SERVING" if status == SERVING else "NOT_SERVING")
    return 0 if status == SERVING else 1


if __name__ == "__main__":
    sys.exit(main())
