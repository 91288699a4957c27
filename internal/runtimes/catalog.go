package runtimes

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
)

// Runtime is a native library that a backend opens, with the files beside it.
type Runtime struct {
	// Name is the name in "tutti runtime fetch NAME": that of the backend.
	Name string
	// Title is the name in messages. For example, "ONNX Runtime".
	Title string
	// Variable is the environment variable with the library's path. Empty: TUTTI_NAME_LIB.
	Variable string
	// Setting is the backend's setting with the path. Empty: library-path.
	Setting string
	// Sonames are the file names of an installed library, best first. None for a program.
	Sonames []string
	// Releases are the pinned releases, best first.
	Releases []Release
}

// Release is one pinned build of a runtime.
type Release struct {
	Version string
	// OS and Arch are the build's GOOS and GOARCH.
	OS, Arch string
	// Python is the version of the interpreter that the release makes an environment for, as in 3.11; empty for a library.
	Python string
	// Archives are downloaded and unpacked into one folder.
	Archives []Archive
	// Library is the file that the backend opens or starts, below the release's folder.
	Library string

	base interpreter // of the environment; set for a release that is fetched
}

// Archive is one pinned package.
type Archive struct {
	// Client is the package client: pip or npm.
	Client string
	// Package is the client's name with the version.
	Package string
	// Platform is pip's platform tag. Empty for npm.
	Platform string
	// Python is the version of Python that the package is for, as in 3.9; empty where any does.
	Python string
	// Sum is its SHA-256, Size its bytes.
	Sum  string
	Size int64
	// Members are the files to unpack.
	Members []Member
}

// Member is a file or folder of an archive.
type Member struct {
	// Path is the path in the archive. A folder's path ends with a slash.
	Path string
	// File is the path below the release's folder. For a folder, "." unpacks its files directly there.
	File string
	// Sum is a file's SHA-256 and Bytes its size; a folder has none, the archive's holds for it.
	Sum   string
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
	return []Runtime{onnxRuntime(), openVINO(), torch(), tensorFlow(), python()}
}
