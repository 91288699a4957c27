package pytorch

import "github.com/tutti-server/tutti/backends"

var guide = backends.Guide{
	Doc: "Serves TorchScript models (`model.pt`) and packages that AOTInductor compiled (`model.pt2`). Files carry no shapes, so " +
		"inputs and outputs are declared. `tutti runtime fetch` also compiles a small library against PyTorch's headers, which needs a C++ compiler.",
	Limits: "Exported programs that are not compiled are refused at load. Numbers of threads, the fuser and " +
		"the executor are settings of the process: those of the model loaded last hold for all. A run cannot be interrupted.",
	Params: []backends.Param{
		{Key: "INFERENCE_MODE", Doc: "Runs without what only training needs"},
		{Key: "DISABLE_OPTIMIZED_EXECUTION", Doc: "Runs graphs as they are"},
		{Key: "ENABLE_WEIGHT_SHARING", Doc: "Instances share one copy of the model"},
		{Key: "ENABLE_CACHE_CLEANING", Doc: "Gives cached memory back after each run"},
		{Key: "ENABLE_TENSOR_FUSER, ENABLE_JIT_EXECUTOR, ENABLE_JIT_PROFILING", Doc: "Switches of PyTorch's compiler"},
		{Key: "INTRA_OP_THREAD_COUNT, INTER_OP_THREAD_COUNT", Doc: "Threads within an operator and over operators"},
	},
}
