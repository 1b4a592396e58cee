"""``python -m icml25cli``."""

from icml25cli.main import entry_point

entry_point()
