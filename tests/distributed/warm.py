"""What a rank's process needs, imported once in the process that they are forked from."""

import msgspec.json
import torch._dynamo

import tests.distributed.ranks
import tests.distributed.real_engines

__all__ = ["msgspec", "tests", "torch"]
