"""The schema of ``NystraWindowCovariance``."""

from __future__ import annotations

from ..schema import OperatorSchema
from ..window_cluster.schema import CLUSTER_ATTRIBUTES, cluster_relations

MAX_CLUSTERS = 16
"""The largest number of clusters per window: each has a matrix of d e numbers a bias block."""

MAX_BIAS_BLOCKS = 64
"""The largest number of blocks of the coarse bias in a window, for the same reason."""

SCHEMA = OperatorSchema(
    name="NystraWindowCovariance",
    doc=(
        "NystraWindowCluster of first order. A cluster is seen by a block with the mean of its "
        "keys, the mean of its values and the covariance of both, over its members outside of the "
        "block, each counted with exp(bias), averaged over blocks of bias_block: the value of a "
        "cluster for a query q is the mean value plus q times the covariance. The result is "
        "limited to the range of the values of its window and head, in each channel."
    ),
    inputs=("qkv", "bias_table"),
    outputs=("out",),
    attributes=CLUSTER_ATTRIBUTES,
    relations=cluster_relations(MAX_CLUSTERS, MAX_BIAS_BLOCKS),
)
