package runtimes

// torchGPU is PyTorch's C++ library for CUDA with the headers that the shim is compiled with, and the CUDA libraries that it needs, in
// one folder: libtorch_cuda.so looks for them there. Of CUDA, the NVIDIA driver (libcuda.so.1) alone must be on the machine: that of
// CUDA 13.0 or newer. cuDNN also needs the system's libz.so.1.
//
// The libraries are those that libtorch_cuda.so and its dependencies name (readelf -d), and those that they open when a model needs
// them: libtorch_cuda_linalg.so with cusolver, libcaffe2_nvrtc.so, nvrtc's builtins and the parts of cuDNN.
func torchGPU() Runtime {
	const torchLib, cu13 = "torch/lib/", "nvidia/cu13/lib/"
	lib := func(folder, file, sum string, bytes int64) Member {
		return Member{Path: folder + file, File: "lib/" + file, Sum: sum, Bytes: bytes}
	}
	return Runtime{
		Name: "pytorch-gpu", Title: "LibTorch with CUDA", Variable: "TUTTI_PYTORCH_GPU_LIB",
		Sonames: []string{"libtorch_cuda.so"}, // beside libtorch_cpu.so
		Releases: []Release{{Version: "2.13.0", OS: "linux", Arch: "amd64", Library: "lib/libtorch_cpu.so", Archives: []Archive{
			pip("torch==2.13.0", "manylinux_2_28_x86_64", "60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7", 526574961,
				lib(torchLib, "libtorch_cpu.so", "096eed6e217377ccda4d50693b680e2771709c01f58fe52717835b017fed9c58", 438418417),
				lib(torchLib, "libtorch_cuda.so", "181dfc4fe86bf8eb4726604ea13b18581b15cf4d5f6e52f538daa41016edc19a", 469850385),
				lib(torchLib, "libtorch_cuda_linalg.so", "83a9ea9e7c8f82029eb1328e6e68ec45e578864ae0c4c2a3d235e64b07175fe2", 43936785),
				lib(torchLib, "libtorch_nvshmem.so", "badf5e3f9fbb9f7b13e198318ffb6ff019808aacf46488ec09843f90a310541a", 4007569),
				lib(torchLib, "libcaffe2_nvrtc.so", "359285ffd0b1a9509e537a66f68be20317b3c3bcebfcfcd9bd2c030b65cb40fd", 22737),
				lib(torchLib, "libc10.so", "b83ea50e9171c7e3455c19f9ff2c7d21d457a7b8231e9c4ea1b6e032ae1156d5", 1623185),
				lib(torchLib, "libc10_cuda.so", "54da13d79545600a1822a72b179a58295c1915f8ea0194a89066437c3ac48c1a", 634081),
				lib(torchLib, "libgomp.so.1", "e28fb2896a3d612b46a27d7f8ef840d34c9efbc29b70a044c42095fb94856890", 254009),
				Member{Path: "torch/include/", File: "include"}),
			cudart("lib/"),
			cupti("lib/"),
			nvrtc("lib/"),
			pip("nvidia-cublas==13.1.1.3", "manylinux_2_27_x86_64", "37936a16db8fe4ac1f065c2139360608a543a09275cb1a1af612e08cfa065436", 423138758,
				lib(cu13, "libcublas.so.13", "25cde432108543626df85d887c730bf2cab96803ca16f9654e4abc8d2b45833e", 54177976),
				lib(cu13, "libcublasLt.so.13", "1489aeb75d55ee55782798343ac66f57771d561cc1fe1e0491568deefa0e6515", 541607888)),
			pip("nvidia-cudnn-cu13==9.20.0.48", "manylinux_2_27_x86_64", "0c45dd8eeb50b603f07995b1b300c62ffe6a1980482b82b3bcf94a4ca9d49304", 366173588,
				lib("nvidia/cudnn/lib/", "libcudnn.so.9", "b88025af76979b3f1af208790195093684fe01cb8d190528856058f988016660", 129240),
				lib("nvidia/cudnn/lib/", "libcudnn_adv.so.9", "7702094a50dbea5b8244df01af8e9d3565309d3996bbc8ca96b6c7a207d2d6bd", 109169104),
				lib("nvidia/cudnn/lib/", "libcudnn_cnn.so.9", "e830c5cba875ebeb8ed3cfde5cc038a2703692ce714a8a4ff28666ac8e2c5732", 4203904),
				lib("nvidia/cudnn/lib/", "libcudnn_engines_precompiled.so.9", "e5133109f710c215d72fdc8f1d9be187f4760f5f32e57cc8c57515ea9e91455e", 245391920),
				lib("nvidia/cudnn/lib/", "libcudnn_engines_runtime_compiled.so.9", "28db2a6f433a184e264d927b183c47ecaf72dc65ed58245a6d2380f980e29cd3", 29386664),
				lib("nvidia/cudnn/lib/", "libcudnn_graph.so.9", "35c099d318433a88d292775676a51a07d2dd152c3ae799b1c21a75b40f78e456", 4460192),
				lib("nvidia/cudnn/lib/", "libcudnn_heuristic.so.9", "a41eb9baa9ccc9e2d6c9f2ca226021b54c8ee2df4abf3a91e41687847b481228", 60822040),
				lib("nvidia/cudnn/lib/", "libcudnn_ops.so.9", "705d3dcf9b209fdbeeecd8aaec5fcd0f6f55de5661e1c1388b5a4b8fd29db7c3", 39855888)),
			cufft("lib/"),
			pip("nvidia-cufile==1.15.1.6", "manylinux2014_x86_64", "08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44", 1223672,
				lib(cu13, "libcufile.so.0", "1ecaf17d38957a41473a7fc8f29d569579e2a9079a26c4d9b89d8da330051483", 3170800)),
			pip("nvidia-curand==10.4.0.35", "manylinux_2_27_x86_64", "1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc", 59544258,
				lib(cu13, "libcurand.so.10", "b53732a66b302b11926e00f762e2c2ba67058347ff93cf4ae709de45e93e06da", 132698328)),
			pip("nvidia-cusolver==12.0.4.66", "manylinux_2_27_x86_64", "0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112", 200941980,
				lib(cu13, "libcusolver.so.12", "c571d524fc5571e6c8a5784d51f75fbe8cf17590463c397a06e48428cb926c48", 141152872)),
			pip("nvidia-cusparse==12.6.3.3", "manylinux2014_x86_64", "2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b", 145942937,
				lib(cu13, "libcusparse.so.12", "09339f848f60bb1111a61ee0fe91ed0c25132b7ff63298244d7ac14e61b58466", 162565256)),
			pip("nvidia-cusparselt-cu13==0.8.1", "manylinux2014_x86_64", "786ce87568c303fadb5afcc7102d454cd3040d75f6f8626f5db460d1871f4dd0", 170148586,
				lib("nvidia/cusparselt/lib/", "libcusparseLt.so.0", "e2bcea98434bdfc6399b5e0d1db14178079df62f9527c183c835a7ae196d5685", 233912153)),
			pip("nvidia-nccl-cu13==2.29.7", "manylinux_2_18_x86_64", "edd81538446786ec3b73972543e53bb43bcaf0bfc8ef76cb679fcc390ffe136d", 205976000,
				lib("nvidia/nccl/lib/", "libnccl.so.2", "aa957cdfb91b516eae0d54a28e9ee5db52730d02e0ab45580efc3c19a68327a4", 236524880)),
			pip("nvidia-nvjitlink==13.5.37", "manylinux2010_x86_64", "280d7cb9649704145f074b8dbde500de04ce02d0872e066e20a83c17bcaa93eb", 46642491,
				lib(cu13, "libnvJitLink.so.13", "0ba4a7e2c0819291ce928513755f4931dd69c77c63fb77677d14dc1360f28601", 117247464)),
			pip("nvidia-nvshmem-cu13==3.4.5", "manylinux2014_x86_64", "290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80", 60412546,
				lib("nvidia/nvshmem/lib/", "libnvshmem_host.so.3", "c43004bb93053aa70603a204fe0c9052bdd29f38822d3048599183f8d5930d8f", 41241312)),
		}}},
	}
}
