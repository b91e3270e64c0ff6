"""The controller's messages, generated from ``controller.proto`` by ``scripts/gen_proto.py``.

Not public.
"""
