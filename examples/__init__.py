"""Programs that show the packages at work."""
