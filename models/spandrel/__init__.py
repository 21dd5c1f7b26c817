"""Third-party networks, read by the library spandrel: an optional extra."""
