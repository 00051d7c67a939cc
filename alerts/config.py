"""The alerts' section of the configuration. Keys that do not stand here are refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class AlertsConfig(BaseModel):
    """Where findings are counted and written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metrics: bool = Field(True, description="Serve Prometheus metrics over HTTP.")
    metrics_host: str = Field("127.0.0.1", min_length=1, description="The address to listen on; 0.0.0.0 for everyone.")
    metrics_port: int = Field(9477, ge=0, le=65_535, description="The port; 0 takes a free one and says which.")
    log: str = Field(
        "stdout",
        min_length=1,
        description="Where the JSON line of each finding goes: stdout, stderr, or a file's path.",
    )
