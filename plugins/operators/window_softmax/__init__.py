"""The operator ``NystraWindowSoftmax``."""
