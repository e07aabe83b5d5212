"""Client of Pumice, the scheduling-policy decision service."""

from pumice import aio, errors, kube, table, v1
from pumice._flow import Options
from pumice.aio import AsyncClient, AsyncFeed, AsyncSession
from pumice.build import amounts, duration, inline, latest, node, resources, task
from pumice.client import Client, Feed, Session, connect
from pumice.errors import ProblemError, PumiceError, raise_for_problems
from pumice.quantity import Quantity

__all__ = [
    "AsyncClient",
    "AsyncFeed",
    "AsyncSession",
    "Client",
    "Feed",
    "Options",
    "ProblemError",
    "PumiceError",
    "Quantity",
    "Session",
    "aio",
    "amounts",
    "connect",
    "duration",
    "errors",
    "inline",
    "kube",
    "latest",
    "node",
    "raise_for_problems",
    "resources",
    "table",
    "task",
    "v1",
]
