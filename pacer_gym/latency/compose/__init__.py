"""GPU profiles composed from measured kernel times, for engines that nobody here can run.

Every kernel of a dense decoder was timed on the GPUs themselves, inside vLLM, by the makers of
`aiconfigurator-core`; `tables` reads what they publish, and the other modules add it up to steps.
"""

from pacer_gym.latency.compose.composing import Serving, compose_profile
from pacer_gym.latency.compose.decoder import Decoder, model_names
from pacer_gym.latency.compose.tables import GpuTables, gpu_names, open_gpu, systems_folder

__all__ = [
    "Decoder",
    "GpuTables",
    "Serving",
    "compose_profile",
    "gpu_names",
    "model_names",
    "open_gpu",
    "systems_folder",
]
