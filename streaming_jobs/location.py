"""Where tables are: in a folder of this machine's, or at a URL in an object store.

A folder stays a `Path`, and all that is done with it is what it was. A `TableUrl` has the little that is asked of the
location of a table, and nothing that only a disk can do, so that the type checker finds who takes one for the other.
Its text is the URL, which is how deltalake takes it. Credentials, endpoint and region come from the environment, by the
store's own names (AWS_*, AZURE_*, GOOGLE_*), in every process that opens the table; they are no part of a URL.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import urlsplit

from rules.vocabulary.table_errors import in_words
from streaming_jobs.damaged_table_log import absent_commit, damaged_commit, mend

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    from deltalake import DeltaTable

SCHEMES: Final = ("s3", "s3a", "az", "abfs", "abfss", "gs")

HASTY: Final = {"max_retries": "0", "retry_timeout": "2s", "connect_timeout": "2s", "timeout": "2s"}
"""Storage options of a question that is asked again and again by a process that has more to do."""
IMPATIENT: Final = {"max_retries": "3", "retry_timeout": "5s", "connect_timeout": "5s", "timeout": "10s"}
"""Storage options of a question that is asked again anyway, or whose asker waits."""
READING: Final = {"max_retries": "20", "retry_timeout": "30s", "connect_timeout": "5s"}
"""Of whoever reads the table for somebody."""
PATIENT: Final = {"max_retries": "100", "retry_timeout": "180s", "connect_timeout": "5s"}
"""Of a question whose answer is known to be there: of a store that hangs up at once the default of ten tries makes
seconds."""


Patience = Literal["hasty", "impatient", "patient"]
_OPTIONS: Final = {"hasty": HASTY, "impatient": IMPATIENT, "patient": PATIENT}

NOT_LOCAL: Final = "must be a folder: only job.tables, job.history and job.checkpoint may be in an object store"
HADOOPS: Final = ("s3a", "abfs", "abfss", "gs")
"""The schemes that Hadoop's file systems have too."""


def nameable(folder: Path) -> Path:
    """The same folder. Raises ValueError where no table in it can be opened: Delta's library takes a % in its path for
    the beginning of a letter's number, and looks elsewhere."""
    if "%" in str(folder.absolute()):
        raise ValueError(f"no table can be opened below a folder with a % in its path, {folder.absolute()}")
    return folder


class TableUrl:
    """A place in an object store. Raises ValueError where the text is no URL of a store that is known."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES:
            raise ValueError(f"a table is in a folder, or at a URL of {', '.join(SCHEMES)}, not of {parts.scheme!r}")
        if not parts.netloc:
            raise ValueError("the URL names no bucket")
        if parts.password is not None or (parts.username is not None and not parts.scheme.startswith("abfs")):
            raise ValueError("credentials come from the environment, and do not stand in the URL")
        if parts.query or parts.fragment:
            raise ValueError("a table's URL ends with its path: no ? and no #")
        self._url = url.rstrip("/")

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"TableUrl({self._url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableUrl) and other._url == self._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self._url}/{name}")

    @property
    def scheme(self) -> str:
        return self._url.partition(":")[0]

    @property
    def name(self) -> str:
        return self._url.rpartition("/")[2]

    def is_file(self) -> bool:
        """Whether there is an object. Raises OSError where the store does not say."""
        store, path = self._split(impatient=True)
        with told():
            return bool(store.get_file_info(path).is_file)

    exists = is_file

    def read_text(self, *, patient: bool = False) -> str:
        """The object's text. Raises FileNotFoundError, and OSError where the store does not say."""
        store, path = self._split(impatient=not patient)
        with told(), store.open_input_file(path) as source:
            return source.read().decode()  # type: ignore[no-any-return]

    def write_text(self, text: str, *, patient: bool = True) -> None:
        """Put the object, whether there is one or not. Raises OSError where the store is away for minutes, or seconds
        (not `patient`)."""
        self.write_bytes(text.encode(), patient=patient)

    def write_bytes(self, content: bytes, *, patient: bool = True) -> None:
        """The same of bytes."""
        store, path = self._split(impatient=not patient)
        with told(), store.open_output_stream(path) as put:
            put.write(content)

    def numbers(self) -> list[int]:
        """Those of the names right below it that are numbers. Raises OSError."""
        return [int(name) for name in self.names() if name.isdecimal()]

    def read_bytes(self) -> bytes:
        """The whole object. Raises FileNotFoundError, and OSError where the store is away for minutes."""
        with self.open() as source, told():
            return bytes(source.read())

    def open(self) -> Any:
        """The object for reading, as pyarrow has files. Raises FileNotFoundError, and OSError where the store is away
        for minutes."""
        store, path = self._split(impatient=False)
        with told():
            return store.open_input_file(path)

    def names(self) -> list[str]:
        """The names of what is right below it, none where there is nothing. Raises OSError."""
        import pyarrow.fs as pafs

        store, path = self._split(impatient=True)
        with told():
            return [one.base_name for one in store.get_file_info(pafs.FileSelector(path, allow_not_found=True))]

    def names_below(self) -> set[str]:
        """The names of all objects below it, as they go on from here. Raises OSError."""
        import pyarrow.fs as pafs

        store, path = self._split(impatient=False)
        with told():
            every = store.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=True))
        return {one.path.removeprefix(f"{path}/") for one in every if one.is_file}

    def delete(self) -> None:
        """Delete the object; that there is none is no error. Raises OSError."""
        store, path = self._split(impatient=True)
        with told(), suppress(FileNotFoundError):
            store.delete_file(path)

    def delete_tree(self) -> None:
        """Delete all objects below it. Raises OSError."""
        store, path = self._split(impatient=True)
        with told():
            store.delete_dir(path)

    def _split(self, *, impatient: bool) -> tuple[pafs.FileSystem, str]:
        """The store, and the path in it."""
        scheme, _, rest = self._url.partition("://")
        bucket, _, path = rest.partition("/")
        return _store(f"{scheme}://{bucket}", os.getpid(), self._patience(impatient)), path

    def _patience(self, impatient: bool) -> Patience:
        return "impatient" if impatient else "patient"


class HastyUrl(TableUrl):
    """The same for a process that must not stand still: while deltalake's access to objects waits for an answer, no
    other thread of it runs. Raises OSError after two seconds."""

    __slots__ = ()

    def _patience(self, impatient: bool) -> Patience:
        return "hasty"


TableLocation = Path | TableUrl


@contextmanager
def told() -> Iterator[None]:
    """What an object store's client raises inside is raised with a line for people."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OSError(in_words(error)) from error


def table_location(text: str) -> TableLocation:
    """What the text of a location stands for. Raises ValueError for a URL that is none."""
    return TableUrl(text) if "://" in text else Path(text)


def is_at_s3(location: TableLocation) -> bool:
    """Whether Hadoop's S3A is to be asked for it."""
    return isinstance(location, TableUrl) and str(location).startswith("s3a://")


def spark_url(location: TableLocation) -> str:
    """A location as Spark takes it: a folder as this file system's, whichever one a site has for its default. Not as
    URLs are written: Hadoop takes all letters as they are."""
    return str(location) if isinstance(location, TableUrl) else f"file://{location.absolute()}"


def absolute(location: TableLocation) -> TableLocation:
    """The same, wherever the current folder is."""
    return location.absolute() if isinstance(location, Path) else location


def looks_like_url(path: Path) -> bool:
    """Whether a path was meant as a URL: the slashes of one become a single one."""
    return path.parts[:1] in [(f"{scheme}:",) for scheme in SCHEMES]


def numbers(folder: TableLocation) -> list[int]:
    """The names in a folder that are numbers; none where there is no folder. Raises OSError of a store."""
    if isinstance(folder, TableUrl):
        return folder.numbers()
    return [int(one.name) for one in folder.glob("[0-9]*") if one.name.isdecimal()]


def names(folder: TableLocation) -> list[str]:
    """The names of what is in a folder. Raises OSError, where a folder of a disk is not there too."""
    return folder.names() if isinstance(folder, TableUrl) else [one.name for one in os.scandir(folder)]


def impatience(location: TableLocation) -> dict[str, str] | None:
    """deltalake's storage options for a question that is not to wait long; None of a folder."""
    return dict(IMPATIENT) if isinstance(location, TableUrl) else None


def readers(location: TableLocation) -> dict[str, str] | None:
    """deltalake's storage options for reading; None of a folder."""
    return dict(READING) if isinstance(location, TableUrl) else None


def is_table(location: TableLocation) -> bool:
    """Whether a table is there. Raises OSError and Delta's errors where a store does not say within seconds."""
    from deltalake import DeltaTable

    if isinstance(location, TableUrl):
        return opened(location, impatient=True) is not None
    return bool(DeltaTable.is_deltatable(str(location)))


def opened(location: TableLocation, *, impatient: bool = False) -> DeltaTable | None:
    """The table, for reading; None where there is none. Raises OSError and Delta's errors.

    An object store is not asked first whether there is one: deltalake holds the interpreter while it asks that. In a
    folder, a checkpoint that is damaged is set aside where the commits are there; else the error names it, as it does a
    commit that is damaged."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    if not isinstance(location, TableUrl) and not DeltaTable.is_deltatable(str(location)):
        return None
    try:
        return DeltaTable(str(location), storage_options=impatience(location) if impatient else readers(location))
    except TableNotFoundError:
        if isinstance(location, TableUrl):
            return None
        raise
    except DeltaError:
        if isinstance(location, TableUrl):
            raise
        if (commit := damaged_commit(location)) is not None:
            raise OSError(f"its commit {commit} is damaged") from None
        if mend(location):
            return DeltaTable(str(location))
        if (commit := absent_commit(location)) is not None:
            raise OSError(f"its commit {commit} is gone") from None
        raise


@functools.lru_cache(maxsize=16)
def _store(bucket: str, process: int, patience: Patience) -> pafs.FileSystem:
    """The bucket through deltalake's own access to it: the same credentials as its tables have. One for each process:
    its threads do not outlive a fork."""
    import pyarrow as pa  # not for who has folders alone
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    class Writable(DeltaStorageHandler):  # type: ignore[misc]
        """Its streams take bytes alone, and pyarrow gives them buffers."""

        def open_output_stream(self, path: str, metadata: dict[str, str] | None = None) -> pa.PythonFile:
            return pa.PythonFile(_Bytes(self._handler.open_output_stream(path, metadata)), mode="w")

    return pafs.PyFileSystem(Writable(bucket, dict(_OPTIONS[patience])))


class _Bytes:
    """A stream for bytes that takes what has them."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, content: Any) -> int:
        return int(self._stream.write(bytes(content)) or len(content))

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()
