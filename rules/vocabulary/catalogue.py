"""Every anomaly once: its name, what kind of statement it is, when it is decided, what it means in one sentence, and
which evidence a finding of it holds, field by field with units.

The names are those of Jepsen's Kafka workload where it has one, and the field's usual terms elsewhere. Documentation,
metrics, dashboards and the words for evidence are made from this table; a rule may only report what stands here, and
tests hold every finding against it. The entries are in `violations`, `protocol_violations`, `conditions` and
`observations` beside this file.
"""

from __future__ import annotations

from typing import Final

from rules.vocabulary.anomaly import Anomaly, Field, Form
from rules.vocabulary.conditions import CONDITIONS
from rules.vocabulary.observations import OBSERVATIONS
from rules.vocabulary.protocol_violations import PROTOCOL_VIOLATIONS
from rules.vocabulary.violations import VIOLATIONS

__all__ = ["CATALOGUE", "Anomaly", "Field", "Form"]

CATALOGUE: Final[dict[str, Anomaly]] = {
    a.name: a for a in (*VIOLATIONS, *PROTOCOL_VIOLATIONS, *CONDITIONS, *OBSERVATIONS)
}
