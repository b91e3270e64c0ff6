"""The whole client in a simulated world: time, scheduling, network and servers follow from a number."""
