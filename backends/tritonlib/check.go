package tritonlib

import (
	"debug/elf"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// entryPoint is the function that every library has.
const entryPoint = "TRITONBACKEND_ModelInstanceExecute"

// machines are the values of ELF by GOARCH.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkLibrary checks that a file is a library of this system with the entry point of a backend, and that it needs no call that is not
// provided. It reads the file and does not load it.
func checkLibrary(path string) (err error) {
	defer func() {
		if p := recover(); p != nil { // debug/elf may panic on a hostile file
			err = errLibrary(path, "it is not readable")
		}
	}()
	f, err := elf.Open(path)
	if err != nil {
		if _, ok := errors.AsType[*elf.FormatError](err); !ok && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return status.Errorf(status.NotFound, "unable to load backend library: %w", err)
		}
		return errLibrary(path, err.Error())
	}
	defer f.Close()
	if f.Type != elf.ET_DYN || f.Class != elf.ELFCLASS64 || f.Machine != machines[runtime.GOARCH] {
		return errLibrary(path, "it is "+f.Type.String()+" for "+f.Machine.String())
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return errLibrary(path, err.Error())
	}
	var missing []string
	found := false
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			found = found || s.Name == entryPoint
			continue
		}
		if elf.ST_BIND(s.Info) != elf.STB_WEAK && isCall(s.Name) && !slices.Contains(calls(), s.Name) {
			missing = append(missing, s.Name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return status.Errorf(status.Unsupported, "backend library '%s' needs calls that this server does not provide: %s", path, strings.Join(missing, ", "))
	}
	if !found {
		return status.Errorf(status.NotFound, "unable to find required entrypoint '%s' in backend library '%s'", entryPoint, path)
	}
	return nil
}

// isCall reports whether a symbol has the name of a call of Triton's APIs.
func isCall(name string) bool {
	for _, prefix := range []string{"TRITONBACKEND_", "TRITONSERVER_", "TRITONREPOAGENT_", "TRITONCACHE_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func errLibrary(path, found string) error {
	return status.Errorf(status.InvalidArg, "backend library '%s' cannot be loaded: expected a shared library for %s/%s, found: %s", path, runtime.GOOS, runtime.GOARCH, found)
}
