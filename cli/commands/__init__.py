"""One module a command: ``SUMMARY``, ``add_arguments`` and ``run``; imports stay light."""
