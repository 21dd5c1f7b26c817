"""One thread a test process: the suite runs in parallel, and results do not depend on it."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
