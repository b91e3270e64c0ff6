"""The protocol that makes each batch visible exactly once, and its ledger. Nothing here uses Spark."""
