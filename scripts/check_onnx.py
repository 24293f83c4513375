#!/usr/bin/env python3
"""Checks ONNX models: valid by onnx's own checker, and giving the expected outputs in onnxruntime.

usage: check_onnx.py MODEL INPUTS EXPECTED [MODEL INPUTS EXPECTED ...]

INPUTS and EXPECTED are safetensors files whose tensors are called as the model's inputs and outputs; unsigned ones
stand for int64. An output may be off by 1e-4 (1 + |expected|). Without arguments it only tells by its exit status
whether onnx and onnxruntime are there.
"""

import json
import sys

import numpy
import onnx
import onnxruntime

TOLERANCE = 1e-4


def read(path):
    """The tensors of a safetensors file: eight bytes with the header's length, the header, the elements."""
    with open(path, "rb") as file:
        content = file.read()
    begin = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, tensor in json.loads(content[8:begin]).items():
        if name == "__metadata__":
            continue
        first, last = (begin + offset for offset in tensor["data_offsets"])
        elements = numpy.frombuffer(content[first:last], {"F32": "<f4", "U32": "<u4"}[tensor["dtype"]])
        if tensor["dtype"] == "U32":
            elements = elements.astype(numpy.int64)
        tensors[name] = elements.reshape(tensor["shape"])
    return tensors


def session(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def errors(model, inputs, expected):
    """What is wrong with the outputs."""
    outputs = dict(zip((output.name for output in model.get_outputs()), model.run(None, inputs)))
    if outputs.keys() != expected.keys():
        yield f"the outputs are {sorted(outputs)}, expected {sorted(expected)}"
        return
    for name, right in expected.items():
        got = outputs[name]
        if got.shape != right.shape or got.dtype != right.dtype:
            yield f"{name} is {got.dtype}{list(got.shape)}, expected {right.dtype}{list(right.shape)}"
            continue
        off = numpy.abs(got.astype(float) - right) / (1 + numpy.abs(right.astype(float)))
        if not (off <= TOLERANCE).all():
            yield f"{name} is off by {off.max():.3g} (1 + |expected|)"


def main(arguments):
    if len(arguments) % 3:
        sys.exit(__doc__)
    sessions, wrong = {}, []
    for path, inputs, expected in zip(*[iter(arguments)] * 3):
        try:
            if path not in sessions:
                sessions = {path: session(path)}
            found = list(errors(sessions[path], read(inputs), read(expected)))
        except Exception as error:  # onnx and onnxruntime have no common one
            found = [f"{type(error).__name__}: {error}"]
        wrong += [f"{path} on {inputs}: {message}" for message in found]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(arguments) // 3} passed")


if __name__ == "__main__":
    main(sys.argv[1:])
