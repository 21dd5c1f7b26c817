"""Workers and the calls of their methods: threads, child processes, actors of a Ray cluster."""
