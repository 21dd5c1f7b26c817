"""The operator ``NystraWindowNystromformer``."""
