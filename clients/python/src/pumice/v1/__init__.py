"""The messages of the protocol `pumice.v1`, all under one name."""

from pumice.v1.decision_pb2 import *
from pumice.v1.policy_pb2 import *
from pumice.v1.state_pb2 import *
from pumice.v1.types_pb2 import *
