"""Options of the format ``pravega``, and what they name."""
