"""A scheduler in 40 lines: `python examples/scheduler.py [HOST:PORT]`. It places what is pending, gang by gang."""

import sys
from itertools import groupby

import pumice
from pumice import v1


def schedule(client: pumice.Client) -> dict[str, str]:
    """One cycle; tells which task goes to which node. Binding is the caller's."""
    pending = [stored.task for stored in client.tasks() if stored.task.status == v1.TASK_STATUS_PENDING]
    placed: dict[str, str] = {}
    with client.open_session() as session:
        for job, tasks in groupby(sorted(pending, key=lambda task: (task.job, task.name)), key=lambda task: task.job):
            gang = place_gang(session, list(tasks))
            print(f"{job or 'no job'}: {len(gang)} placed")
            placed |= gang
    return placed


def place_gang(session: pumice.Session, tasks: list[v1.Task]) -> dict[str, str]:
    """All of them, or none."""
    session.savepoint("gang")
    placed: dict[str, str] = {}
    for task in tasks:
        best = session.score(tasks=[v1.Task(name=task.name)], with_filter=True, limit=1).result.items[0]
        if not best.nodes.names:
            print(*(f"{task.name}: {rejection.reason.message}" for rejection in best.filter.rejections), sep="\n")
            session.rollback_to("gang")
            return {}
        placed[task.name] = best.nodes.names[0]
        session.allocate(task.name, best.nodes.names[0])
    return placed


if __name__ == "__main__":
    with pumice.connect(*sys.argv[1:2]) as connected:
        for name, node in schedule(connected).items():
            print(f"{name} -> {node}")
