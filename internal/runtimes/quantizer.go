package runtimes

import "slices"

// quantizer is a virtual environment with the quantiser of ONNX Runtime, for tutti quantize.
func quantizer() Runtime {
	return Runtime{
		Name: "quantizer", Title: "ONNX Runtime's quantiser", Variable: "TUTTI_QUANTIZER", Setting: "quantizer",
		Releases: slices.Concat(
			quantizerReleases("amd64", "x86_64", "89f23aa53c24553a2416fd4fd1ec06f74fa42b14b546d8883128813f775bbfd2", 343223, []quantizerWheels{
				{"3.14", "2.5.5", [...]wheel{
					{"c48960d420e90cf305cb1fde0d4e6082cc90512cda87a9acf0b6e04e91cf4abe", 15718051},
					{"7abf381d278f31ac62487fddedc9dd42da842dce94d5d43536836ee3efdf4a2b", 8881633},
					{"c20d7f15d84427db070b163f78c2c7146cc93edd6113fa7327671259a24184fe", 23762999},
					{"8f490c003369ce60e514a0c3b12374f05274c101fee1bead6740ec8a564032b0", 409966},
				}},
				{"3.13", "2.5.5", [...]wheel{
					{"824025655df929268bfe6b47ed91a00d14209a6f760847cf150be446829e1ce4", 15713899},
					{"7abf381d278f31ac62487fddedc9dd42da842dce94d5d43536836ee3efdf4a2b", 8881633},
					{"74a6a52994616c4d18b33db1e13c226333a70a6ba07480a5cab9c2a50dff1430", 23760717},
					{"26b1f1fa4f0435a2946859823f6e2bf06796f1e9f10f5a05b08a5e3c8f46ff69", 410169},
				}},
				{"3.12", "2.5.5", [...]wheel{
					{"704d819265e5d1064d932968e9ee85fff2103ccc78c05b878c06943ba27b8507", 15720599},
					{"7abf381d278f31ac62487fddedc9dd42da842dce94d5d43536836ee3efdf4a2b", 8881633},
					{"1f3dea47f2f0e5117c2404cea7d21fd253ae7836a3bf167a501cdfbb2600d536", 23760988},
					{"3b4a480aa8fd54a1805b8ac10f3f91763926a74f73c0c364c10f9231854f4170", 409890},
				}},
				{"3.11", "2.4.6", [...]wheel{
					{"89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93", 16918164},
					{"c03ecf6b835d136108eeaeeafbd0026fc7b3cf98661409fbc6b63d5a29361348", 8886609},
					{"5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f", 23753652},
					{"6c8e39b53e90afda8ce52859c93de4dba3e02b76d85dcf091cc469f9184c6dae", 412043},
				}},
			}),
			quantizerReleases("arm64", "aarch64", "e11e1f0180583a2af89db6a2ecd9e8dc40aa6d2988ca175bfd0e6d12ea72d74e", 344219, []quantizerWheels{
				{"3.14", "2.5.5", [...]wheel{
					{"cc6eb7502facce90349b4097a26821af224aaa0ab36e78304711cdb544352882", 15300777},
					{"a203efdbaabbbe8f25e854e2b2921382d6fcf4c67895656f939044b0632974e8", 8640515},
					{"c878686b75cade1ed59131aa018ab004b1e64368b0d54041912450b9642cf04f", 21421619},
					{"317be9967fb84b0ce4e80e6b1bf71213d21971621cf6f1e501a63602a95297bf", 360334},
				}},
				{"3.13", "2.5.5", [...]wheel{
					{"ae2b8285d0b4eed24739c3ca9ec0fa424a0247489c01e1d5fe2815a599e11d33", 15278148},
					{"a203efdbaabbbe8f25e854e2b2921382d6fcf4c67895656f939044b0632974e8", 8640515},
					{"dcaedc50333876f3829ab966b242147f0e548229e29c36fe44622ecf748c25ee", 21420628},
					{"28d676428b104bb9717b0928bc5c5129f2d6b51b6727587cc4289e7bf8713cb5", 360232},
				}},
				{"3.12", "2.5.5", [...]wheel{
					{"a0750f2156d53446caca85663d0b65d67214e1664b9050454a731ea1418d176a", 15284117},
					{"a203efdbaabbbe8f25e854e2b2921382d6fcf4c67895656f939044b0632974e8", 8640515},
					{"0b9a492176886992e0e875f06bc0367e333f5fff11711a2d642e18b02f3009cc", 21420803},
					{"37da32aa97749251025666d62372775019594577b9c9e9cfda83bed48d778fdb", 360227},
				}},
				{"3.11", "2.4.6", [...]wheel{
					{"0ab0a9c4ffb1a6d95ef519fe4247dba8eb6b18ad93999f76b7f657039acabd47", 15966692},
					{"83b3fc8321303c9da62824730457ba2f7ae0970f0e2f7fc0117912df7f8a4826", 8644597},
					{"da05378364c44d4407e463982d2bf8d5e4cfea873283757e48beeb41df97b7f3", 21413526},
					{"7728c0420ec1c338564fc8b01015ff2d58567e70f17fedce5a0a7c0308c0d5b9", 356864},
				}},
			}),
		),
	}
}

// wheel is the SHA-256 and the size of a package.
type wheel struct {
	sum  string
	size int64
}

// quantizerWheels are the packages for one version of Python: numpy, onnx, onnxruntime and ml_dtypes.
type quantizerWheels struct {
	python, numpy string
	wheels        [4]wheel
}

// quantizerReleases returns the environments of an architecture. arch is Go's name of it, machine the wheels'. sum and size are those of
// protobuf, which is the same for all versions of Python.
func quantizerReleases(arch, machine, sum string, size int64, list []quantizerWheels) (releases []Release) {
	for i := range list {
		w := &list[i]
		site := "lib/python" + w.python + "/site-packages/"
		folders := func(names ...string) (members []Member) {
			for _, name := range names {
				members = append(members, Member{Path: name + "/", File: site + name})
			}
			return members
		}
		own := func(i int, name, version string, more ...string) Archive {
			return Archive{
				Client: "pip", Package: name + "==" + version, Platform: "manylinux_2_28_" + machine, Python: w.python, Sum: w.wheels[i].sum, Size: w.wheels[i].size,
				Members: folders(append(more, name, name+"-"+version+".dist-info")...),
			}
		}
		releases = append(releases, Release{
			Version: w.python + "-onnxruntime-1.31.1", OS: "linux", Arch: arch, Python: w.python, Library: "bin/python",
			Archives: []Archive{
				own(0, "numpy", w.numpy, "numpy.libs"), own(1, "onnx", "1.23.2"), own(2, "onnxruntime", "1.31.1"), own(3, "ml_dtypes", "0.6.0"),
				pip("protobuf==7.36.2", "manylinux2014_"+machine, sum, size, folders("google", "protobuf-7.36.2.dist-info")...),
				pip("flatbuffers==25.12.19", "", "7634f50c427838bb021c2d66a3d1168e9d199b0607e6329399f04846d42e20b4", 26661,
					folders("flatbuffers", "flatbuffers-25.12.19.dist-info")...),
				pip("packaging==26.4", "", "81383611a09c1bc0b08b76e0fd5829d7c6824c65b27a6aee339da133f4233ea2", 140049,
					folders("packaging", "packaging-26.4.dist-info")...),
				pip("typing_extensions==4.16.0", "", "481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8", 45571,
					append(folders("typing_extensions-4.16.0.dist-info"), Member{
						Path: "typing_extensions.py", File: site + "typing_extensions.py",
						Sum: "4040ca1a1ecbee00d1385c12a93084d1c5bd46f0b774f07e5ae7e91c4f55e696", Bytes: 165012,
					})...),
			},
		})
	}
	return releases
}
