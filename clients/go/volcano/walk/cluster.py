"""The objects of the walk: a client of the API server, nodes, queues, gangs, and the part of a kubelet."""

from __future__ import annotations

import collections
import http.client
import json
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from controlplane import ControlPlane, until

CARD = "NVIDIA-H100-80GB"
SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
NAMESPACE = "default"


class ApiError(OSError):
    """A call of the API server that did not succeed."""

    def __init__(self, status: int, text: str):
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


class Api:
    """Calls the API server as its administrator; each thread has a connection of its own."""

    def __init__(self, plane: ControlPlane):
        self.port, self.token = plane.port, plane.tokens["admin"]
        self.tls = ssl.create_default_context(cafile=str(plane.folder / "authority.crt"))
        self.local = threading.local()

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> dict:
        data = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        for last in (False, True):
            try:
                if getattr(self.local, "connection", None) is None:
                    self.local.connection = http.client.HTTPSConnection(
                        "127.0.0.1", self.port, context=self.tls, timeout=30
                    )
                self.local.connection.request(method, path, data, headers)
                response = self.local.connection.getresponse()
                status, text = response.status, response.read().decode()
                break
            except (http.client.HTTPException, OSError):
                self.local.connection = None
                if last:
                    raise
        if status >= 300:
            raise ApiError(status, text)
        return json.loads(text) if text.startswith("{") else {"text": text}

    def get(self, path: str) -> dict:
        return self.call("GET", path)

    def items(self, path: str) -> list[dict]:
        return self.get(path)["items"]

    def post(self, path: str, body: object, kind: str = "application/json") -> dict:
        return self.call("POST", path, body, kind)

    def patch(self, path: str, body: object) -> dict:
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def annotate(self, path: str, **annotations: str | None) -> None:
        """Set annotations of volcano.sh, or with None remove them; `_` stands for `-`, `__` for `.`."""
        named = {
            "volcano.sh/" + name.replace("__", ".").replace("_", "-"): value for name, value in annotations.items()
        }
        self.patch(path, {"metadata": {"annotations": named}})


def each(items, work) -> None:
    """Do some work for all items at once, sixteen at a time."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, items))


def make_node(api: Api, number: int, cards: int = 8) -> None:
    amounts = {"cpu": "128", "memory": "1024Gi", "pods": "110", "nvidia.com/gpu": str(cards)}
    api.post(
        "/api/v1/nodes",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"node-{number:03d}",
                "labels": {
                    "kubernetes.io/hostname": f"node-{number:03d}",
                    "nvidia.com/gpu.product": CARD,
                    "nvidia.com/gpu.count": str(cards),
                    "nvidia.com/gpu.memory": "81920",
                },
            },
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Walk"}],
            },
        },
    )


def make_queue(api: Api, name: str, quota: int | None) -> None:
    annotations = {} if quota is None else {"volcano.sh/card.quota": json.dumps({CARD: quota})}
    api.post(
        f"{SCHEDULING}/queues",
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"weight": 1, "reclaimable": True, "capability": {"cpu": "10000", "memory": "100Ti"}},
        },
    )
    open_queue(api, name)


def open_queue(api: Api, name: str) -> None:
    """Do what Volcano's controller does for a new queue."""
    api.patch(f"{SCHEDULING}/queues/{name}/status", {"status": {"state": "Open"}})


def make_gang(api: Api, name: str, queue: str, pods: int, cards: int = 1, pod_annotations: dict | None = None) -> None:
    """A pod group and its pods, as Volcano's controller makes them of a job."""
    total = pods * cards
    annotations = {"volcano.sh/card.request": json.dumps({CARD: total})}
    api.post(
        f"{SCHEDULING}/namespaces/{NAMESPACE}/podgroups",
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "minMember": pods,
                "queue": queue,
                "minResources": {"cpu": str(4 * pods), "memory": f"{16 * pods}Gi", "nvidia.com/gpu": str(total)},
            },
        },
    )

    def make_pod(number: int) -> None:
        api.post(
            f"/api/v1/namespaces/{NAMESPACE}/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{number}",
                    "labels": {"gang": name, "queue": queue},
                    "annotations": {
                        "scheduling.k8s.io/group-name": name,
                        "volcano.sh/card.name": CARD,
                        **(pod_annotations or {}),
                    },
                },
                "spec": {
                    "schedulerName": "volcano",
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": False,
                    "containers": [
                        {
                            "name": "main",
                            "image": "none",
                            "resources": {
                                "requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": str(cards)},
                                "limits": {"nvidia.com/gpu": str(cards)},
                            },
                        }
                    ],
                },
            },
        )

    each(range(pods), make_pod)


def remove_gang(api: Api, name: str) -> None:
    for pod in pods_of(api, name):
        api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0")
    api.call("DELETE", f"{SCHEDULING}/namespaces/{NAMESPACE}/podgroups/{name}")


def pods_of(api: Api, gang: str) -> list[dict]:
    return api.items(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=gang%3D{gang}")


def bound(api: Api, gang: str) -> int:
    """The number of a gang's pods that have a node."""
    return sum(1 for pod in pods_of(api, gang) if pod["spec"].get("nodeName"))


def cards_of(pod: dict) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])


def events_on(api: Api, kind: str, name: str, reason: str = "") -> list[dict]:
    """The events on an object, as `kubectl describe` shows them."""
    selector = f"involvedObject.kind%3D{kind},involvedObject.name%3D{name}"
    return [event for event in api.items(f"/api/v1/events?fieldSelector={selector}") if reason in ("", event["reason"])]


class Kubelet:
    """Makes bound pods Running, and looks whether queues and nodes hold more cards than they may."""

    def __init__(self, api: Api, quotas: dict[str, int], cards_per_node: int):
        self.api, self.quotas, self.cards_per_node = api, quotas, cards_per_node
        self.most: collections.Counter = collections.Counter()
        self.violations: list[str] = []
        self.looks = 0
        # The times at which pods were first seen with a node, by monotonic clock.
        self.bound_at: dict[str, float] = {}
        self.partial: dict[str, float] = {}
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()

    def _work(self) -> None:
        while not self.stopping.is_set():
            try:
                self._look()
            except OSError as error:
                self.violations.append(f"the walk itself could not read the pods: {error}")
            self.stopping.wait(0.2)

    def _look(self) -> None:
        pods = self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
        held = [
            pod for pod in pods if pod["spec"].get("nodeName") and pod["status"].get("phase") in ("Pending", "Running")
        ]
        by_queue, by_node = collections.Counter(), collections.Counter()
        for pod in held:
            self.bound_at.setdefault(pod["metadata"]["name"], time.monotonic())
            by_queue[pod["metadata"]["labels"]["queue"]] += cards_of(pod)
            by_node[pod["spec"]["nodeName"]] += cards_of(pod)
        self.looks += 1
        for queue, cards in by_queue.items():
            self.most[queue] = max(self.most[queue], cards)
            if cards > self.quotas.get(queue, 0):
                self.violations.append(f"queue {queue} holds {cards} cards of {self.quotas.get(queue, 0)}")
        for node, cards in by_node.items():
            if cards > self.cards_per_node:
                self.violations.append(f"{node} holds {cards} cards of {self.cards_per_node}")
        waiting = [pod for pod in held if pod["status"].get("phase") == "Pending"]
        each(waiting, self._run)

    def _run(self, pod: dict) -> None:
        name = pod["metadata"]["name"]
        try:
            self.api.patch(
                f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status",
                {
                    "status": {
                        "phase": "Running",
                        "conditions": pod["status"].get("conditions", []) + [{"type": "Ready", "status": "True"}],
                    }
                },
            )
        except ApiError as error:
            if error.status != 404:
                raise


def prepare(plane: ControlPlane, api: Api, volcano: Path) -> None:
    """Install Volcano's resources and the scheduler's role, as its chart does."""
    until("the API server is ready", lambda: api.get("/readyz"))
    until("the namespace is there", lambda: api.get(f"/api/v1/namespaces/{NAMESPACE}"))
    for file in sorted((volcano / "config/crd/volcano/bases").glob("*.yaml")):
        api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", file.read_text(), "application/yaml")
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}})
    chart = (volcano / "installer/helm/chart/volcano/templates/scheduler.yaml").read_text()
    role = chart[chart.index("kind: ClusterRole\n") :]
    rules = role[role.index("\nrules:") : role.index("\n---")]
    group = "/apis/rbac.authorization.k8s.io/v1"
    api.post(
        f"{group}/clusterroles",
        f"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: walk}}{rules}\n",
        "application/yaml",
    )
    api.post(
        f"{group}/clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "walk"},
            "subjects": [{"kind": "User", "name": "volcano-scheduler", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": "walk", "apiGroup": "rbac.authorization.k8s.io"},
        },
    )
    until("queues can be made", lambda: api.get(f"{SCHEDULING}/queues"))
