# Made by csrc/write_tables.py of operators/__init__.py.
set(operators pinv window_softmax window_overlap window_nystrom window_nystromformer window_cluster patch_match)
