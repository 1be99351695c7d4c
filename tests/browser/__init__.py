"""Pages in a real Chromium. ``make test-browser`` runs these; see conftest.py."""
