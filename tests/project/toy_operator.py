"""An operator as described in CONTRIBUTING: Y = factor * X, on every backend."""

from toy_tree import Replacements, Toy

SCHEMA = '''"""The schema of ``NystraToyScale``."""

from ..schema import REVISION_ATTRIBUTE, Attribute, OperatorSchema

SCHEMA = OperatorSchema(
    name="NystraToyScale",
    doc="Y = factor * X.",
    inputs=("X",),
    outputs=("Y",),
    attributes=(
        Attribute("factor", "float", None, -8.0, 8.0, "what X is multiplied by"),
        REVISION_ATTRIBUTE,
    ),
)
'''

REFERENCE = '''"""``NystraToyScale`` in float64 numpy."""

import numpy as np

from nystra.plugins.operators.toy_scale.schema import SCHEMA


def reference(x, **attributes):
    """Return Y in float64."""
    return SCHEMA.validate(attributes)["factor"] * np.asarray(x, np.float64)
'''

TORCH_OP = '''"""``NystraToyScale`` in torch."""

from ..operator_torch import register
from .schema import SCHEMA


def toy_scale(x, factor):
    """Return factor * x."""
    return factor * x


register(SCHEMA, toy_scale, lambda x, attributes: x.new_empty(x.shape))
'''

BODY = '''"""``NystraToyScale`` as a model-local ONNX function."""


def write(nodes):
    """Write the nodes; return the result."""
    x = nodes.float32(nodes.inputs[0])
    return nodes.op("Mul", x, nodes.attribute("factor"))
'''

KERNELS = """// The kernels of NystraToyScale: y = factor x.
#pragma once

#include "cuda_launch.h"

namespace nystra {

struct ToyScaleParams {
  int64_t elements;
  float factor;

  int64_t tasks() const { return (elements + 1023) / 1024; }
};

#define NYSTRA_TOY_SCALE_CPU(X) \\
  X(Status, toy_scale,         \\
    (const ToyScaleParams&, Type, const void* x, void* y, int64_t first, int64_t last))

namespace cuda {

Status toy_scale(const ToyScaleParams& params, Type type, const void* x, void* y, Stream stream,
                 const LaunchLimits& limits = {});

}  // namespace cuda
}  // namespace nystra
"""

CPU_KERNEL = """// NystraToyScale: a task is 1024 elements.
#include "elements.h"
#include "isa.h"

namespace nystra::NYSTRA_ISA {
namespace {

template <class T>
void scale(const ToyScaleParams& params, const T* x, T* y, int64_t first, int64_t last) {
  const int64_t end = last * 1024 < params.elements ? last * 1024 : params.elements;
  for (int64_t i = first * 1024; i < end; i += kLanes) {
    const int lanes = lanes_left(end, i);
    store_part(y + i, load_part(x + i, lanes) * params.factor, lanes);
  }
}

}  // namespace

Status toy_scale(const ToyScaleParams& params, Type type, const void* x, void* y, int64_t first,
                 int64_t last) {
  with_elements(type, [&](auto t) { scale(params, t.of(x), t.of(y), first, last); });
  return Status::kOk;
}

}  // namespace nystra::NYSTRA_ISA
"""

CUDA_KERNEL = """// NystraToyScale: a thread takes every so many elements.
#include "kernels/toy_scale.h"

#include "elements.h"

namespace nystra::cuda {
namespace {

template <class T>
__global__ void toy_scale_kernel(int64_t count, float factor, const T* x, T* y) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    y[i] = from_float<T>(factor * to_float(x[i]));
}

}  // namespace

Status toy_scale(const ToyScaleParams& params, Type type, const void* x, void* y, Stream stream,
                 const LaunchLimits& limits) {
  if (params.elements == 0) return Status::kOk;
  return with_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    const dim3 grid(static_cast<unsigned>(limits.blocks)), block(128);
    return launch(toy_scale_kernel<T>, grid, block, 0, static_cast<cudaStream_t>(stream),
                  params.elements, params.factor, static_cast<const T*>(x),
                  static_cast<T*>(y)) == cudaSuccess
               ? Status::kOk
               : Status::kLaunch;
  });
}

}  // namespace nystra::cuda
"""

HEADER = """// NystraToyScale: X -> Y of its shape.
#pragma once

#include "attributes.h"
#include "kernels/toy_scale.h"
#include "shape.h"
#include "operators/table.h"
#include "tensors.h"
#include "threads.h"

namespace nystra {

class ToyScale {
 public:
  static constexpr const Schema& kSchema = kToyScaleSchema;

  explicit ToyScale(const Attributes& a) : factor_(a.number("factor")) {}

  void check(const Shape* in) const;
  Shape output(int, const Shape* in) const { return in[0]; }
  ToyScaleParams params(const Shape* in) const;

  void compute(const Tensors&, const Threads&, const Kernels&) const;

  size_t workspace(const Shape* in, Type, const cuda::LaunchLimits& = {}) const {
    check(in);
    return 0;
  }
  Status launch(const Tensors& t, void*, cuda::Stream stream,
                const cuda::LaunchLimits& limits = {}) const {
    return cuda::toy_scale(params(t.shapes), t.type, t.inputs[0], t.outputs[0], stream, limits);
  }

 private:
  float factor_;
};

}  // namespace nystra
"""

SOURCE = """#include "toy_scale.h"

namespace nystra {

void ToyScale::check(const Shape* in) const {
  if (in[0].rank > 4) throw Refusal("input X is " + text(in[0]) + "; expected rank 4 at most");
}

ToyScaleParams ToyScale::params(const Shape* in) const {
  ToyScaleParams result{1, factor_};
  for (int axis = 0; axis < in[0].rank; ++axis) result.elements *= in[0][axis];
  return result;
}

void ToyScale::compute(const Tensors& t, const Threads& threads, const Kernels& kernels) const {
  const ToyScaleParams p = params(t.shapes);
  threads.parallel(p.tasks(), 0, [&](int64_t first, int64_t last, float*) {
    return kernels.toy_scale(p, t.type, t.inputs[0], t.outputs[0], first, last);
  });
}

}  // namespace nystra
"""

TESTS = '''"""The tests' record of ``NystraToyScale``."""

from conformance_case import EVERYWHERE, Case
from operator_tests import OpenNode, OperatorTests

NAME = "NystraToyScale"

TESTS = OperatorTests(
    cases=[
        *(Case(NAME, {"factor": -1.5}, shape) for shape in ((1, 1), (3, 7), (2, 1029))),
        Case(NAME, {"factor": 2.0}, (2, 5)),
        Case(NAME, {"factor": 8.0}, (2, 5), values="large"),
        Case(NAME, {"factor": 9.0}, (2, 5), refused_by=EVERYWHERE),
    ],
    base=Case(NAME, {"factor": 0.5}, (3, 5)),
    changes={"factor": {"factor": 0.7}},
    attributes={"factor": 0.5},
    shapes=[(3, 5)],
    open_node=OpenNode(
        [("b", "n")], [("b", "n")], [{"b": 3, "n": 5}, {"b": 1, "n": 1}, {"b": 2, "n": 70}]
    ),
)
'''

EXAMPLE = """      {"NystraToyScale",
       "T",
       "T",
       {{"factor", 0.5f}, {"revision", 1}},
       {{3, 5}},
       {{true, true}},
       {{3, 5}}},
"""


def _before(line: str, text: str) -> Replacements:
    return ((line, text + line),)


TOY = Toy(
    "operator",
    "toy_scale",
    {
        "plugins/operators/<name>/schema.py": SCHEMA,
        "plugins/operators/<name>/torch_op.py": TORCH_OP,
        "plugins/operators/<name>/body.py": BODY,
        "plugins/csrc/kernels/<name>.h": KERNELS,
        "plugins/csrc/operators/<name>.h": HEADER,
        "plugins/csrc/operators/<name>.cc": SOURCE,
        "plugins/csrc/kernels/cpu/<name>.cc": CPU_KERNEL,
        "plugins/csrc/kernels/cuda/<name>.cu": CUDA_KERNEL,
        "tests/plugins/reference/<name>.py": REFERENCE,
        "tests/plugins/operators/<name>.py": TESTS,
    },
    {
        "plugins/operators/__init__.py": _before(
            '    "NystraPinv": "pinv",\n', '    "NystraToyScale": "toy_scale",\n'
        ),
        "tests/plugins/tensorrt_host/examples.cc": _before(
            '      {"NystraPinv",\n       "T",\n', EXAMPLE
        ),
    },
)
