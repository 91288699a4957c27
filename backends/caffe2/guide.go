package caffe2

import (
	"fmt"
	"strings"

	"github.com/tutti-server/tutti/backends/caffe2/convert"
)

// guideDoc describes the models of the backend.
var guideDoc = "Serves the nets of Caffe2: `model.netdef` is the predict net and `init_model.netdef` the init net, which has the weights, as in the " +
	"releases of Triton with a Caffe2 backend. With `default_model_filename: \"NAME\"` they are `NAME` and `init_NAME`. A net does not describe " +
	"its inputs, so the configuration must declare them. Any blob may be an output; without outputs in the configuration they are those of the " +
	"predict net's `external_output`. The nets are converted to ONNX when the model is loaded, and ONNX Runtime executes them: `tutti runtime " +
	"fetch onnxruntime` gets it. Settings and parameters are those of [`onnxruntime`](#onnxruntime), on the CPU unless an instance group has " +
	"`KIND_GPU`. The converted model takes the space of its weights in a temporary folder while it is loaded: `TMPDIR` chooses the place."

// guideLimits describes what is refused.
var guideLimits = fmt.Sprintf("An operator or argument that is not supported is refused by name and position; so are the order NHWC, operators that "+
	"train (without `is_test`), quantized operators (`Int8...`) and random fills. Caffe's padding (`legacy_pad` 3) needs fixed dimensions of images "+
	"in the configuration. The results of each operator were compared with those of Caffe2 in PyTorch 1.10.2; they differ in the last digits of "+
	"sums. The supported operators are: %s.", strings.Join(convert.Operators(), ", "))
