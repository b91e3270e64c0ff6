"""Values of events as typed columns, and rows as values."""
