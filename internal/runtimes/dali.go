package runtimes

// dali is a virtual environment with NVIDIA DALI and what its pipelines import, on the machine's interpreter. Of the packages that DALI asks for,
// libcst, makefun and nvtx are left out, which its dynamic mode imports, and nvCOMP. The libraries of nvJPEG, nvJPEG2000 and nvTIFF decode on GPUs. Without
// them the decoders of the CPU work too, with errors on their output.
func dali() Runtime {
	const platform = "manylinux_2_28_x86_64"
	optree := map[string]Archive{ // for each Python that DALI has modules for
		"3.14": pip("optree==0.20.0", platform, "f8a155152d8ad308d7e00016a23c0928f4a3feb516b9ee5af7e52761a61e25f3", 490731),
		"3.13": pip("optree==0.20.0", platform, "d1034c2cc02ec12ed413727664f015a681e2eea551e05640951b05b06c07f084", 490769),
		"3.12": pip("optree==0.20.0", platform, "5c4ed341ea1ee7eb04eff01527b88a868cb19aac672a667e0aefadf7d14c0260", 488981),
		"3.11": pip("optree==0.20.0", platform, "cd49b5a6066ebb027b37afa19f02d77e33067f33b0d5b7602b537e6892789d00", 477936),
		"3.10": pip("optree==0.20.0", platform, "4fcebed2ae8ff91dafc958e554bfde0e0ce3974d869eeb75da14b984854b6ce2", 452465),
	}
	var releases []Release
	for _, numpy := range numpyWheels() {
		tree, ok := optree[numpy.python]
		if !ok {
			continue
		}
		tree.Python, tree.Members = numpy.python, inSite(numpy.python, "optree")
		releases = append(releases, Release{
			Version: "2.4.0-python-" + numpy.python, OS: "linux", Arch: "amd64", Python: numpy.python, Library: "bin/python",
			Archives: append(daliWheels(numpy.python), tree, numpy.archive("x86_64"), pipFor(numpy.python)),
		})
	}
	return Runtime{Name: "dali", Title: "NVIDIA DALI", Variable: "TUTTI_DALI", Setting: "python-runtime", Releases: releases}
}

// daliWheels are the packages of an environment with DALI that fit every Python.
func daliWheels(python string) []Archive {
	module := func(file, sum string, bytes int64) Member {
		return Member{Path: file, File: site(python) + file, Sum: sum, Bytes: bytes}
	}
	return []Archive{
		pip("nvidia-dali-cuda130==2.4.0", "manylinux_2_28_x86_64", "fbfd3204b55924bfc53354bff766bcf37165f8bca1674c59ad4ffd8096898877", 198655209,
			inSite(python, "nvidia/dali", "nvidia_dali_cuda130-2.4.0.dist-info")...),
		pip("nvidia-nvimgcodec-cu13==0.9.0.20", "manylinux_2_28_x86_64", "b59bbb223d11065abb7da81e27a2015d15db5d5535639cdc5050e4154a00800a", 25044224,
			inSite(python, "nvidia/nvimgcodec")...),
		pip("nvidia-nvjpeg==13.3.2.43", "manylinux2014_x86_64", "27f9c4a25a73f1d1ad35c342c8d657c8ff43e23877f338ef15fb2602ac2e5aa8", 3847265,
			inSite(python, "nvidia/cu13")...),
		pip("nvidia-nvjpeg2k-cu13==0.11.0.51", "manylinux2014_x86_64", "5a2463f641842c7571065e0ffb3e380bdc42375987d7bd10aa6c21683837a178", 4269503,
			inSite(python, "nvidia/nvjpeg2k")...),
		pip("nvidia-nvtiff-cu13==0.8.0.82", "manylinux2014_x86_64", "e98813a9760882e23649f70556bd6a72bfc80ccd0da19bfde657d292dab1a072", 2444703,
			inSite(python, "nvidia/nvtiff")...),
		pip("astunparse==1.6.3", "", "c2652417f2c8b5bb325c885ae329bdf3f86424075c4fd1a128674bc6fba4b8e8", 12732, inSite(python, "astunparse")...),
		pip("gast==0.7.0", "", "99cbf1365633a74099f69c59bd650476b96baa5ef196fec88032b00b31ba36f7", 22966, inSite(python, "gast")...),
		pip("packaging==26.3", "", "d7193f7c8e4e93f444fde0262bf90af30e16fa0ad0ad44cb553c87339b23cd1c", 129956, inSite(python, "packaging")...),
		pip("six==1.17.0", "", "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274", 11050, module("six.py", "c51c91f703d3d4b3696c923cb5fec213e05e75d9215393befac7f2fa6a3904df", 34703)),
		pip("typing-extensions==4.16.0", "", "481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8", 45571,
			module("typing_extensions.py", "4040ca1a1ecbee00d1385c12a93084d1c5bd46f0b774f07e5ae7e91c4f55e696", 165012)),
	}
}
