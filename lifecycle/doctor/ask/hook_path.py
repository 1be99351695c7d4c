"""Which library torch_memory_saver would have preloaded, as the package itself finds it."""

from __future__ import annotations

import json

from torch_memory_saver.utils import get_binary_path_from_package

if __name__ == "__main__":
    print(json.dumps({"path": str(get_binary_path_from_package("torch_memory_saver_hook_mode_preload"))}))  # noqa: T201 - the answer
