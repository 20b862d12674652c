// Run a policy that `hmx export RUN --to onnx` wrote: needs onnxruntime-node. In a browser, use onnxruntime-web and fetch.
const ort = require("onnxruntime-node");
const { readFileSync } = require("node:fs");
const { dirname, join } = require("node:path");

// Return the state that an episode starts from, and `act(state, {obs, mask}) -> [outputs, next state]`; arrays are flat.
exports.load = async function (file) {
  const { inputs, hidden } = JSON.parse(readFileSync(join(dirname(file), "contract.json"), "utf8"));
  const policy = await ort.InferenceSession.create(file);
  const start = { reset: [true], ...Object.fromEntries(hidden.map((h) => [h.input, h.initial.flat(Infinity)])) };
  async function act(state, given) {
    const tensor = (port) => new ort.Tensor(port.dtype, { ...given, ...state }[port.name], [1, ...port.shape]);
    const outputs = await policy.run(Object.fromEntries(inputs.map((port) => [port.name, tensor(port)])));
    return [outputs, { reset: [false], ...Object.fromEntries(hidden.map((h) => [h.input, outputs[h.output].data])) }];
  }
  return { start, act };
};
