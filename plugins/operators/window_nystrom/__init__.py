"""The operator ``NystraWindowNystrom``."""
