"""A pure-Python client for Pravega, async on trio.

:mod:`pravega_wire.sync` has the same API for blocking programs, and :mod:`pravega_wire.aio` for asyncio.

Example::

    import trio
    from pravega_wire import open_client

    async def main():
        async with open_client("tcp://localhost:9090", scope="demo") as client:
            await client.create_scope("demo")
            await client.create_stream("readings", 4)
            async with client.event_writer("readings") as writer:
                ack = await writer.write_event(b"21.5", "sensor-7")
                await ack.wait()

    trio.run(main)
"""

__version__ = "0.1.0"

# As in typing, whose import would take longer than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pravega_wire import errors as errors
    from pravega_wire import metrics as metrics
    from pravega_wire._names import *  # noqa: F403
    from pravega_wire._values import *  # noqa: F403

    __all__: list[str]
else:
    # The names are loaded when one of them is used first: a program's --help, and pytest where no test uses
    # Pravega, do without them, and one that plans what to read needs only values.
    def __getattr__(name):
        from importlib import import_module

        if name in ("errors", "metrics"):
            return import_module(f"{__name__}.{name}")
        if name[:1].isupper() or name in ("open_client", "__all__"):
            found, public = globals(), []
            for module in ("_values", "_names"):
                names = vars(import_module(f"{__name__}.{module}"))
                found.update({each: names[each] for each in names["__all__"]})
                if name in found:
                    return found[name]
                public += names["__all__"]
            found["__all__"] = sorted(public)
            if name == "__all__":
                return found[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), "errors", "metrics", *__getattr__("__all__")})
