package openvino

import (
	"strings"

	"github.com/tutti-server/tutti/backends"
)

var guide = backends.Guide{
	Doc: "Serves what OpenVINO reads: its own IR, ONNX, PaddlePaddle, TensorFlow SavedModel folders, frozen graphs and TFLite. " +
		"It computes in f32 unless told otherwise: the runtime's own choice is bf16 on some processors, which changes results.",
	Limits: "Optional and ragged inputs, custom operators by `model_operations`, and instances of `KIND_GPU` are refused; " +
		"another device is named by TARGET_DEVICE. 4 bit and 8 bit floating types have no counterpart in the protocol. " +
		"A run that nobody waits for ends between two nodes of the graph.",
	Params: []backends.Param{
		{Key: keyDevice, Doc: "The device that the model is compiled for, CPU by default"},
		{Key: keyExtension, Doc: "A library of custom operators, beside config.pbtxt unless absolute"},
		{Key: keyFixed, Doc: "Keeps a batch size that the file fixes, instead of making it variable"},
		{Key: keyPad, Doc: "Makes smaller batches up to that size"},
		{Key: keyReshape, Doc: "Gives the inputs the shapes of config.pbtxt"},
		{Key: keyBF16, Doc: "Computes in bf16"},
		{Key: strings.Join(handed, ", "), Doc: "Handed to the runtime as they are; CACHE_DIR is beside config.pbtxt unless absolute"},
	},
}
