package runtimes

// pip returns a wheel of PyPI: its name and version, its platform's tag, its SHA-256, and its size in bytes.
func pip(name, platform, sum string, size int64, members ...Member) Archive {
	return Archive{Client: "pip", Package: name, Platform: platform, Sum: sum, Size: size, Members: members}
}

// The wheels of CUDA 13.0 that several runtimes need. to is the folder of the libraries below that of the runtime: "", or "lib/".

// cudart is the CUDA runtime.
func cudart(to string) Archive {
	return pip("nvidia-cuda-runtime==13.0.96", "manylinux2014_x86_64", "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548", 2243632,
		cudaLibrary(to, "libcudart.so.13", "96c42e418cec19054186b9429c321603cc190bf26a18104e19408117a2a817b0", 704288))
}

// cupti is the library of profilers, which LibTorch opens.
func cupti(to string) Archive {
	return pip("nvidia-cuda-cupti==13.0.85", "manylinux_2_25_x86_64", "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8", 10715597,
		cudaLibrary(to, "libcupti.so.13", "e2f9ed861fe27c492b8bb52b5e3220ef5120f3edcda36312e96b7fd8a186be3e", 4152208))
}

// nvrtc is the compiler of CUDA with its built-in functions.
func nvrtc(to string) Archive {
	return pip("nvidia-cuda-nvrtc==13.0.88", "manylinux2010_x86_64", "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575", 90215200,
		cudaLibrary(to, "libnvrtc.so.13", "a49e67e8e74590f1e98de55c39c6287efd3f59e3c3797464d7bbe0fe01349b11", 109338064),
		cudaLibrary(to, "libnvrtc-builtins.so.13.0", "91dcd944d01da9c0f08fff5d779db136a47f6d62bdb63bae900d2f481e92c3a2", 4380616))
}

// cufft is the Fourier transforms.
func cufft(to string) Archive {
	return pip("nvidia-cufft==12.0.0.61", "manylinux2014_x86_64", "6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3", 214085489,
		cudaLibrary(to, "libcufft.so.12", "0933f68bb7e3bf90f86d70bc87cd2f69027f7757e89e5de5e19ec33a53fd8d3a", 286542352))
}

// cudaLibrary is a library in a wheel of CUDA 13.
func cudaLibrary(to, file, sum string, bytes int64) Member {
	return Member{Path: "nvidia/cu13/lib/" + file, File: to + file, Sum: sum, Bytes: bytes}
}
