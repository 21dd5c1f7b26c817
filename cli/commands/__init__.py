"""One module per command: ``SUMMARY``, ``add_arguments`` and ``run``; imports stay light."""
