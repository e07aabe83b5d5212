#!/usr/bin/env python3
"""Walks through the life of a cluster that Pumice governs, with a real vc-scheduler, API server and etcd.

The output is a list of checked facts; the exit code is 1 if one does not hold. See README.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import failure_steps as failure
import policy_steps as policy
from governed import Walk

STEPS = [
    policy.before_any_policy,
    policy.a_policy_is_pushed,
    policy.a_queue_over_its_quota,
    policy.rollback,
    policy.differing_plugins,
    policy.bad_records,
    failure.the_server_is_killed,
    failure.the_scheduler_is_killed,
    failure.the_leader_changes,
    failure.stale_state,
    failure.an_expected_hash,
    failure.state_in_memory,
    failure.permissions,
]


def attempt(walk: Walk, step: Callable[[Walk], None]) -> None:
    """Take a step; what does not come in time is a fact that does not hold."""
    try:
        step(walk)
    except TimeoutError as error:
        walk.facts.check(f"The step {step.__name__} ends", False, error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--volcano", type=Path, required=True, help="source of Volcano: its resources and its chart")
    parser.add_argument("--scheduler", type=Path, required=True, help="vc-scheduler with the adapter")
    parser.add_argument("--programs", type=Path, required=True, help="folder with etcd and kube-apiserver")
    parser.add_argument("--pumice", type=Path, required=True, help="this project's server")
    parser.add_argument("--folder", type=Path, required=True, help="an empty folder for logs and data")
    parser.add_argument("steps", nargs="*", help="names of steps; none: all")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    print(f"logs and data: {options.folder}")
    walk = Walk(options)
    try:
        for step in STEPS:
            if step in STEPS[:2] or not options.steps or step.__name__ in options.steps:
                attempt(walk, step)
    finally:
        walk.kubelet.stop()
        walk.plane.end()
    return 1 if walk.facts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
