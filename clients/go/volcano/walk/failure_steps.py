"""The steps of a walk about failures: kills under load, a change of leaders, stale state, hashes, state in memory."""

from __future__ import annotations

import hashlib
import threading
import time

import cluster as objects
from cluster import SCHEDULING, bound, make_gang, pods_of, remove_gang
from controlplane import page, until
from governed import CONFIGURATION, QUOTAS, STALE, Walk, message, rest

GANG = 8
# 36 gangs ask for 288 cards of the 240 of the queue: 30 fit.
GANGS, FITTING = 36, QUOTAS["load"] // GANG


class Load:
    """Makes gangs in the queue `load`, a few in a second, while other things happen."""

    def __init__(self, walk: Walk, name: str):
        self.walk, self.name = walk, name
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self) -> None:
        for number in range(GANGS):
            make_gang(self.walk.api, f"{self.name}-{number:02d}", "load", GANG)
            time.sleep(0.3)

    def bound_by_gang(self) -> dict[str, int]:
        """The number of bound pods of each gang."""
        found = {f"{self.name}-{number:02d}": 0 for number in range(GANGS)}
        for pod in self.walk.api.items(f"/api/v1/namespaces/{objects.NAMESPACE}/pods?labelSelector=queue%3Dload"):
            gang = pod["metadata"]["labels"]["gang"]
            if gang in found and pod["spec"].get("nodeName"):
                found[gang] += 1
        return found

    def total(self) -> int:
        return sum(self.bound_by_gang().values())

    def until_bound(self, pods: int, seconds: float = 180) -> int:
        return until(
            f"{pods} pods of {self.name} are bound", lambda: (count := self.total()) >= pods and count, seconds
        )

    def binds_after(self, moment: float) -> float:
        """The time of the first bind that was seen after a moment, in seconds from then."""
        prefix = self.name + "-"
        later = lambda: [at for pod, at in self.walk.kubelet.bound_at.items() if pod.startswith(prefix) and at > moment]
        return min(until("a pod is bound again", later, 120)) - moment

    def finish(self, facts, what: str) -> None:
        """Wait for the end, and check that what fits is whole, and that nothing is beyond the quota."""
        self.thread.join()
        self.until_bound(FITTING * GANG)
        self.walk.cycles(self.walk.leader(), 3)
        gangs = self.bound_by_gang()
        whole, partial = (
            sum(1 for count in gangs.values() if count == GANG),
            [gang for gang, count in gangs.items() if 0 < count < GANG],
        )
        facts.check(
            f"{what}: all gangs that the quota permits are placed whole, and no other",
            (whole, partial) == (FITTING, []),
            f"{whole} of {GANGS} gangs of {GANG} bound whole, {len(partial)} in part, quota {QUOTAS['load']}",
        )
        held, violations = self.walk.kubelet.most["load"], self.walk.kubelet.violations
        facts.check(
            f"{what}: the queue held at no moment more than its quota, nor a node more than its cards",
            not violations,
            violations[:3]
            or f"at most {held} of {QUOTAS['load']} cards in {self.walk.kubelet.looks} looks at all pods",
        )


def clear(walk: Walk) -> None:
    """Remove all gangs."""
    for group in walk.api.items(f"{SCHEDULING}/podgroups"):
        remove_gang(walk.api, group["metadata"]["name"])
    until("all pods are gone", lambda: not walk.api.items(f"/api/v1/namespaces/{objects.NAMESPACE}/pods"))


def waiting_gang(load: Load) -> str:
    """A gang of a load of which nothing is bound; none: empty."""
    return next(
        (gang for gang, count in load.bound_by_gang().items() if count == 0 and pods_of(load.walk.api, gang)), ""
    )


def the_server_is_killed(walk: Walk) -> None:
    facts = walk.facts
    facts.step("kill -9 of the server under load")
    clear(walk)
    load = Load(walk, "server-killed")
    load.until_bound(6 * GANG)
    moment = time.monotonic()
    walk.pumice.kill()
    time.sleep(15)
    before = load.total()
    gang = until("a gang waits", lambda: waiting_gang(load))
    shown = until("the pod group says why", lambda: rest(walk.describe("podgroup", gang), "ServiceUnavailable"), 60)
    facts.check("While the server is away a waiting pod group says so", shown, shown)
    facts.check("Meanwhile nothing is placed", load.total() == before, f"{before} pods bound before and after")
    away, ready = time.monotonic() - moment, walk.serve()
    started = time.monotonic()
    outage = load.binds_after(started - ready)
    facts.check(
        f"After the restart pods are bound again {outage:.1f} s after the start of the process",
        outage < 30,
        f"server away {away:.1f} s; alive {ready:.2f} s after its start",
    )
    load.finish(facts, "kill -9 of the server")
    waiting = until(
        "the rest reads its quota",
        lambda: rest(walk.describe("podgroup", waiting_gang(load)), "InsufficientScalarQuota"),
        60,
    )
    facts.check("The rest reads the quota again as the reason", waiting, waiting)


def the_scheduler_is_killed(walk: Walk) -> None:
    facts = walk.facts
    facts.step("kill -9 of the leading scheduler under load, with a second replica")
    clear(walk)
    walk.schedule("scheduler-b")
    until("the second replica waits", lambda: walk.schedulers["scheduler-b"].lines("leader"), 60)
    time.sleep(5)
    idle = walk.metric("scheduler-b", "volcano_pumice_cycles_total")
    facts.check(
        "A replica that does not lead asks nothing of the server", idle == 0, f"volcano_pumice_cycles_total {idle:.0f}"
    )
    load = Load(walk, "scheduler-killed")
    load.until_bound(6 * GANG)
    moment = time.monotonic()
    walk.schedulers["scheduler-a"].kill()
    until("the other leads", lambda: walk.metric("scheduler-b", "volcano_pumice_cycles_total") >= 1)
    leads = time.monotonic() - moment
    outage = load.binds_after(moment + 1)
    facts.check(
        f"The second replica leads {leads:.1f} s after kill -9 of the first, and binds after {outage + 1:.1f} s",
        outage < 60,
        message(walk.schedulers["scheduler-b"].lines("Another policy governs")[0]),
    )
    load.finish(facts, "kill -9 of the scheduler")
    lost = walk.metric("scheduler-b", "volcano_pumice_unavailable_cycles_total")
    facts.check(
        "No session of the new leader was without the server",
        lost == 0,
        f"volcano_pumice_unavailable_cycles_total {lost:.0f}",
    )


def the_leader_changes(walk: Walk) -> None:
    facts = walk.facts
    facts.step("an orderly change of the leader, and of the server")
    clear(walk)
    walk.schedule("scheduler-a")
    load = Load(walk, "leader-changed")
    load.until_bound(6 * GANG)
    moment = time.monotonic()
    walk.schedulers["scheduler-b"].stop()
    outage = load.binds_after(moment + 1) + 1
    facts.check(
        f"After SIGTERM of the leader, the next one binds {outage:.1f} s later", outage < 60, "scheduler-a leads"
    )
    load.until_bound(12 * GANG)
    moment = time.monotonic()
    walk.pumice.stop()
    stopped = time.monotonic() - moment
    walk.serve()
    outage = load.binds_after(moment + stopped)
    facts.check(
        f"A server that is stopped and started again, as by an upgrade: binds {outage + stopped:.1f} s after SIGTERM",
        outage < 30,
        f"the stop took {stopped:.1f} s",
    )
    load.finish(facts, "upgrade")


def stale_state(walk: Walk) -> None:
    facts = walk.facts
    facts.step("stale state")
    clear(walk)
    walk.pumice.stop()
    walk.serve("--expect-source", "volcano")
    began = time.monotonic()
    until("the server is ready", lambda: readiness(walk), 60)
    facts.check(
        f"A server that expects the scheduler is ready {time.monotonic() - began:.1f} s after its start in an idle cluster",
        True,
        rest(walk.cli("state", "show"), "volcano"),
    )
    silent = 0
    for _ in range(100):
        silent += not readiness(walk)
        time.sleep(0.2)
    facts.check(
        "An idle scheduler stays a live source: it sends heartbeats",
        silent == 0,
        f"ready in 100 looks of 20 s, source_stale_ms {STALE}",
    )
    name = walk.leader()
    walk.schedulers[name].kill()
    moment = time.monotonic()
    until("the source is stale", lambda: not readiness(walk), 60)
    facts.check(
        f"Without a scheduler the source is stale after {time.monotonic() - moment:.1f} s; the server is not ready then",
        "stale" in walk.cli("state", "show"),
        rest(walk.cli("state", "show"), "volcano"),
    )
    walk.schedule(name)
    until("the server is ready", lambda: readiness(walk), 60)
    facts.check("With the next scheduler it is ready again", True, rest(walk.cli("state", "show"), "volcano"))
    make_gang(walk.api, "after-stale", "prod", 4)
    facts.check("Gangs are placed", True, f"4 of 4 pods bound in {walk.until_bound('after-stale', 4):.1f} s")


def readiness(walk: Walk) -> bool:
    try:
        return bool(page(f"http://127.0.0.1:{walk.http}/readyz"))
    except OSError:
        return False


def an_expected_hash(walk: Walk) -> None:
    facts = walk.facts
    facts.step("the hash of the only policy that may govern")
    clear(walk)
    text = CONFIGURATION.format(weight=1)
    right, wrong = hashlib.sha256(text.encode()).hexdigest(), "0" * 64
    scheduler = walk.schedulers[walk.leader()]
    position = scheduler.position()
    walk.configure(with_option(text, "policyHash", wrong))
    refused = until("it is refused", lambda: scheduler.lines("is expected", after=position), 60)
    make_gang(walk.api, "hashed", "prod", 4)
    walk.cycles(walk.leader(), 3)
    facts.check("Under another document nothing is placed", bound(walk.api, "hashed") == 0, message(refused[-1]))
    walk.configure(with_option(text, "policyHash", right))
    facts.check(
        "With the hash that `sha256sum` prints, it is",
        True,
        f"4 of 4 pods bound in {walk.until_bound('hashed', 4):.1f} s",
    )
    walk.configure(text)


def with_option(text: str, name: str, value: str) -> str:
    """A configuration with an option of the adapter among the arguments of capacity-card."""
    return text.replace("cardUnlimitedCpuMemory: true", f'cardUnlimitedCpuMemory: true\n      pumice.{name}: "{value}"')


def state_in_memory(walk: Walk) -> None:
    facts = walk.facts
    facts.step("a server without data_dir")
    clear(walk)
    text = CONFIGURATION.format(weight=1)
    walk.pumice.stop()
    walk.serve(durable=False)
    pushed = walk.push(text)
    facts.check(
        "The push says that it is stored in memory only", "memory" in pushed.lower(), rest(pushed.lower(), "memory")
    )
    make_gang(walk.api, "memory", "prod", 60)
    walk.until_bound("memory", 60)
    walk.pumice.kill()
    walk.serve("--expect-policy-sha256", hashlib.sha256(text.encode()).hexdigest(), durable=False)
    name = walk.leader()
    scheduler = walk.schedulers[name]
    position = scheduler.position()
    make_gang(walk.api, "fits", "prod", 30)
    make_gang(walk.api, "beyond", "prod", 40)
    lost = until("the policy is missed", lambda: scheduler.lines("is built in", after=position), 60)
    walk.cycles(name, 3)
    facts.check(
        "After kill -9 its policy is gone: nothing is placed, no quota opens",
        bound(walk.api, "fits") == 0,
        message(lost[-1]),
    )
    facts.check("With expect_policy_sha256 the server is not ready meanwhile", not readiness(walk), "/readyz: 503")
    walk.push(text)
    facts.check("The next push brings it back", True, f"30 of 30 pods bound in {walk.until_bound('fits', 30):.1f} s")
    shown = until(
        "the other gang reads its quota",
        lambda: rest(walk.describe("podgroup", "beyond"), "InsufficientScalarQuota"),
        30,
    )
    counted = bound(walk.api, "beyond") == 0 and any(total in shown for total in ("<100 cards>", "<130 cards>"))
    facts.check("What ran before counts against the quota all the same", counted, shown)


def permissions(walk: Walk) -> None:
    facts = walk.facts
    facts.step("permissions")
    forbidden = [line for program in walk.schedulers.values() for line in program.lines("forbidden")]
    facts.check(
        "The adapter needs no more permissions than Volcano's chart gives the scheduler",
        not forbidden,
        message(forbidden[0]) if forbidden else "no call was forbidden to the scheduler under the role of the chart",
    )
