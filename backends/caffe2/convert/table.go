package convert

import (
	"maps"
	"slices"
	"sync"

	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
)

// many is the most inputs or outputs of an operator that takes any number.
const many = 1 << 20

// mixed are the operators whose inputs may have different types: the first one has the data, others indices or shapes.
var mixed = map[string]bool{"Gather": true, "Reshape": true, "ResizeLike": true, "Slice": true, "Split": true}

// rule is the conversion of an operator, with the number of its inputs and the most outputs. The outputs that convert does not set are
// those that only training needs.
type rule struct {
	ins, mostIns, outs int
	convert            func(o *op)
}

// Operators returns the names of the supported operators, sorted.
func Operators() []string { return slices.Sorted(maps.Keys(operators())) }

// operators returns the supported operators by type.
var operators = sync.OnceValue(func() map[string]rule {
	all := map[string]rule{
		"AffineChannel":  {3, 3, 1, affineChannel},
		"And":            {2, 2, 1, onPairs("And", onnxgraph.Bool)},
		"BatchMatMul":    {2, 2, 1, batchMatMul},
		"Cast":           {1, 1, 1, cast},
		"ChannelShuffle": {1, 1, 1, channelShuffle},
		"Clip":           {1, 1, 1, clip},
		"Concat":         {1, many, 2, concat},
		"ConstantFill":   {0, 1, 1, constantFill},
		"Conv":           {2, 3, 1, conv},
		"ConvTranspose":  {2, 3, 1, convTranspose},
		"Cube":           {1, 1, 1, powers(3)},
		"Dropout":        {1, 1, 2, dropout},
		"Elu":            {1, 1, 1, withNumber("Elu", "alpha", 1)},
		"ExpandDims":     {1, 1, 1, expandDims},
		"FC":             {3, 3, 1, fullyConnected(false)},
		"FCTransposed":   {3, 3, 1, fullyConnected(true)},
		"Flatten":        {1, 1, 1, flatten},
		"FlattenToVec":   {1, 1, 1, flattenToVec},
		"Gather":         {2, 2, 1, gather},
		"GroupNorm":      {3, 3, 3, groupNorm},
		"HardSigmoid":    {1, 1, 1, hardSigmoid},
		"InstanceNorm":   {3, 3, 3, instanceNorm},
		"LayerNorm":      {1, 3, 3, layerNorm},
		"LRN":            {1, 1, 2, lrn},
		"LeakyRelu":      {1, 1, 1, withNumber("LeakyRelu", "alpha", 0.01)},
		"MatMul":         {2, 2, 1, matMul},
		"NCHW2NHWC":      {1, 1, 1, permuted(true)},
		"NE":             {2, 2, 1, differ},
		"NHWC2NCHW":      {1, 1, 1, permuted(false)},
		"Normalize":      {1, 1, 1, normalize},
		"Or":             {2, 2, 1, onPairs("Or", onnxgraph.Bool)},
		"PRelu":          {2, 2, 1, pRelu},
		"PadImage":       {1, 1, 1, padImage},
		"Pow":            {1, 2, 1, pow},
		"Reshape":        {1, 2, 2, reshape},
		"ResizeLike":     {2, 2, 1, resizeLike},
		"ResizeNearest":  {1, 1, 1, resize("nearest")},
		"Rsqrt":          {1, 1, 1, rsqrt},
		"Scale":          {1, 1, 1, scale},
		"Selu":           {1, 1, 1, selu},
		"Shape":          {1, 1, 1, shape},
		"Slice":          {1, 3, 1, sliced},
		"Softmax":        {1, 1, 1, softmax},
		"SpatialBN":      {5, 5, 5, spatialBN},
		"Split":          {1, 2, many, split},
		"Sqr":            {1, 1, 1, powers(2)},
		"Squeeze":        {1, 1, 1, squeeze},
		"Swish":          {1, 1, 1, swish},
		"ThresholdedRelu": {
			1, 1, 1, withNumber("ThresholdedRelu", "alpha", 1),
		},
		"Tile":             {1, 1, 1, tile},
		"TopK":             {1, 1, 3, topK},
		"Transpose":        {1, 1, 1, transpose},
		"UpsampleBilinear": {1, 1, 1, resize("linear")},

		"GivenTensorFill":                  {0, 0, 1, given(onnxgraph.Float)},
		"GivenTensorDoubleFill":            {0, 0, 1, given(onnxgraph.Double)},
		"GivenTensorBoolFill":              {0, 0, 1, given(onnxgraph.Bool)},
		"GivenTensorInt16Fill":             {0, 0, 1, given(onnxgraph.Int16)},
		"GivenTensorIntFill":               {0, 0, 1, given(onnxgraph.Int32)},
		"GivenTensorInt64Fill":             {0, 0, 1, given(onnxgraph.Int64)},
		"GivenTensorByteStringToUInt8Fill": {0, 0, 1, givenBytes},
		"ReduceFrontSum":                   {1, 1, 1, reducedEnd("ReduceSum", false)},
		"ReduceFrontMean":                  {1, 1, 1, reducedEnd("ReduceMean", false)},
		"ReduceFrontMax":                   {1, 1, 1, reducedEnd("ReduceMax", false)},
		"ReduceBackSum":                    {1, 1, 1, reducedEnd("ReduceSum", true)},
		"ReduceBackMean":                   {1, 1, 1, reducedEnd("ReduceMean", true)},
		"ReduceBackMax":                    {1, 1, 1, reducedEnd("ReduceMax", true)},
	}
	for _, suffix := range []string{"", "1D", "2D", "3D"} {
		all["MaxPool"+suffix] = rule{1, 1, 1, pool("MaxPool")}
		all["AveragePool"+suffix] = rule{1, 1, 1, pool("AveragePool")}
		if suffix != "" {
			all["Conv"+suffix] = rule{2, 3, 1, conv}
		}
	}
	for name, kind := range map[string]string{
		"Abs": "Abs", "Acos": "Acos", "Asin": "Asin", "Atan": "Atan", "Ceil": "Ceil", "Cos": "Cos", "Cosh": "Cosh", "Exp": "Exp", "Floor": "Floor",
		"Log": "Log", "Negative": "Neg", "Not": "Not", "Reciprocal": "Reciprocal", "Relu": "Relu", "Sigmoid": "Sigmoid", "Sign": "Sign", "Sin": "Sin",
		"Sinh": "Sinh", "Softplus": "Softplus", "Softsign": "Softsign", "Sqrt": "Sqrt", "Tan": "Tan", "Tanh": "Tanh",
	} {
		all[name] = rule{1, 1, 1, unary(kind)}
	}
	for _, name := range []string{"Copy", "CopyCPUToGPU", "CopyGPUToCPU", "CopyFromCPUInput", "EnsureCPUOutput", "EnsureDense", "StopGradient", "Alias"} {
		all[name] = rule{1, 1, 1, copied}
	}
	for name, kind := range map[string]string{"Add": "Add", "Sub": "Sub", "Mul": "Mul", "Div": "Div"} {
		all[name] = rule{2, 2, 1, onPairs(kind, onnxgraph.Undefined)}
	}
	for name, kind := range map[string]string{"EQ": "Equal", "LT": "Less", "LE": "LessOrEqual", "GT": "Greater", "GE": "GreaterOrEqual"} {
		all[name] = rule{2, 2, 1, onPairs(kind, onnxgraph.Bool)}
	}
	for name, pairwise := range map[string]string{"Sum": "Add", "Max": "", "Min": "", "Mean": ""} {
		all[name] = rule{1, many, 1, variadic(name, pairwise)}
	}
	for _, name := range []string{"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"} {
		all[name] = rule{1, 1, 1, reduced(name)}
	}
	for _, name := range []string{"ArgMax", "ArgMin"} {
		all[name] = rule{1, 1, 1, argument(name)}
	}
	return all
})
