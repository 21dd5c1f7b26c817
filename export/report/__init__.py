"""Reporting: the files of an export, its page, its sheet and its figures."""
