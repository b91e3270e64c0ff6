"""A real Pravega for tests: an address, containers, or the published jars behind one interface.

::

    from pravega_wire.testing import standalone

    with standalone() as server:
        print(server.controller_uri)

As pytest fixtures: ``pravega_server``, ``pravega_cluster``, ``pravega_scope``,
``fault_proxy`` (this package registers its
plugin). From the shell: ``python -m pravega_wire.testing standalone``.
"""

from pravega_wire import _public
from pravega_wire.testing.jars import client_classpath, server_classpath
from pravega_wire.testing.java import JavaRuntime, compile_java, find_java
from pravega_wire.testing.processes import ServerProcess
from pravega_wire.testing.proxy import FaultProxy
from pravega_wire.testing.running import PravegaCluster, PravegaServer
from pravega_wire.testing.server import cluster, standalone

__all__ = [
    "FaultProxy",
    "JavaRuntime",
    "PravegaCluster",
    "PravegaServer",
    "ServerProcess",
    "client_classpath",
    "cluster",
    "compile_java",
    "find_java",
    "server_classpath",
    "standalone",
]

_public.publish(__name__, __all__)
