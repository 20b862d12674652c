"""Run a policy that `hmx export RUN --to onnx` wrote: needs onnxruntime and NumPy, not hmx."""

import json
from pathlib import Path

import numpy as np
import onnxruntime


def load(file):
    """Return the state that an episode starts from, and `act(state, obs=..., mask=...) -> outputs, next state`."""
    contract = json.loads(Path(file).with_name("contract.json").read_text())
    policy = onnxruntime.InferenceSession(file)

    def act(state, **inputs):
        given = [(port["name"], port["dtype"], (inputs | state)[port["name"]]) for port in contract["inputs"]]
        results = policy.run(None, {name: np.asarray([value], dtype) for name, dtype, value in given})
        outputs = {port["name"]: array[0] for port, array in zip(contract["outputs"], results, strict=True)}
        return outputs, {"reset": False} | {h["input"]: outputs[h["output"]] for h in contract["hidden"]}

    return {"reset": True} | {h["input"]: h["initial"] for h in contract["hidden"]}, act
