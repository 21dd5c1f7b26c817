"""The operator ``NystraPinv``."""
