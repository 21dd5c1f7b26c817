from .ray_application import ray_serve as ray_serve
from .triton.options import TritonOptions as TritonOptions
from .triton.repository import write_repository as write_repository
