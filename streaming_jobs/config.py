"""The streaming jobs' section of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rules.vocabulary.objectives import SECOND, Objectives
from streaming_jobs.location import HADOOPS, TableLocation, TableUrl, nameable, table_location
from streaming_jobs.spark_conf import ELSEWHERE, NEEDED

Seconds = Annotated[float, Field(gt=0, le=30 * 86_400)]
Days = Annotated[float, Field(gt=0, le=3650)]

NOT_SHOWN: Final = "table_url"
"""The type of a complaint about a value that may hold a secret."""


def _located(given: Any) -> TableLocation | None:
    if given is None or isinstance(given, TableUrl):
        return given
    if isinstance(given, Path):
        return nameable(given)
    if not isinstance(given, str) or not given:
        raise ValueError("must be a folder, or a URL of an object store")
    try:
        location = table_location(given)
        return nameable(location) if isinstance(location, Path) else location
    except ValueError as error:
        raise PydanticCustomError(NOT_SHOWN, "{why}", {"why": str(error)}) from None


def named(folder: Any) -> Any:
    """The same. Raises ValueError where it has no name: an empty variable in a script is not the present folder."""
    if folder == "":
        raise ValueError("must name a folder: . is this one")
    return folder


Folder = Annotated[Path, BeforeValidator(named)]
Located = Annotated[TableLocation | None, PlainValidator(_located), PlainSerializer(lambda it: it and str(it))]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class ObjectivesConfig(_Section):
    """What the cluster is held to, in seconds of log time. See `rules.vocabulary.objectives`."""

    grace: Seconds = 10.0
    delivery: Seconds = 10.0
    liveness: Seconds = 30.0
    window_runs: Annotated[int, Field(ge=64, le=1 << 24)] = 16_384
    findings_per_step: Annotated[int, Field(ge=1, le=1 << 20)] = 1_000

    def objectives(self) -> Objectives:
        """The same in the unit of the rules."""
        return Objectives(
            grace=round(self.grace * SECOND),
            delivery=round(self.delivery * SECOND),
            liveness=round(self.liveness * SECOND),
            window_runs=self.window_runs,
            findings_per_step=self.findings_per_step,
        )


class UpkeepConfig(_Section):
    """How the tables are kept small. `vacuum_hours` and the logs' retention must exceed the largest lag allowed: a job
    that was away for longer finds its evidence gone. `counted_days`: so long findings are kept that are only counted,
    of severity info and allowed. `max_gb`: the data folder is kept below so many gigabytes (of 10^9 bytes): where they
    are nearly taken, the oldest of the probe log goes before its time, all but its last hour."""

    enabled: bool = True
    every: Seconds = 600.0
    small_files: Annotated[int, Field(ge=2, le=1_000_000)] = 500
    vacuum_hours: Annotated[float, Field(ge=1, le=24 * 365)] = 24.0
    history_days: Days = 30.0
    findings_days: Days = 365.0
    counted_days: Days = 1.0
    max_gb: Annotated[float, Field(gt=0, le=1e6)] | None = None


class CyclesConfig(_Section):
    """The search for dependency cycles, in seconds of log time: every `every` seconds over the last `window`, of which
    half at most is new. `engine` "graphframes" lets GraphFrames divide the graph, where its jar is to be had; "memory"
    takes this process alone. `ww` counts write-write edges too; the policy then allows what is found. `most` bounds
    the cycles of one name that one search reports."""

    enabled: bool = True
    engine: Literal["memory", "graphframes"] = "memory"
    window: Annotated[float, Field(ge=2, le=86_400)] = 120.0
    every: Seconds = 15.0
    ww: bool = False
    most: Annotated[int, Field(ge=1, le=100_000)] = 100


class SparkConfig(_Section):
    """Which Spark the job runs on. `master` "local": this machine's, of `job.cores` cores, in a process of the monitor.
    Else one that is there already, with the monitor as its driver: spark://HOST:PORT, yarn or k8s://URL. See
    deploying.md, "On a Spark cluster"."""

    master: Annotated[str, Field(pattern=r"^(local|yarn|spark://\S+|k8s://\S+)$")] = "local"
    conf: dict[str, str] = Field(
        {},
        description="Spark's settings by their own names, above those that the site has in spark-defaults.conf or gave "
        "to spark-submit. In the file alone: a variable's name has no capitals.",
        examples=[
            'spark.driver.host = "monitor.example"',
            'spark.executor.memory = "2g"',
            'spark.pyspark.python = "/opt/offsetwatch/bin/python"',
            'spark.jars.packages = "io.graphframes:graphframes-spark4_2.13:0.12.3"',
        ],
    )

    @field_validator("conf", mode="before")
    @classmethod
    def _dotted(cls, given: Any) -> Any:
        """TOML reads `spark.driver.host = ...` without quotes as a table in a table."""
        return dict(_flat("", given)) if isinstance(given, dict) else given

    @field_validator("conf")
    @classmethod
    def _free(cls, given: dict[str, str]) -> dict[str, str]:
        for name, value in given.items():
            if not name.startswith("spark."):
                raise ValueError(f"{name} is no setting of Spark's: these begin with spark.")
            if name in ELSEWHERE:
                raise ValueError(f"{name} is not set here: {ELSEWHERE[name]}")
            if value != NEEDED.get(name, value):
                raise ValueError(f"{name} must be {NEEDED[name]}: the checks would be wrong with another")
        return given


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            plain = isinstance(value, bool | int | float)
            yield f"{prefix}{name}", str(value).lower() if plain else value


class JobConfig(_Section):
    """The integrity job. Paths that are not given lie below `root`. `tables`: where findings, the partitions' state and
    the job's other tables are, and the probe log unless `history` says where that is; `history`: the probe log's table,
    for probe hosts and a monitor that share no file system. Each is a folder or a URL in an object store, as
    "s3://bucket/canary/tables"; see deploying.md, "Hosts that share only a bucket".

    `trigger` is the shortest time between two batches' starts, 0 for as soon as there is something. `hold`: the same
    while nothing stands out in the rows that come; what does is checked at once. `max_bytes` and
    `max_files` bound one batch when the job has fallen behind. `shuffle_partitions` is fixed by a checkpoint's first
    run. `checkpoint`: a folder, or a URL that Spark's Hadoop knows, as "s3a://bucket/canary/checkpoint".
    `rebuild_days`: where state must be rebuilt from the probe log, as after most upgrades, so many days before the last
    one are read again, and what was written since it was judged; what was sent earlier is not judged again: half an
    hour for each day of a default fleet. Choose it longer than the topics keep records.
    `history_wait`: how long a start waits for the probe log to be created. `batch_limit`: a batch that takes longer
    hangs, and the checks begin again; where the tables are in folders, also after a minute in which Spark does nothing.
    `behind_limit`: where rows wait so long for the checks, beyond `trigger` and `hold`, `checks-behind` says so.
    `ended`: ids of clusters that were taken off for good, whose silence is nobody's concern.
    `cores`: of a local Spark; of a standalone cluster too, unless `spark.cores.max` is set. `driver_memory`: of the
    driver's Java process, unless the site says."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")] = "integrity"
    root: Folder = Path(".offsetwatch")
    history: Located = None
    tables: Located = None
    checkpoint: Located = None
    trigger: Annotated[float, Field(ge=0, le=3600)] = 0.0
    hold: Annotated[float, Field(ge=0, le=60)] = 5.0
    max_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 40)] = 64 << 20
    max_files: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    starting_version: Annotated[int, Field(ge=0, le=2**53)] | None = None
    rebuild_days: Annotated[int, Field(ge=1, le=36_500)] = 2
    history_wait: Annotated[float, Field(ge=0, le=86_400)] = 120.0
    batch_limit: Annotated[float, Field(ge=10, le=86_400)] = 600.0
    behind_limit: Annotated[float, Field(ge=10, le=86_400)] = 120.0
    ended: tuple[str, ...] = ()
    cores: Annotated[int, Field(ge=1, le=256)] = 2
    shuffle_partitions: Annotated[int, Field(ge=1, le=1024)] = 2
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = "2g"
    objectives: ObjectivesConfig = ObjectivesConfig()
    upkeep: UpkeepConfig = UpkeepConfig()
    cycles: CyclesConfig = CyclesConfig()
    spark: SparkConfig = SparkConfig()

    @field_validator("checkpoint")
    @classmethod
    def _of_hadoop(cls, given: TableLocation | None) -> TableLocation | None:
        if isinstance(given, TableUrl) and given.scheme not in HADOOPS:
            raise ValueError(f"must be a folder, or a URL that Hadoop's file systems know: of {', '.join(HADOOPS)}")
        return given

    @model_validator(mode="after")
    def _capped(self) -> JobConfig:
        if self.upkeep.max_gb is not None and isinstance(self.history_path, TableUrl):
            raise ValueError(
                "upkeep.max_gb needs a local probe log: it bounds the data folder, and history is in an object store, "
                "where upkeep.history_days bounds it"
            )
        return self

    @property
    def history_path(self) -> TableLocation:
        """The probe log's Delta table."""
        return self.history or self.tables_path / "history"

    @property
    def tables_path(self) -> TableLocation:
        """Where the job's own tables are, each by its name below it."""
        return self.tables or self.root / "tables"

    @property
    def checkpoint_path(self) -> TableLocation:
        """Spark's checkpoint: offsets, commits and state."""
        return self.checkpoint or self.root / "checkpoints" / self.name

    @property
    def claim(self) -> Path:
        """What stands on this machine for the checkpoint: its lock, and a rebuild of its state, lie beside it."""
        at = self.checkpoint_path
        return at if isinstance(at, Path) else self.root / "checkpoints" / self.name

    @property
    def rebuild_folder(self) -> Path:
        """Where state is rebuilt, on this machine's disk."""
        return self.claim.with_name(f"{self.claim.name}.rebuild")

    @property
    def liveness(self) -> timedelta:
        return timedelta(seconds=self.objectives.liveness)
