package pytorch

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// isPackage reports whether a model file is an AOTInductor package, by its extension.
func isPackage(path string) bool { return filepath.Ext(path) == ".pt2" }

// checkFile reports a wrong model file before PyTorch reads it, with a clearer error than PyTorch's. Both formats
// are zip archives: TorchScript contains code, a package contains a compiled library.
func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return config.MissingFile(status.Errorf(status.NotFound, "unable to find '%s'", path), path)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer for ever
		return status.Errorf(status.InvalidArg, "expected a file at '%s', found %s", path, info.Mode())
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		return status.Errorf(status.InvalidArg, "expected a %s at '%s', found %s: %w", kindOf(path), path, found(path), err)
	}
	defer archive.Close()
	if isPackage(path) {
		return checkPackage(path, archive)
	}
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/constants.pkl") {
			return nil
		}
	}
	return status.Errorf(status.InvalidArg,
		"expected a TorchScript file at '%s', found an archive without code, such as torch.save writes: save it with torch.jit.save", path)
}

func checkPackage(path string, archive *zip.ReadCloser) error {
	exported := false
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, ".so") && strings.Contains(f.Name, "aotinductor/") {
			return nil
		}
		exported = exported || strings.Contains(f.Name, "/models/") || strings.HasSuffix(f.Name, "serialized_exported_program.json")
	}
	if exported {
		return status.Errorf(status.Unsupported,
			"unsupported: '%s' holds an exported program, expected a compiled one: compile it with torch._inductor.aoti_compile_and_package", path)
	}
	return status.Errorf(status.InvalidArg, "expected a package of AOTInductor's at '%s', found an archive without a compiled model", path)
}

func kindOf(path string) string {
	if isPackage(path) {
		return "package of AOTInductor's"
	}
	return "TorchScript file"
}

// found describes a file by its first bytes, for an error.
func found(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "an unreadable file"
	}
	defer f.Close()
	head := make([]byte, 4)
	n, err := io.ReadFull(f, head)
	switch {
	case n == 0:
		return "an empty file"
	case err == nil && string(head) == "PK\x03\x04":
		return "a damaged or truncated archive"
	case head[0] == 0x80:
		return "a pickle, such as old versions of torch.save write"
	default:
		return "a file of another kind"
	}
}
