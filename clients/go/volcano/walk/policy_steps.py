"""The steps of a walk about the policy: the first one, quotas, rollback, two documents, bad records."""

from __future__ import annotations

import json
import time
from functools import partial

import cluster as objects
from cluster import SCHEDULING, bound, each, events_on, make_gang, make_node, make_queue, pods_of, remove_gang
from controlplane import page, until
from governed import CARDS_PER_NODE, CONFIGURATION, NODES, QUOTAS, Walk, message, rest


def before_any_policy(walk: Walk) -> None:
    facts = walk.facts
    facts.step("before any policy")
    scheduler = walk.schedule("scheduler-a")
    own = ("root", "default")
    until("the scheduler made its queues", lambda: all(walk.api.get(f"{SCHEDULING}/queues/{name}") for name in own))
    for name in own:
        objects.open_queue(walk.api, name)
    for name, quota in QUOTAS.items():
        make_queue(walk.api, name, quota)
    each(range(NODES), lambda number: make_node(walk.api, number, CARDS_PER_NODE))
    make_gang(walk.api, "early", "research", 8)
    until("the scheduler noticed that nobody serves", lambda: scheduler.lines("Pumice is not asked"))
    walk.cycles("scheduler-a", 3)
    facts.check(
        "The scheduler may start first: without a server it places nothing, and says so",
        bound(walk.api, "early") == 0,
        message(scheduler.lines("Pumice is not asked")[-1]),
    )
    walk.serve()
    until("the scheduler noticed the built-in policy", lambda: scheduler.lines("is built in"))
    walk.cycles("scheduler-a", 3)
    facts.check(
        "A server with its built-in policy only opens no quota: nothing is placed",
        bound(walk.api, "early") == 0,
        message(scheduler.lines("is built in")[-1]),
    )
    facts.check(
        "The metric of unavailable cycles says so",
        (count := walk.metric("scheduler-a", "volcano_pumice_unavailable_cycles_total")) >= 6,
        f"volcano_pumice_unavailable_cycles_total {count:.0f}",
    )
    shown = until("the pod group says why", lambda: rest(walk.describe("podgroup", "early"), "ServiceUnavailable"), 30)
    facts.check("`kubectl describe podgroup` says that the decision service is unavailable", shown, shown)


def a_policy_is_pushed(walk: Walk) -> None:
    facts, scheduler = walk.facts, walk.schedulers["scheduler-a"]
    facts.step("the first policy is pushed")
    began = time.monotonic()
    output = walk.push(CONFIGURATION.format(weight=1))
    governs = until("it governs", lambda: scheduler.lines("Another policy governs"), 30)
    seconds = time.monotonic() - began
    facts.check(
        "The text of the ConfigMap is pushed as it is", "version" in output, output.splitlines()[0] if output else ""
    )
    facts.check(
        f"It governs from the next session on, {seconds:.1f} s after the push", seconds < 10, message(governs[-1])
    )
    seconds = walk.until_bound("early", 8)
    facts.check(f"The gang that waited is placed {seconds:.1f} s later", True, "8 of 8 pods bound")
    for number in range(4):
        make_gang(walk.api, f"gang-{number}", "prod", 16)
    seconds = max(walk.until_bound(f"gang-{number}", 16) for number in range(4))
    facts.check(
        f"Four gangs of 16 are placed, {seconds:.1f} s after the last pod was made", True, "64 of 64 pods bound"
    )


def a_queue_over_its_quota(walk: Walk) -> None:
    facts = walk.facts
    facts.step("a queue over its quota")
    # research holds 8 of 64.
    make_gang(walk.api, "large", "research", 60)
    shown = until(
        "the pod group says why",
        lambda: rest(walk.describe("podgroup", "large"), "Warning", "InsufficientScalarQuota"),
        60,
    )
    facts.check("`kubectl describe podgroup` shows an event with the code and the amounts", "64" in shown, shown)
    conditions = {
        condition["reason"]: condition["message"] for condition in walk.group("large")["status"].get("conditions", [])
    }
    quoted = "InsufficientScalarQuota" in json.dumps(conditions)
    facts.check("The condition of the pod group has both as well", quoted, conditions)
    pod = until(
        "the pod says why", lambda: rest(walk.describe("pod", "large-0"), "Warning", "InsufficientScalarQuota"), 30
    )
    facts.check("`kubectl describe pod` quotes it", pod, pod)
    conditions = [condition.get("message", "") for condition in pods_of(walk.api, "large")[0]["status"]["conditions"]]
    facts.check("The condition of the pod as well", "InsufficientScalarQuota" in " ".join(conditions), conditions)
    facts.check("None of its pods is bound", bound(walk.api, "large") == 0, "0 of 60")
    walk.api.annotate(f"{SCHEDULING}/queues/research", card__quota=json.dumps({objects.CARD: 80}))
    walk.kubelet.quotas["research"] = 80
    seconds = walk.until_bound("large", 60)
    facts.check(
        f"With a larger quota it is placed, {seconds:.1f} s after the change",
        True,
        "60 of 60 pods bound; quota 80, held 68",
    )


def rollback(walk: Walk) -> None:
    facts, scheduler = walk.facts, walk.schedulers["scheduler-a"]
    facts.step("push and rollback")
    position = scheduler.position()
    walk.push(CONFIGURATION.format(weight=5))
    until("version 5 governs", lambda: scheduler.lines("Another policy governs", after=position), 30)
    pushed = scheduler.lines("Another policy governs", after=position)[-1]
    position, began = scheduler.position(), time.monotonic()
    walk.cli("policy", "rollback")
    until("the rollback governs", lambda: scheduler.lines("Another policy governs", after=position), 30)
    seconds = time.monotonic() - began
    back = scheduler.lines("Another policy governs", after=position)[-1]
    facts.check("A second push governs", "rpc:" in pushed, message(pushed))
    facts.check(f"A rollback governs {seconds:.1f} s later", "rollback:" in back, message(back))
    versions = [
        line
        for line in page(walk.pages["scheduler-a"]).splitlines()
        if line.startswith("volcano_pumice_policy_version{")
    ]
    facts.check(
        "The metric of the policy's version follows, and only one version is shown", len(versions) == 1, versions
    )
    make_gang(walk.api, "after-rollback", "prod", 4)
    facts.check(
        "Gangs are placed under it", True, f"4 of 4 pods bound in {walk.until_bound('after-rollback', 4):.1f} s"
    )


def differing_plugins(walk: Walk) -> None:
    facts, scheduler = walk.facts, walk.schedulers["scheduler-a"]
    facts.step("documents that name different plugins")
    text = CONFIGURATION.format(weight=1)
    without_binpack, without_drf = text[: text.index("  - name: binpack")], text.replace("  - name: drf\n", "")
    reports = lambda words: scheduler.lines(words, after=position)
    position = scheduler.position()
    walk.push(without_binpack)
    walk.configure(without_drf)
    only_scheduler = until(
        "the scheduler's plugin is reported", lambda: reports("The policy does not name plugins"), 30
    )
    only_policy = until("the policy's plugin is reported", lambda: reports("does not name plugins of the policy"), 30)
    walk.cycles("scheduler-a", 2)
    begun = len(reports("The policy does not name plugins")), len(reports("does not name plugins of the policy"))
    walk.cycles("scheduler-a", 4)
    facts.check(
        "A plugin that only the scheduler names is reported", "binpack" in only_scheduler[0], message(only_scheduler[0])
    )
    facts.check("A plugin that only the policy names is reported", "drf" in only_policy[0], message(only_policy[0]))
    after = len(reports("The policy does not name plugins")), len(reports("does not name plugins of the policy"))
    facts.check(
        "Each once for each version of the two, not in every session",
        after == begun and max(after) <= 2,
        f"{after[0]} and {after[1]} lines, as many four sessions before",
    )
    walk.push(text)
    walk.configure(text)
    walk.cycles("scheduler-a", 2)
    position = scheduler.position()
    walk.cycles("scheduler-a", 3)
    more = [line for words in ("does not name plugins", "governs") for line in reports(words)]
    facts.check("When both agree nothing is reported any more", not more, f"{len(more)} lines in 3 sessions")


def bad_records(walk: Walk) -> None:
    facts, api = walk.facts, walk.api
    facts.step("bad records")
    queue = f"{SCHEDULING}/queues/prod"
    api.annotate("/api/v1/nodes/node-000", oversubscription_cpu="abc")
    api.annotate(queue, card__quota="{eight}")
    make_gang(api, "bad-pods", "load", 2, pod_annotations={"volcano.sh/resource-strategy-scoring-type": "Most"})
    wanted = (("Node", "node-000"), ("Queue", "prod"))
    for kind, name in wanted:
        try:
            found = partial(events_on, api, kind, name, "PumiceRecordRefused")
            shown = until(f"{kind} {name} has an event", found, 20)[-1]["message"]
        except TimeoutError as error:
            shown = ""
            facts.check(f"{kind} {name} has an event", False, error)
        facts.check(f"The event on {kind} {name} names the annotation", "annotations[volcano.sh/" in shown, shown)
    leader = walk.leader()
    facts.check(
        "The metric counts them",
        walk.metric(leader, "volcano_pumice_refused_records") >= 2,
        f"volcano_pumice_refused_records {walk.metric(leader, 'volcano_pumice_refused_records'):.0f}",
    )
    make_gang(api, "beside-bad", "load", 12)
    facts.check("Other gangs go on", True, f"12 of 12 pods bound in {walk.until_bound('beside-bad', 12):.1f} s")
    shown = [pod["status"].get("conditions", []) for pod in pods_of(api, "bad-pods")[:1]]
    facts.check(
        "A pod with an annotation that cannot be read waits, and says why",
        bound(api, "bad-pods") == 0,
        json.dumps(shown),
    )
    make_gang(api, "bad-queue", "prod", 8)
    shown = until("the gang says why", lambda: rest(walk.describe("podgroup", "bad-queue"), "Warning", "QueueInvalid"), 30)
    facts.check("New gangs of the bad queue wait, and name the annotation", "volcano.sh/card.quota" in shown, shown)
    held = sum(bound(api, f"gang-{number}") for number in range(4))
    facts.check("What runs there goes on", held == 64, f"{held} of 64 pods bound")
    api.annotate("/api/v1/nodes/node-000", oversubscription_cpu=None)
    api.annotate(queue, card__quota=json.dumps({objects.CARD: QUOTAS["prod"]}))
    remove_gang(api, "bad-pods")
    began = time.monotonic()
    until("no record is refused", lambda: walk.metric(leader, "volcano_pumice_refused_records") == 0, 30)
    repaired = f"After the repair none is left, {time.monotonic() - began:.1f} s later"
    facts.check(repaired, True, "volcano_pumice_refused_records 0")
    seconds = walk.until_bound("bad-queue", 8)
    facts.check("The gang of the repaired queue is placed", True, f"8 of 8 pods bound in {seconds:.1f} s")
