"""What is known of streams and readers, as rows."""
