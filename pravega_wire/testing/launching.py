"""The command line of a server that runs on Java."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from pravega_wire.errors import ServerStartError
from pravega_wire.testing.jars import cache_directory
from pravega_wire.testing.java import find_java
from pravega_wire.testing.processes import ServerProcess

__all__ = ["class_archive", "java_memory", "java_process"]

_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.nio", "sun.nio.ch", "java.util", "java.util.concurrent")
]

_ARCHIVING = 13
"""The first version of Java that archives the classes of any program (JEP 350)."""

_LOGBACK = """<configuration>
<appender name="F" class="ch.qos.logback.core.FileAppender"><file>{file}</file>
<encoder><pattern>%d %-5level [%thread] %logger{{30}} %msg%n</pattern></encoder></appender>
<root level="{level}"><appender-ref ref="F"/></root></configuration>
"""


def java_process(
    name: str,
    main_class: str,
    properties: dict[str, object],
    *,
    address: tuple[str, int],
    log_dir: Path,
    data: Path,
    memory: str,
    direct_memory: str,
    level: str = "WARN",
    environment: dict[str, str] | None = None,
    classpath: Sequence[Path],
    archive_to: Path | None = None,
) -> ServerProcess:
    """Return a server process that has not been started.

    :param classpath: jars of the server.
    :param archive_to: file in which Java archives the classes that it has loaded, when the process ends.
    :raises ServerStartError: there is no Java, the machine's own name has no address, a size is malformed, or
        Java cannot use the path of the jars.
    """
    _require_own_address()
    for path in classpath:
        if os.pathsep in str(path):
            raise ServerStartError(
                f"Java cannot use the jars in {path.parent}, because of the {os.pathsep!r} in its name: set "
                "PRAVEGA_WIRE_CACHE to another directory"
            )
    log = log_dir / f"{name}.log"
    logback = log_dir / f"{name}-logback.xml"
    logback.write_text(_LOGBACK.format(file=escape(str(log)), level=level))
    command = [
        str(find_java().executable),
        *java_memory(memory, direct_memory),
        # Otherwise a server that has run out of memory keeps running without responding.
        "-XX:+ExitOnOutOfMemoryError",
        *_OPENS,
        f"-Dlogback.configurationFile={logback}",
        # Servers put journals, ZooKeeper's data and native libraries there, and do not delete them.
        f"-Djava.io.tmpdir={data}",
        *_archiving(classpath, archive_to),
        *(f"-D{key}={value}" for key, value in properties.items()),
        "-cp",
        os.pathsep.join(map(str, classpath)),
        main_class,
    ]
    # In the locale C, Java cannot read paths with other letters than English ones; Python can.
    locale = {"LC_ALL": "C.UTF-8"} if sys.flags.utf8_mode else {}
    return ServerProcess(name, command, address, log, locale | (environment or {}))


def java_memory(heap: str, direct: str) -> list[str]:
    """Return Java's options for the sizes of its heap and of its direct memory.

    :raises ServerStartError: a size is not one that Java understands.
    """
    for size in (heap, direct):
        if not isinstance(size, str) or not re.fullmatch(r"[1-9][0-9]*[kKmMgG]?", size):
            raise ServerStartError(f"memory must be a size for Java like '512m' or '2g', not {size!r}")
    return [f"-Xmx{heap}", f"-XX:MaxDirectMemorySize={direct}"]


def class_archive(classpath: Sequence[Path]) -> Path | None:
    """The file with the classes of these jars in the form in which Java keeps them in memory.

    A server that finds it starts in three quarters of the time. Java itself checks whether it fits.

    :returns: the path, whether or not there is a file; None if this Java cannot make one.
    """
    java = find_java()
    if java.version < _ARCHIVING:
        return None
    made_of = os.pathsep.join(map(str, (java.executable.resolve(), *classpath)))
    name = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    return cache_directory() / f"classes-{java.version}-{name}.jsa"


def _archiving(classpath: Sequence[Path], archive_to: Path | None) -> list[str]:
    if archive_to is not None:
        return [f"-XX:ArchiveClassesAtExit={archive_to}"]
    archive = class_archive(classpath)
    return [] if archive is None or not archive.exists() else [f"-XX:SharedArchiveFile={archive}"]


def _require_own_address() -> None:
    """Check what Pravega's controller needs: without the address of its own machine, it starts for ever."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise ServerStartError(
            f"this machine's own name {name!r} has no address ({error.strerror}), and a Pravega server needs "
            f"one: add the line '127.0.0.1 {name}' to /etc/hosts"
        ) from error
