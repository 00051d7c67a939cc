"""What `make setup` does once the packages are installed: finds Java, and fetches what everybody needs.

That is the default Kafka and what Spark needs; older brokers and the optional sets are fetched on first use. Silent,
and done in well under a second, where all of it is there. Exit code 2 with one line where something is missing.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from deploy.errors import DeployError
from deploy.jars import kafka_jars, spark_jars
from deploy.java import java


def prepare() -> None:
    """Java, the default Kafka's jars and Spark's. Raises `DeployError`."""
    java()
    # Each spends its time waiting for the registry, one small file after the other.
    with ThreadPoolExecutor() as pool:
        for fetched in [pool.submit(kafka_jars), pool.submit(spark_jars)]:
            fetched.result()


def main() -> int:
    try:
        prepare()
    except DeployError as error:
        print(f"offsetwatch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
