"""The files of an export, its report page, its sheet and its figures."""
