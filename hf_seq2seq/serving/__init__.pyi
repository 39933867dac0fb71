from .app import Limits, make_app
from .models import Loading, ModelSpec
from .worker import Workers

__all__ = [
    "Limits",
    "Loading",
    "ModelSpec",
    "Workers",
    "make_app",
]
