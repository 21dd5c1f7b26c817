"""Networks of others, by way of the library spandrel: an optional extra."""
