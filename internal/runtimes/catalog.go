// Package runtimes finds and downloads the native libraries that backends open at run time.
//
// A Runtime value describes one library: its pinned releases, the package client of each, and the hashes of
// the archive and of the file in it. Fetch installs the library in a folder of the project and in the user's cache, so
// that a second checkout copies it. For example, "tutti runtime fetch onnxruntime". Find returns the file that a backend
// opens.
package runtimes

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
)

// Runtime is a native library that a backend opens, with the files beside it.
type Runtime struct {
	Name     string    // the name in "tutti runtime fetch NAME": that of the backend
	Title    string    // the name in messages. For example, "ONNX Runtime".
	Variable string    // the environment variable with the library's path. Empty: TUTTI_NAME_LIB.
	Setting  string    // the backend's setting with the path. Empty: library-path.
	Sonames  []string  // the file names of an installed library, best first. None for a program.
	Releases []Release // the pinned releases, best first
}

// Release is one pinned build of a runtime.
type Release struct {
	Version  string
	OS, Arch string // OS and Arch are the build's GOOS and GOARCH
	// Python is the version of the interpreter that the release makes an environment for, as in 3.11; empty for a library.
	Python   string
	Archives []Archive // downloaded and unpacked into one folder
	Library  string    // the file that the backend opens or starts, below the release's folder

	base interpreter // of the environment; set for a release that is fetched
}

// Archive is one pinned package.
type Archive struct {
	Client   string // the package client: pip, npm or mvn
	Package  string // the client's name with the version
	Platform string // pip's platform tag. Empty for the others.
	Python   string // the version of Python that the package is for, as in 3.9; empty where any does
	Sum      string // the SHA-256 of the archive, Size its bytes
	Size     int64
	Members  []Member // the files to unpack
}

// Member is a file or folder of an archive.
type Member struct {
	Path  string // the path in the archive. A folder's path ends with a slash.
	File  string // the path below the release's folder. For a folder, "." unpacks its files directly there.
	Sum   string // a file's SHA-256 and Bytes its size; a folder has none, the archive's holds for it
	Bytes int64
}

// Env returns the environment variable with the library's path.
func (r *Runtime) Env() string { return cmp.Or(r.Variable, "TUTTI_"+strings.ToUpper(r.Name)+"_LIB") }

// Key returns the backend's setting with the library's path.
func (r *Runtime) Key() string { return cmp.Or(r.Setting, "library-path") }

// releases returns the releases for this system, best first.
func (r *Runtime) releases() []Release {
	return slices.DeleteFunc(slices.Clone(r.Releases), func(p Release) bool {
		return p.OS != runtime.GOOS || p.Arch != runtime.GOARCH
	})
}

func (m *Member) folder() bool { return strings.HasSuffix(m.Path, "/") }

// List returns the known runtimes.
func List() []Runtime {
	return []Runtime{onnxRuntime(), onnxRuntimeGPU(), openVINO(), torch(), torchGPU(), tensorFlow(), tensorRT(), python(), quantizer(), dali()}
}

func onnxRuntime() Runtime {
	wheel := func(arch, platform, archive string, size int64, library string, bytes int64) Release {
		const file = "libonnxruntime.so.1.31.1"
		return Release{Version: "1.31.1", OS: "linux", Arch: arch, Library: file, Archives: []Archive{{
			Client: "pip", Package: "onnxruntime==1.31.1", Platform: platform, Sum: archive, Size: size,
			Members: []Member{{Path: "onnxruntime/capi/" + file, File: file, Sum: library, Bytes: bytes}},
		}}}
	}
	return Runtime{
		Name: "onnxruntime", Title: "ONNX Runtime", Sonames: []string{"libonnxruntime.so", "libonnxruntime.so.1"},
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
		Name: "openvino", Title: "OpenVINO", Sonames: []string{"libopenvino_c.so"},
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
		Name: "pytorch", Title: "LibTorch", Sonames: []string{"libtorch_cpu.so"},
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
			cudart("lib/"),
			cupti("lib/"),
		}}},
	}
}

func tensorFlow() Runtime {
	return Runtime{
		Name: "tensorflow", Title: "TensorFlow", Sonames: []string{"libtensorflow_cc.so.2", "libtensorflow.so.2"},
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

// tensorRT is TensorRT's runtime, which no Python package has: a Java package brings it. Without Maven it is the lean
// runtime, which runs version-compatible plans only.
func tensorRT() Runtime {
	const folder = "org/bytedeco/tensorrt/linux-x86_64/"
	lean := func(version, major, sum string, size int64, library string, bytes int64) Release {
		file := "libnvinfer_lean.so." + major
		return Release{Version: "lean-" + version, OS: "linux", Arch: "amd64", Library: file, Archives: []Archive{{
			Client: "pip", Package: "tensorrt-lean-cu13-libs==" + version, Platform: "manylinux_2_28_x86_64", Sum: sum, Size: size,
			Members: []Member{{Path: "tensorrt_lean_libs/" + file, File: file, Sum: library, Bytes: bytes}},
		}}}
	}
	return Runtime{
		Name: "tensorrt", Title: "TensorRT",
		Sonames: []string{"libnvinfer.so.10", "libnvinfer.so.11", "libnvinfer.so", "libnvinfer_lean.so.10", "libnvinfer_lean.so.11"},
		Releases: []Release{
			{Version: "10.15.1", OS: "linux", Arch: "amd64", Library: "libnvinfer.so.10", Archives: []Archive{{
				Client: "mvn", Package: "org.bytedeco:tensorrt:10.15-1.5.13:jar:linux-x86_64-redist",
				Sum: "8543a6bda95c5d42141d409e1b74024b444e96334a3815d53997cc4ec3cfce83", Size: 533640349,
				Members: []Member{
					{Path: folder + "libnvinfer.so.10", File: "libnvinfer.so.10", Sum: "e2e1e60693ff8158ae5a836aea19597dace94f7fdf9ad9e5dfa3081661d1a287", Bytes: 640939528},
					{Path: folder + "libnvinfer_plugin.so.10", File: "libnvinfer_plugin.so.10", Sum: "0825a1d9c0156b6c2ebd1a67ff3d79ecf2eec9b0f20b8e377ca192c39931e476", Bytes: 44398128},
					{Path: folder + "libnvonnxparser.so.10", File: "libnvonnxparser.so.10", Sum: "f7dfe55ba0298a5d3b69c3d5cca5aa944021bcfc8a914bf9bac39b12422cbe32", Bytes: 4758576},
				},
			}}},
			lean("10.16.1.11", "10", "0ae1ad997a02e9cc0b260da4068eedabb34025f102d2ec6afda848f05cd2ce18", 44233690,
				"5579b8aaca1a1559a69c86454d53759348bc5d5b86c71d39acd12052276addbd", 104809552),
		},
	}
}

// python is a virtual environment with numpy and pip on the machine's interpreter. It is created here because
// Debian packages the module venv separately.
func python() Runtime {
	return Runtime{
		Name: "python", Title: "Python with numpy", Variable: "TUTTI_PYTHON", Setting: "python-runtime",
		Releases: slices.Concat(pythonReleases("amd64", "x86_64", numpyWheels()), pythonReleases("arm64", "aarch64", []numpyWheel{
			{"3.14", "2.4.6", "manylinux_2_28", "40fdc1ae7125e518ea98e53e69a4ebc27e1fd50510c47b7ea130cf21e5e1d42b", 15685197},
			{"3.13", "2.4.6", "manylinux_2_28", "72fbe16c6fac95aedf5937fa873445cec2110be35d8a4e9433d7501fd98dae6b", 15669392},
			{"3.12", "2.4.6", "manylinux_2_28", "5f9fb9157b4ce2971008323afe46053787b526ef624fea915b261468a8421a0f", 15671012},
			{"3.11", "2.4.6", "manylinux_2_28", "0ab0a9c4ffb1a6d95ef519fe4247dba8eb6b18ad93999f76b7f657039acabd47", 15966692},
			{"3.10", "2.2.6", "manylinux_2_17", "efd28d4e9cd7d7a8d39074a4d44c63eda73401580c5c76acda2ce969e0a38e83", 14297320},
			{"3.9", "2.0.2", "manylinux_2_17", "1e795a8be3ddbac43274f18588329c72939870a16cae810c2b73461c40718ab1", 13912596},
		})),
	}
}

// numpyWheels are those for amd64.
func numpyWheels() []numpyWheel {
	return []numpyWheel{
		{"3.14", "2.4.6", "manylinux_2_28", "a2c306dea656c12c68f51f4cea133cbe78ca7435eb28c735eac1d3ebe73be6e8", 16638245},
		{"3.13", "2.4.6", "manylinux_2_28", "a7830bab239b79cda9c08c2da014761cafb48da6150e1da17ac06283f43b6089", 16633220},
		{"3.12", "2.4.6", "manylinux_2_28", "90f9849678c75fe7afa2d348ac842c168b0a4d3d61919687216dfc547976d853", 16645538},
		{"3.11", "2.4.6", "manylinux_2_28", "89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93", 16918164},
		{"3.10", "2.2.6", "manylinux_2_17", "fc7b73d02efb0e18c000e9ad8b83480dfcd5dfd11065997ed4c6747470ae8915", 16801050},
		{"3.9", "2.0.2", "manylinux_2_17", "f26b258c385842546006213344c50655ff1555a9338e2e5e02a0756dc3e803dd", 19526099},
	}
}

// numpyWheel is a numpy wheel for one version of Python.
type numpyWheel struct {
	python, version, platform, sum string
	size                           int64
}

// pythonReleases returns environments with these wheels. arch is Go's name of the architecture, machine the wheels'.
func pythonReleases(arch, machine string, wheels []numpyWheel) []Release {
	var list []Release
	for i := range wheels {
		w := &wheels[i]
		list = append(list, Release{
			Version: w.python + "-numpy-" + w.version, OS: "linux", Arch: arch, Python: w.python, Library: "bin/python",
			Archives: []Archive{w.archive(machine), pipFor(w.python)},
		})
	}
	return list
}

// archive is the wheel in an environment.
func (w *numpyWheel) archive(machine string) Archive {
	return Archive{
		Client: "pip", Package: "numpy==" + w.version, Platform: w.platform + "_" + machine, Python: w.python, Sum: w.sum, Size: w.size,
		Members: inSite(w.python, "numpy", "numpy.libs", "numpy-"+w.version+".dist-info"),
	}
}

// pipFor is pip in an environment of a Python.
func pipFor(python string) Archive {
	pip, version := resumingPip, "26.3"
	if python == "3.9" { // the last pip for Python 3.9
		pip = Archive{Client: "pip", Package: "pip==25.3", Sum: "9655943313a94722b7774661c21049070f6bbb0a1516bf02f7c8d5d9201514cd", Size: 1778622}
		version = "25.3"
	}
	pip.Members = inSite(python, "pip", "pip-"+version+".dist-info")
	return pip
}

// inSite are folders of a wheel, unpacked into the packages of an environment.
func inSite(python string, folders ...string) (list []Member) {
	for _, folder := range folders {
		list = append(list, Member{Path: folder + "/", File: site(python) + folder})
	}
	return list
}

// site is the folder of the packages of an environment.
func site(python string) string { return "lib/python" + python + "/site-packages/" }
