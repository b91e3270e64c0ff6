"""What users hold: the client, writers, transactions, batch reads, revisioned streams."""
