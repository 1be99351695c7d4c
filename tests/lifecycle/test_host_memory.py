"""How much host memory a configuration holds, as the operating system counts it (FB-17).

Measured as Pss_Anon + Pss_Shmem of a fresh process against a baseline taken after attach. The arena's
device pages are host pages too, so what the device gave back since then is added again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1024 * 1024
BASE_BYTES = 256 * MIB

SCRIPT = """
import json, sys
from pathlib import Path
import torch
from torch import nn
from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.engines.protocol import EngineReport
from tests.lifecycle.world import SlotHost, TinyModel

settings, folder = json.loads(sys.argv[1]), sys.argv[2]

def held():
    found = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(found[key].split()[0]) * 1024 for key in ("Pss_Anon", "Pss_Shmem"))

class Engine:
    name, versions = "E0", {}
    def report(self):
        return EngineReport("E0-0", frozenset({"weights"}), versions=self.versions)
    def begin_update(self):
        self.sums = []
    def send_base(self, group, version, tensors):
        self.versions[group] = version
        self.sums += [float(one.reshape(-1)[::4096].sum()) for _, one in tensors]
    def load_adapter(self, payload):
        self.versions["adapter/" + payload.name] = payload.version
        self.sums += [float(one.sum()) for one in payload.tensors.values()]
    def unload_adapter(self, name): pass
    def commit_update(self): pass
    def abort_update(self): pass
    def release(self, tags): pass
    def resume(self, tags): pass

model = TinyModel()
for index in range(4):
    model.register_parameter(f"block_{index}", nn.Parameter(torch.ones(64, 1024, 256), requires_grad=False))
host = SlotHost(model)
optimizers = {s: torch.optim.Adam([model.lora_a[s], model.lora_b[s]]) for s in range(3)}
arena = HostArena(disk_dir=folder)
trainer = TrainerLifecycle(LifecycleConfig(**settings), saver=arena, model=model, optimizer=optimizers,
                           adapters=host, audit=MemoryAudit(), initial_state=TrainerState.AWAKE)
baseline, device = held(), arena.usage().device_bytes

def host_bytes():
    return held() - baseline + device - arena.usage().device_bytes

if settings.get("with_ref"):
    trainer.keep_model("ref")
figures, edges = [], []
for turn in range(2):
    host.register("A" if turn % 2 else "B", turn % 2)
    edges.append(trainer.reconcile_adapters().edge)
    with trainer.step(["A"] if "A" in host.holds else ["B"]) as step:
        step.stepped()
    trainer.sleep(offload=True)
    reads = trainer.update_weights([Engine()]).reads
    figures.append(host_bytes())
    trainer.wake_up()
print(json.dumps({"host": figures, "awake": host_bytes(), "edges": edges,
                  "source": reads[0].tag or reads[0].source, "state": trainer.state}))
"""


REFERENCE: dict[str, object] = {"strategy": "reference"}


def measure(settings: dict[str, object], folder: Path) -> dict[str, object]:
    """Two turns in a process of their own."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(settings), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("settings", "copies", "edge", "source"),
    [
        ({}, 1.0, "reads-saver-backup", "saver-backup"),
        ({"with_ref": True}, 1.0, "reads-saver-backup", "saver-backup"),
        ({"frozen_base": "file"}, 0.0, "reads-saver-backup", "base-file"),
        ({"offload_target": "disk", "with_ref": True}, 0.0, "makes-no-copy", "base-file"),
        (REFERENCE, 1.0, "reads-saver-backup", "saver-backup"),
        (REFERENCE | {"with_ref": True}, 2.0, "backs-up-actor", "actor"),
        (REFERENCE | {"colocate": False}, 1.0, "makes-no-copy", "saver-backup"),
        ({"strategy": "duplicate"}, 2.0, "backs-up-actor", "actor"),
        ({"strategy": "duplicate", "with_ref": True}, 3.0, "backs-up-actor", "actor"),
    ],
    ids=[
        "lean",
        "lean-with-ref",
        "lean-file",
        "lean-disk-with-ref",
        "reference",
        "reference-with-ref",
        "reference-disaggregated",
        "duplicate",
        "duplicate-with-ref",
    ],
)
def test_an_offloaded_trainer_holds_so_many_copies_of_its_base(
    settings: dict[str, object], copies: float, edge: str, source: str, tmp_path: Path
) -> None:
    """Within 5 % or 32 MiB, the same in every turn; awake without the saver's backup, which resume frees."""
    found = measure(settings, tmp_path)

    assert found["edges"] == [edge] * 2
    assert found["source"] == source
    awake = max(0.0, copies - 1.0)
    for host, wanted in ((found["host"][0], copies), (found["host"][1], copies), (found["awake"], awake)):  # type: ignore[index]
        assert abs(host - wanted * BASE_BYTES) <= max(0.05 * wanted * BASE_BYTES, 32 * MIB)
