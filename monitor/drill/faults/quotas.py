"""A quota: brokers hold back what they answer clients that send or read more than they may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.static.primitive import f64

from deploy.local_kafka import LocalKafka
from monitor.drill.errors import DrillFailed
from monitor.drill.faults.fault import Fault
from monitor.drill.faults.requests import ask_any

BANDWIDTH: Final = ("producer_byte_rate", "consumer_byte_rate")
REQUESTS: Final = ("request_percentage",)


class Quota(Fault):
    """No client may have more of these of a broker, from `begin` to `end`: `most` bytes a second, or so many percent of
    the time of a thread that answers requests.

    What is held back when it ends is held back for as long as the client was told."""

    def __init__(self, keys: Sequence[str], most: float) -> None:
        super().__init__()
        self.keys, self.most = tuple(keys), most

    def describe(self) -> str:
        return f"let each client have {' and '.join(self.keys)} {self.most:g}"

    def _begin(self, cluster: LocalKafka) -> None:
        self._set(cluster, remove=False)

    def _end(self, cluster: LocalKafka) -> None:
        self._set(cluster, remove=True)

    def _set(self, cluster: LocalKafka, *, remove: bool) -> None:
        every_client = EntityData(entity_type="client-id", entity_name=None)
        ops = tuple(OpData(key=key, value=f64(float(self.most)), remove=remove) for key in self.keys)
        request = AlterClientQuotasRequest(entries=(EntryData(entity=(every_client,), ops=ops),), validate_only=False)
        try:
            answer = ask_any(cluster, request, AlterClientQuotasResponse)
        except OSError as error:
            raise DrillFailed(f"no broker sets the quota: {error}") from error
        for entry in answer.entries:
            if entry.error_code.value:
                raise DrillFailed(f"the quota is not set: {entry.error_message}")
