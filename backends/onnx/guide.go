package onnx

import "github.com/tutti-server/tutti/backends"

var guide = backends.Guide{
	Doc: "Serves ONNX models. Instances of `KIND_GPU` use the CUDA provider where the library has it.",
	Limits: "Sequences, maps, sparse and complex tensors are refused by name at load. FP8 and 4 bit types have no counterpart " +
		"in the protocol. A run that nobody waits for ends between two operators.",
	Params: []backends.Param{
		{Key: "intra_op_thread_count", Doc: "Threads within an operator; by default the cores over the instances"},
		{Key: "inter_op_thread_count", Doc: "Threads over operators, for parallel execution"},
		{Key: "execution_mode", Doc: "1 runs independent operators in parallel"},
		{Key: "graph_optimization_level", Doc: "0, 1, 2, 3 or 99, as the runtime counts; `optimization.graph.level` otherwise"},
		{Key: "enable_mem_arena, enable_mem_pattern", Doc: "Whether the runtime keeps freed memory, and plans it ahead"},
		{Key: "memory.enable_memory_arena_shrinkage", Doc: "Devices whose memory is given back after each run, as in `cpu:0`"},
		{Key: "session.*, optimization.*", Doc: "Handed to the runtime as they are"},
		{
			Key: "cudnn_conv_algo_search, arena_extend_strategy, gpu_mem_limit, use_tf32, do_copy_in_default_stream, cudnn_conv_use_max_workspace, enable_cuda_graph",
			Doc: "Of the CUDA provider",
		},
	},
}
