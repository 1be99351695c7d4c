"""Numbers of a run, for whatever draws them: a flat dict, or Prometheus (:mod:`lifecycle.metrics.prometheus`)."""

from __future__ import annotations

from lifecycle.metrics.metrics import Metrics

__all__ = ["Metrics"]
