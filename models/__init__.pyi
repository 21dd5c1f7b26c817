from .facts import Facts as Facts
from .loading import LoadedModel as LoadedModel
from .loading import load as load
from .pretrained import pretrained_path as pretrained_path
