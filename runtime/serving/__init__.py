"""Model files behind HTTP: requests in a bounded queue, tiles of several requests in one run."""
