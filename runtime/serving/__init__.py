"""Model files behind HTTP: requests in a bounded queue, tiles of several of them in one run."""
