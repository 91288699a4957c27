package runtimes

import (
	"runtime"
	"slices"
	"strings"
)

// Runtime is a native library that a backend opens.
type Runtime struct {
	// Name is what users type: tutti runtime fetch NAME.
	Name string
	// Title is what messages call it.
	Title string
	// Sonames are the file names under which a system installs it, best first.
	Sonames []string
	// Releases are the pinned ones, best first.
	Releases []Release
}

// Release is one pinned build of a runtime.
type Release struct {
	Version string
	// OS and Arch are Go's names of the system that the build is for.
	OS, Arch string
	// Client is the package client that fetches the archive: pip or npm.
	Client string
	// Package is the client's name of the archive with its version.
	Package string
	// Platform is pip's platform tag, empty for npm.
	Platform string
	// Archive is the SHA-256 of the archive, Size its bytes.
	Archive string
	Size    int64
	// Member is the library's path inside the archive, Library its SHA-256 and Bytes its size.
	Member, Library string
	Bytes           int64
	// File is the library's name once placed.
	File string
}

// Env returns the environment variable that names the library's path.
func (r *Runtime) Env() string { return "TUTTI_" + strings.ToUpper(r.Name) + "_LIB" }

// releases returns those for this system, best first.
func (r *Runtime) releases() []Release {
	return slices.DeleteFunc(slices.Clone(r.Releases), func(p Release) bool {
		return p.OS != runtime.GOOS || p.Arch != runtime.GOARCH
	})
}

// List returns the runtimes that this program knows.
func List() []Runtime {
	return []Runtime{{
		Name:    "onnxruntime",
		Title:   "ONNX Runtime",
		Sonames: []string{"libonnxruntime.so", "libonnxruntime.so.1"},
		Releases: []Release{
			{
				Version: "1.31.1", OS: "linux", Arch: "amd64",
				Client: "pip", Package: "onnxruntime==1.31.1", Platform: "manylinux_2_28_x86_64",
				Archive: "5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f", Size: 23753652,
				Member:  "onnxruntime/capi/libonnxruntime.so.1.31.1",
				Library: "fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3", Bytes: 29352200,
				File: "libonnxruntime.so.1.31.1",
			},
			{
				Version: "1.30.0", OS: "linux", Arch: "amd64",
				Client: "npm", Package: "onnxruntime-node@1.30.0",
				Archive: "6e3390d6b783e7be946fad629292799da28d0b42f84856e50d2c1b0383291e75", Size: 113507888,
				Member:  "package/bin/napi-v6/linux/x64/libonnxruntime.so.1",
				Library: "ffb75a925ba05e47b235bb66e3e3911714a80b328a9c9425539feb204aa32a23", Bytes: 45828512,
				File: "libonnxruntime.so.1.30.0",
			},
			{
				Version: "1.31.1", OS: "linux", Arch: "arm64",
				Client: "pip", Package: "onnxruntime==1.31.1", Platform: "manylinux_2_28_aarch64",
				Archive: "da05378364c44d4407e463982d2bf8d5e4cfea873283757e48beeb41df97b7f3", Size: 21413526,
				Member:  "onnxruntime/capi/libonnxruntime.so.1.31.1",
				Library: "8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467", Bytes: 25265040,
				File: "libonnxruntime.so.1.31.1",
			},
		},
	}}
}
