"""First decision: `python -m pumice` calls the server named in `PUMICE_SERVER`, or the one on this machine."""

import os
import sys

import pumice
from pumice import errors, table, v1
from pumice._connect import DEFAULT_TARGET

POLICY = """
actions: allocate
tiers:
- plugins:
  - name: resource-strategy-fit
    arguments:
      resources:
        nvidia.com/gpu: {type: MostAllocated, weight: 2}
        cpu: {type: LeastAllocated, weight: 1}
"""


def main() -> int:
    """Scores three nodes that are sent with the request; the server keeps nothing of them."""
    running = pumice.task(
        "ml/train-0", cpu=8, requests={"nvidia.com/gpu": 4}, node="gpu-2", status=v1.TASK_STATUS_RUNNING
    )
    cluster = v1.Cluster(
        nodes=[
            pumice.node("gpu-1", {"nvidia.com/gpu": 8}, cpu=64, memory="512Gi"),
            pumice.node("gpu-2", {"nvidia.com/gpu": 8}, cpu=64, memory="512Gi"),
            pumice.node("cpu-1", cpu=32, memory="128Gi"),
        ],
        tasks=[running],
    )
    task = pumice.task(cpu=2, memory="4Gi", requests={"nvidia.com/gpu": 1})
    server = os.environ.get("PUMICE_SERVER", DEFAULT_TARGET)
    try:
        with pumice.connect(server) as client:
            result = client.score(
                against=pumice.inline(cluster, POLICY), tasks=[task], with_filter=True, with_parts=True
            ).result
    except errors.PumiceError as error:
        print(f"{server}: {error}", file=sys.stderr)
        return 1
    print("a task of 2 cores, 4 GiB and a GPU, best node first:")
    rows = sorted(table.score_rows(result), key=lambda row: -row.total)
    print(table.render(rows))
    filtered = v1.FilterResult(items=[item.filter for item in result.items])
    for row in table.rejection_rows(filtered):
        print(f"rejected: {row.sample}: {row.message}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
