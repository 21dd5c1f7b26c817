from .comfyui.folder import write_node as write_node
from .comfyui.options import ComfyUIOptions as ComfyUIOptions
from .ray_application import ray_serve as ray_serve
from .triton.options import TritonOptions as TritonOptions
from .triton.repository import write_repository as write_repository
from .vapoursynth.folder import write_script as write_script
from .vapoursynth.options import VapourSynthOptions as VapourSynthOptions
