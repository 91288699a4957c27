//go:build cgo

package pytorch

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // the shim's source travels in the program
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

//go:embed shim/shim.cpp
var shimSource []byte

//go:embed shim/shim.h
var shimHeader []byte

// sourceHash returns a hash of the shim's embedded source.
func sourceHash() string {
	h := sha256.New()
	h.Write(shimSource)
	h.Write(shimHeader)
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// sourceMark returns the text that a compiled shim contains to identify its source.
func sourceMark() string { return "tutti-shim-source:" + sourceHash() }

// Prepare compiles the shim into the folder of lib, with the headers that were fetched with it and the C++ compiler
// in CXX, by default g++. It does nothing if the shim exists and was compiled from the same source.
func Prepare(ctx context.Context, lib string, progress io.Writer) error {
	folder := filepath.Dir(lib)
	shim := filepath.Join(folder, shimFile)
	if checkShim(shim) == nil {
		return nil
	}
	compiler, err := exec.LookPath(cmp.Or(os.Getenv("CXX"), "g++"))
	if err != nil {
		return status.Errorf(status.Unavailable, "PyTorch's shim is compiled on this machine, and there is no C++ compiler: install g++ 11 or newer and run 'tutti runtime fetch pytorch' again")
	}
	tmp, err := os.MkdirTemp(folder, ".shim-")
	if err != nil {
		return status.Errorf(status.Unavailable, "unable to compile PyTorch's shim: %w", err)
	}
	defer os.RemoveAll(tmp)
	for name, data := range map[string][]byte{"shim.cpp": shimSource, "shim.h": shimHeader} {
		if err := os.WriteFile(filepath.Join(tmp, name), data, 0o600); err != nil {
			return err
		}
	}
	if progress != nil {
		fmt.Fprintf(progress, "compiling PyTorch's shim with %s (half a minute)\n", compiler)
	}
	cmd := exec.CommandContext(ctx, compiler, compile(folder, tmp)...)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return status.Errorf(status.Unavailable, "unable to compile PyTorch's shim: %s: %w: %s", compiler, err, shorten(string(out)))
	}
	return os.Rename(filepath.Join(tmp, shimFile), shim)
}

// compile returns the compiler's arguments. The headers are in a folder next to that of the libraries; the shim
// finds the libraries in its own folder.
func compile(folder, tmp string) []string {
	include := filepath.Join(filepath.Dir(folder), "include")
	return []string{
		"-O2", "-std=c++20", "-fPIC", "-shared", "-DTT_SOURCE=\"" + sourceHash() + "\"",
		"-isystem", include, "-isystem", filepath.Join(include, "torch", "csrc", "api", "include"),
		"-o", filepath.Join(tmp, shimFile), filepath.Join(tmp, "shim.cpp"),
		"-L" + folder, "-ltorch_cpu", "-lc10", "-Wl,-soname,libtorch.so", "-Wl,--disable-new-dtags,-rpath,$ORIGIN", "-Wl,--allow-shlib-undefined",
	}
}
