"""Which versions of which requests clients may use through the proxy: those that kio and the broker both know.

A client speaks the newest version that it shares with what ApiVersions tells it. So the proxy narrows that answer to
what it can read. Requests that kio does not know at all stay in it: nobody lies about them, and they pass as they are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from probes.kafka.wire.messages import Api, Payload, build, element, encode_response, response_class


@cache
def known(api: int) -> tuple[int, int] | None:
    """The oldest and the newest version of a request that can be read here, or None for none."""
    name = api_key_map.get(api)
    if name is None:
        return None
    kinds = schema_name_map[name]
    both = [version for version in kinds if {EntityType.request, EntityType.response} <= kinds[version].keys()]
    return (min(both), max(both)) if both else None


def narrowed(payload: Payload) -> Payload:
    """An answer to ApiVersions without the versions that are not known here; the same object if there are none."""
    offered = tuple(map(_narrow, payload.api_keys))
    return payload if offered == payload.api_keys else replace(payload, api_keys=offered)


def _narrow(offer: Payload) -> Payload:
    ours = known(offer.api_key)
    if ours is None:
        return offer
    oldest, newest = max(offer.min_version, ours[0]), min(offer.max_version, ours[1])
    if oldest > newest:
        return offer  # nothing in common: it passes unread
    return replace(offer, min_version=oldest, max_version=newest)


def unsupported(correlation: int) -> bytes:
    """What a broker answers to an ApiVersions request that is newer than the broker, so that the client asks again."""
    kind = response_class(Api.API_VERSIONS, 0)
    assert kind is not None
    oldest, newest = known(Api.API_VERSIONS) or (0, 0)
    itself = build(element(kind, "api_keys"), api_key=int(Api.API_VERSIONS), min_version=oldest, max_version=newest)
    return encode_response(correlation, build(kind, error_code=ErrorCode.unsupported_version, api_keys=(itself,)))
