"""What the commands do, apart from their arguments and from what they print.

Not public as modules: use the command ``pravega-wire``.
"""
