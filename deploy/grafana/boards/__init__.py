"""The dashboards, each a module.

Each row of panels fills the screen's width: six numbers, or two charts. What a panel means stands in its description,
and what a metric means in docs/metrics.md.
"""

from typing import Final

from deploy.grafana.boards.canary import canary
from deploy.grafana.boards.overview import overview
from deploy.grafana.boards.topic import topic
from deploy.grafana.boards.transactions import transactions

BOARDS: Final = {"overview": overview, "topic": topic, "transactions": transactions, "canary": canary}
"""By the name of their file."""
