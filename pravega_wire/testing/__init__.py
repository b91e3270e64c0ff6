"""A real Pravega for tests: a server at an address, in a container, or started from the published jars.

Example::

    from pravega_wire.testing import standalone

    with standalone() as server:
        print(server.controller_uri)

For pytest there are the fixtures ``pravega_server``, ``pravega_cluster``, ``pravega_scope``,
``pravega_schema_registry`` and ``fault_proxy``; the installation of this package registers them. From the
shell, use ``pravega-wire-server standalone``.
"""

from pravega_wire import _public
from pravega_wire.testing.jars import client_classpath, schema_serializers_classpath, server_classpath
from pravega_wire.testing.java import JavaRuntime, compile_java, find_java
from pravega_wire.testing.processes import ServerProcess
from pravega_wire.testing.proxy import FaultProxy
from pravega_wire.testing.running import PravegaCluster, PravegaServer
from pravega_wire.testing.schema_registry import SchemaRegistryServer, schema_registry
from pravega_wire.testing.server import cluster, standalone

__all__ = [
    "FaultProxy",
    "JavaRuntime",
    "PravegaCluster",
    "PravegaServer",
    "SchemaRegistryServer",
    "ServerProcess",
    "client_classpath",
    "cluster",
    "compile_java",
    "find_java",
    "schema_registry",
    "schema_serializers_classpath",
    "server_classpath",
    "standalone",
]

_public.publish(__name__, __all__)
