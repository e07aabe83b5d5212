"""A whole scheduler: it sends its state, decides, commits, binds and reports.

`python own_scheduler.py CLUSTER [HOST:PORT]` runs two cycles for a cluster in a file.
"""

import sys
import time
from pathlib import Path

from google.protobuf import json_format

import pumice
from pumice import errors, v1

SOURCE = "own-scheduler"


class Cluster:
    """Stands for your API server: records by name, and binds. The first bind of a task may fail once."""

    def __init__(self, records: v1.Cluster, failing: str = "") -> None:
        self.records = records
        self.failing = failing

    def bind(self, task: v1.Task, node: str) -> None:
        """Binds a task. Binding it again to the same node changes nothing."""
        if task.name == self.failing:
            self.failing = ""
            raise ConnectionError("the API server rejected the bind")
        task.node, task.status = node, v1.TASK_STATUS_BOUND


class Scheduler:
    """One scheduler, the only writer of its source."""

    def __init__(self, client: pumice.Client, cluster: Cluster) -> None:
        self.client = client
        self.cluster = cluster
        self.changed = v1.Cluster()
        # The feed sends a full sync first, and again when the server lost the records.
        self.feed = client.feed(SOURCE, full=lambda: cluster.records)

    def run(self, cycles: int, wait: float = 1.0) -> None:
        """Runs cycles. An error ends its cycle: nothing is bound without a decision."""
        for _ in range(cycles):
            try:
                self.cycle()
            except errors.FencedError:
                raise  # Another process with this source has started: only one may run.
            except errors.PumiceError as error:
                print(f"no decision, the next cycle tries again: {error}")
                time.sleep(wait)

    def cycle(self) -> None:
        """One cycle: decide in a session, commit it, bind."""
        self.bind_committed()  # Left by a cycle that ended in between.
        with self.feed.open_session() as session:
            waiting = {job.name: job for job in self.cluster.records.jobs if self.pending(job.name)}
            if waiting:
                order = session.order(jobs=v1.NameSet(names=waiting)).result
                for rank in order.jobs:
                    self.place(session, waiting[rank.name])
                self.confirm(session, waiting)
                for commit in session.commit().jobs:
                    for rejection in commit.rejections:
                        print(f"{rejection.placement.task or commit.job} waits: {rejection.reason.message}")
        self.bind_committed()

    def pending(self, job: str) -> list[v1.Task]:
        """Tasks of a job without a node."""
        return [task for task in self.cluster.records.tasks if task.job == job and not task.node]

    def place(self, session: pumice.Session, job: v1.Job) -> None:
        """Admits a job, and places its tasks in the session."""
        if job.phase in (v1.JOB_PHASE_UNSPECIFIED, v1.JOB_PHASE_PENDING):
            subject = v1.AdmitSubject(job=v1.Job(name=job.name))
            admitted = session.admit(mode=v1.ADMIT_MODE_TENTATIVE, items=[subject]).result.items[0]
            if not admitted.permitted:
                print(f"{job.name} waits: {admitted.reasons[0].message}")
                return
            session.job_enqueued(job.name)
        groups = [v1.TaskGroup(names=[task.name]) for task in self.pending(job.name)]
        result = session.place(job=v1.Job(name=job.name), groups=groups, effect=v1.PLACE_EFFECT_SESSION).result
        if not result.placed:
            print(f"{job.name} waits: {result.blockers[0].reason.message}")

    def confirm(self, session: pumice.Session, jobs: dict[str, v1.Job]) -> None:
        """Reserves the quota of the jobs that the session enqueued. Their phase is reported after the commit."""
        for item in session.admit(mode=v1.ADMIT_MODE_CONFIRM).result.items:
            if item.permitted:
                jobs[item.job].phase = v1.JOB_PHASE_INQUEUE
                self.changed.jobs.append(jobs[item.job])
            else:
                print(f"{item.job} waits: {item.reasons[0].message}")

    def bind_committed(self) -> None:
        """Binds committed placements, releases those that cannot be bound, and reports what changed."""
        stored = {one.task.name: one for one in self.client.tasks() if one.assumed and one.source == SOURCE}
        for task in self.cluster.records.tasks:
            if task.name not in stored:
                continue
            node = stored[task.name].task.node
            try:
                self.cluster.bind(task, node)
                self.changed.tasks.append(task)
                print(f"{task.name} -> {node}")
            except ConnectionError as error:
                self.client.release_assumptions(tasks=[task.name])
                print(f"{task.name} waits: {error}")
        if self.changed.ByteSize():
            self.feed.delta(put=self.changed)
            self.changed = v1.Cluster()


if __name__ == "__main__":
    given = json_format.Parse(Path(sys.argv[1]).read_text(), v1.Cluster())
    with pumice.connect(*sys.argv[2:3]) as connected:
        Scheduler(connected, Cluster(given, failing="ml/gang-1")).run(cycles=2)
