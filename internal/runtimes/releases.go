package runtimes

func onnxRuntime() Runtime {
	wheel := func(arch, platform, archive string, size int64, library string, bytes int64) Release {
		const file = "libonnxruntime.so.1.31.1"
		return Release{Version: "1.31.1", OS: "linux", Arch: arch, Library: file, Archives: []Archive{{
			Client: "pip", Package: "onnxruntime==1.31.1", Platform: platform, Sum: archive, Size: size,
			Members: []Member{{Path: "onnxruntime/capi/" + file, File: file, Sum: library, Bytes: bytes}},
		}}}
	}
	return Runtime{
		Name:    "onnxruntime",
		Title:   "ONNX Runtime",
		Sonames: []string{"libonnxruntime.so", "libonnxruntime.so.1"},
		Releases: []Release{
			wheel("amd64", "manylinux_2_28_x86_64", "5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f", 23753652,
				"fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3", 29352200),
			{Version: "1.30.0", OS: "linux", Arch: "amd64", Library: "libonnxruntime.so.1.30.0", Archives: []Archive{{
				Client: "npm", Package: "onnxruntime-node@1.30.0",
				Sum: "6e3390d6b783e7be946fad629292799da28d0b42f84856e50d2c1b0383291e75", Size: 113507888,
				Members: []Member{{
					Path: "package/bin/napi-v6/linux/x64/libonnxruntime.so.1", File: "libonnxruntime.so.1.30.0",
					Sum: "ffb75a925ba05e47b235bb66e3e3911714a80b328a9c9425539feb204aa32a23", Bytes: 45828512,
				}},
			}}},
			wheel("arm64", "manylinux_2_28_aarch64", "da05378364c44d4407e463982d2bf8d5e4cfea873283757e48beeb41df97b7f3", 21413526,
				"8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467", 25265040),
		},
	}
}

// openVINO has its plugins and model readers in one folder: the library looks for them there.
func openVINO() Runtime {
	return Runtime{
		Name:    "openvino",
		Title:   "OpenVINO",
		Sonames: []string{"libopenvino_c.so"},
		Releases: []Release{{Version: "2026.4.1", OS: "linux", Arch: "amd64", Library: "libopenvino_c.so.2641", Archives: []Archive{{
			Client: "pip", Package: "openvino==2026.4.1", Platform: "manylinux_2_28_x86_64",
			Sum: "2d22b1da03f7caf74df30e9f6417d0ab2f637e4a38e08e1dcd294d2c37407aaf", Size: 59130756,
			Members: []Member{{Path: "openvino/libs/", File: "."}},
		}}}},
	}
}

// torch is PyTorch's C++ library with the headers that the shim is compiled with. The CPU library needs two CUDA
// libraries, which work without a GPU, beside it.
func torch() Runtime {
	return Runtime{
		Name:    "pytorch",
		Title:   "LibTorch",
		Sonames: []string{"libtorch_cpu.so"},
		Releases: []Release{{Version: "2.13.0", OS: "linux", Arch: "amd64", Library: "lib/libtorch_cpu.so", Archives: []Archive{
			{
				Client: "pip", Package: "torch==2.13.0", Platform: "manylinux_2_28_x86_64",
				Sum: "60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7", Size: 526574961,
				Members: []Member{
					{Path: "torch/lib/libtorch_cpu.so", File: "lib/libtorch_cpu.so", Sum: "096eed6e217377ccda4d50693b680e2771709c01f58fe52717835b017fed9c58", Bytes: 438418417},
					{Path: "torch/lib/libc10.so", File: "lib/libc10.so", Sum: "b83ea50e9171c7e3455c19f9ff2c7d21d457a7b8231e9c4ea1b6e032ae1156d5", Bytes: 1623185},
					{Path: "torch/lib/libgomp.so.1", File: "lib/libgomp.so.1", Sum: "e28fb2896a3d612b46a27d7f8ef840d34c9efbc29b70a044c42095fb94856890", Bytes: 254009},
					{Path: "torch/include/", File: "include"},
				},
			},
			{
				Client: "pip", Package: "nvidia-cuda-runtime==13.0.96", Platform: "manylinux2014_x86_64",
				Sum: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548", Size: 2243632,
				Members: []Member{{Path: "nvidia/cu13/lib/libcudart.so.13", File: "lib/libcudart.so.13", Sum: "96c42e418cec19054186b9429c321603cc190bf26a18104e19408117a2a817b0", Bytes: 704288}},
			},
			{
				Client: "pip", Package: "nvidia-cuda-cupti==13.0.85", Platform: "manylinux_2_25_x86_64",
				Sum: "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8", Size: 10715597,
				Members: []Member{{Path: "nvidia/cu13/lib/libcupti.so.13", File: "lib/libcupti.so.13", Sum: "e2f9ed861fe27c492b8bb52b5e3220ef5120f3edcda36312e96b7fd8a186be3e", Bytes: 4152208}},
			},
		}}},
	}
}

func tensorFlow() Runtime {
	return Runtime{
		Name:    "tensorflow",
		Title:   "TensorFlow",
		Sonames: []string{"libtensorflow_cc.so.2", "libtensorflow.so.2"},
		Releases: []Release{{Version: "2.21.0", OS: "linux", Arch: "amd64", Library: "libtensorflow_cc.so.2", Archives: []Archive{{
			Client: "pip", Package: "tensorflow-cpu==2.21.0", Platform: "manylinux_2_27_x86_64",
			Sum: "2b847d217b02ee7731ed91431daf3250daa0196c3c94614d23be27232e6e5b6c", Size: 273829956,
			Members: []Member{
				{Path: "tensorflow/libtensorflow_cc.so.2", File: "libtensorflow_cc.so.2", Sum: "6505a4b9657e62100c6bdacb683957a395cb047725042945aaa50e40a71e429e", Bytes: 788086608},
				{Path: "tensorflow/libtensorflow_framework.so.2", File: "libtensorflow_framework.so.2", Sum: "f060b323b26ef80add21b9df9428de3aeaf2843d772c5bb098745f7abff3709b", Bytes: 65222328},
			},
		}}}},
	}
}
