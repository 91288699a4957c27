package runtimes

// onnxRuntimeGPU is ONNX Runtime with its CUDA and TensorRT providers, and the CUDA libraries that the first one needs, in one folder:
// the backend opens them there. Of CUDA, the NVIDIA driver (libcuda.so.1) alone must be on the machine: that of CUDA 13.0 or newer.
// The TensorRT provider needs TensorRT 10 (libnvinfer.so.10, libnvonnxparser.so.10), which is not among them: the runtime "tensorrt" has
// both, in a folder that the loader must be told of (LD_LIBRARY_PATH).
//
// The libraries are those that the provider names: cublas, cublasLt, curand and cudart as dependencies (readelf -d); cufft, cudnn and
// nvrtc are opened by it when a model needs them.
func onnxRuntimeGPU() Runtime {
	const (
		ours, cu13 = "onnxruntime/capi/", "nvidia/cu13/lib/"
		cudnn      = "nvidia/cudnn/lib/"
		library    = "libonnxruntime.so.1.31.1"
	)
	lib := func(folder, file, sum string, bytes int64) Member {
		return Member{Path: folder + file, File: file, Sum: sum, Bytes: bytes}
	}
	return Runtime{
		Name: "onnxruntime-gpu", Title: "ONNX Runtime with CUDA", Variable: "TUTTI_ONNXRUNTIME_GPU_LIB",
		Sonames: []string{"libonnxruntime-gpu.so"}, // a library of the system is found as onnxruntime: only its provider says that it has CUDA
		Releases: []Release{{Version: "1.31.1", OS: "linux", Arch: "amd64", Library: library, Archives: []Archive{
			pip("onnxruntime-gpu==1.31.1", "manylinux_2_28_x86_64", "e26c475fe361b2015f45b4b824bd13f0bb20204e59b62814e6f0acd5f3d491a6", 255560985,
				lib(ours, library, "5104254339ecadae808da771bd0b63b240f0dbd466514234905e54372435c303", 29421832),
				lib(ours, "libonnxruntime_providers_shared.so", "086ec1d5388f64153d9c63470d126693db9a182c8ce236d3a1119068471b8a0d", 14632),
				lib(ours, "libonnxruntime_providers_cuda.so", "d5290158115fa5569a3fe8f1f4037ee9b0e86658a96e52f852bbb7039aa88137", 284014752),
				lib(ours, "libonnxruntime_providers_tensorrt.so", "1882ee49fdb0e6fc2d272b00cfaf9a3310bf8580a34385c0eec4d82014ea172e", 994968)),
			cudart(""),
			nvrtc(""),
			pip("nvidia-cublas==13.1.2.11", "manylinux_2_27_x86_64", "e1ad7b57879088bc79e31cc172891a64332f76ae733084d4aaaaa65499b9b3de", 423122711,
				lib(cu13, "libcublasLt.so.13", "0e6ff90bf9b303b22c7bce79b3451f750d031f9f87d1657ecc8143e729d68c5e", 541592848),
				lib(cu13, "libcublas.so.13", "93be72e110054c369bce87f0ebb47881d9cce75ec95752d8aca7e80a0e9e6235", 54177976)),
			pip("nvidia-curand==10.4.5.25", "manylinux_2_27_x86_64", "22bb226a857e5888fe6b54ae465fc4371296bcff13a35f79e19691bcf454f529", 77113015,
				lib(cu13, "libcurand.so.10", "82586610865e67dc73505087e04dd40a3cc69b281028731ce763faafe14b1347", 104860296)),
			cufft(""),
			pip("nvidia-cudnn-cu13==9.28.1.4", "manylinux_2_27_x86_64", "a54f205b1db1f2895d99f398754db1369816f0569dd459731f925635cf7b65ec", 516817937,
				lib(cudnn, "libcudnn.so.9", "f756cabeed9b481134769fdbc0c2ae022cf52ac39aab08be26ea990a56da2efc", 137432),
				lib(cudnn, "libcudnn_adv.so.9", "d69ed7d8adc4524ddb6cbf5e10211e35f580d14e40924692f0cdf1b78cf23ab2", 92392360),
				lib(cudnn, "libcudnn_cnn.so.9", "2512f47e6e33000e12be5b2e59ac71eb8f5805a548561e7637e4413d1b7cdeb7", 4204144),
				lib(cudnn, "libcudnn_engines_precompiled.so.9", "51bd1d25591ae2994120aac5c5be172e31b973e0fdeba43a50647949096ee40a", 260072128),
				lib(cudnn, "libcudnn_engines_runtime_compiled.so.9", "738655d1b9441a752fde9b9911780635e60fe96113f2b06c1af6d70458ef5174", 41978752),
				lib(cudnn, "libcudnn_engines_tensor_ir.so.9", "ff088c803f896fd9a92c0ab861026ff3b7ee5a4222713c3dd8221e1c843e74ec", 249581552),
				lib(cudnn, "libcudnn_ext.so.9", "46c273e178b7733ffa5d56bd9719f378a20b94e07d2ccf23c4078e22bced0652", 10492592),
				lib(cudnn, "libcudnn_graph.so.9", "06c28f04f028466cf33461a7d645210146015d425a0dae6c7dc7e60c07c4d973", 149118552),
				lib(cudnn, "libcudnn_heuristic.so.9", "7738da4dd6fee9597680ff595863743b2bc4bd5b0ec3edb4e8e9d28a2b5e629d", 96473968),
				lib(cudnn, "libcudnn_ops.so.9", "e849b0a7353eec5bb5c9f75d841d075d786e205d84f8fd07b092770554674e48", 35661648)),
		}}},
	}
}
