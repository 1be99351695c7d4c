"""Against a real vLLM server. ``make test-vllm`` runs these; see conftest.py."""
