"""Configuration from the environment: `OFFSETWATCH_<SECTION>__<KEY>`, any number of sections deep.

A value is read as TOML where the key wants that (`500`, `true`, `[60.0, 10.0]`), and as it stands otherwise. In tables
with free keys, `cluster.security`, underscores stand for the dots of the setting's name, as in
`OFFSETWATCH_CLUSTER__SECURITY__SASL_PASSWORD`. In a table of named tables, `clusters`, the names are those of the file,
with underscores for dots and hyphens: `OFFSETWATCH_CLUSTERS__ORDERS_EU__BOOTSTRAP` changes `clusters.orders-eu`.
"""

from __future__ import annotations

import json
import sys
import tomllib
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from alerts.config import Secret
from monitor.config.cluster import alike, is_text
from monitor.errors import ConfigError

PREFIX: Final = "OFFSETWATCH_"
NOT_CONFIGURATION: Final = frozenset({"OFFSETWATCH_CONFIG", "OFFSETWATCH_HOME", "OFFSETWATCH_IVY_SETTINGS"})
"""Variables of ours that are no keys of the file."""


class Override(NamedTuple):
    variable: str
    path: tuple[str, ...]
    value: Any


def overrides(
    root: type[BaseModel], environment: Mapping[str, str], file: Mapping[str, Any], options: Mapping[str, str]
) -> tuple[list[Override], list[str]]:
    """What the environment changes of what the `file` says, by variable name; and a complaint about each variable that
    holds no text or names no key, unless the file says that a secret is in it, as in `{ env = "OFFSETWATCH_HOOK" }`.
    `options`: the names of the options that gave these variables, which they are called by."""
    found: list[Override] = []
    complaints: list[str] = []
    others = NOT_CONFIGURATION | set(_of_secrets(file))
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in others:
            path, name = tuple(variable.removeprefix(PREFIX).lower().split("__")), options.get(variable, variable)
            if not is_text(environment[variable]):
                complaints.append(f"{name}: holds bytes that are no {sys.getfilesystemencoding()} text")
                continue
            try:
                found.append(_override(root, name, path, environment[variable], file))
            except ConfigError as error:
                complaints += error.complaints
    return found, complaints


def _of_secrets(given: Any) -> Iterator[str]:
    """The variables that hold secrets, by what the file says."""
    if isinstance(given, Mapping):
        if isinstance(name := given.get("env"), str):
            yield name
        for value in given.values():
            yield from _of_secrets(value)


def fields_of(root: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    """The keys known in the table at `path`; none where that is no table."""
    table: Any = root
    named: Any = None
    for name in path:
        if named is not None:
            table, named = named, None
            continue
        field = table.model_fields.get(name) if _is_model(table) else None
        table, named = (section(field), entries(field)) if field is not None else (None, None)
    return list(table.model_fields) if _is_model(table) else []


def secret_at(root: type[BaseModel], place: tuple[str, ...]) -> int:
    """How many parts of the place lead to a secret, 0 where none does: what stands there must not be shown."""
    annotation: Any = root
    for at, name in enumerate(place):
        if annotation is Secret:
            return at
        annotation = _inside(annotation, name)
    return len(place) if annotation is Secret else 0


def _inside(annotation: Any, name: str) -> Any:
    """What stands at a key of this, or an index, without its None; None where nothing is known of it."""
    if _is_model(annotation):
        found = annotation.model_fields.get(name)
        inner = found.annotation if found is not None else None
    else:
        inner = next((one for one in reversed(get_args(annotation)) if one is not Ellipsis), None)
    if get_origin(inner) in (Union, types.UnionType):
        others = [one for one in get_args(inner) if one is not type(None)]
        inner = others[0] if len(others) == 1 else None
    return inner


def section(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that is a table, else None."""
    annotation: Any = field.annotation
    return annotation if _is_model(annotation) else None


def entries(field: FieldInfo) -> type[BaseModel] | None:
    """The model of the tables in a table of named tables, else None."""
    annotation: Any = field.annotation
    of = get_args(annotation)[1] if get_origin(annotation) is dict else None
    return of if _is_model(of) else None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _override(
    root: type[BaseModel], variable: str, path: tuple[str, ...], raw: str, file: Mapping[str, Any]
) -> Override:
    table, at = root, 0
    while at < len(path):
        field = table.model_fields.get(path[at])
        if field is None:
            known = ", ".join(table.model_fields)
            raise ConfigError(f"{variable}: there is no key {'.'.join(path[: at + 1])}; known here: {known}")
        rest = path[at + 1 :]
        inner = section(field)
        if (named := entries(field)) is not None and rest:
            path = (*path[: at + 1], _named(variable, path[at], rest[0], file.get(path[at])), *rest[1:])
            inner, at = named, at + 1
        if inner is None:
            if rest and get_origin(field.annotation) is dict:
                return Override(variable, (*path[: at + 1], ".".join(rest).replace("_", ".")), raw)
            if rest:
                raise ConfigError(f"{variable}: {'.'.join(path[: at + 1])} is a value, it has no {rest[0]}")
            return Override(variable, path, _value(field, raw))
        table, at = inner, at + 1
    raise ConfigError(f"{variable}: {'.'.join(path)} is a table, name a key in it: {', '.join(table.model_fields)}")


def _named(variable: str, table: str, wanted: str, given: Any) -> str:
    """The name in the file's table that a part of a variable stands for."""
    names = list(given) if isinstance(given, dict) else []
    for name in names:
        if alike(name) == wanted:
            return str(name)
    known = ", ".join(names) or "none"
    raise ConfigError(f"{variable}: the file names no {wanted} in {table}; named there: {known}")


def _value(field: FieldInfo, raw: str) -> Any:
    """`raw` as the field wants it. What fits in no reading is returned as it is, for validation to refuse."""
    try:
        parsed = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return raw
    if _fits(field, parsed):
        return parsed
    return raw if _fits(field, raw) or _is_text(field.annotation) else parsed


def _fits(field: FieldInfo, value: Any) -> bool:
    annotated: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    try:
        TypeAdapter(annotated).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError:
        return False
    return True


def _is_text(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_text(part) for part in get_args(annotation))
    return annotation is str
