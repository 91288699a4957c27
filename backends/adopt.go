package backends

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Named is a model with the backend that its configuration names, for Factory.Adopts.
type Named struct {
	// Backend is the value of the field backend. It is no path.
	Backend string
	// Known is true when a factory of that name is listed.
	Known bool
	// ModelDir is the folder of config.pbtxt, Dir the folder of the version. Dir may be empty: then those of all versions count.
	ModelDir, Dir string
	// Values has the values of Options.Config of the factory that is asked.
	Values map[string]string
}

// For returns the factory for a model: one that adopts it, or the one that its configuration names; nil if there is none. dir is the
// folder of the version, or empty. settings has the values of Options.Config by backend.
func (r *Registry) For(cfg *modelconfig.ModelConfig, modelDir, dir string, settings map[string]map[string]string) *Factory {
	name := cfg.GetBackend()
	f := r.byName[name]
	if name == "" {
		return r.byPlatform[cfg.GetPlatform()]
	}
	for _, other := range r.adopters {
		if other.Adopts(Named{Backend: name, Known: f != nil, ModelDir: modelDir, Dir: dir, Values: settings[other.Name]}) != "" {
			return r.byName[other.Name]
		}
	}
	return f
}

// LibraryBackend is the name of the factory that adopts models with libraries made for Triton.
const LibraryBackend = "tritonlib"

// KeyDirectory is the setting with the folder of the libraries of Triton's backends, of the backend that adopts their models.
const KeyDirectory = "backend-directory"

// DefaultDirectory is where Triton has its backends.
const DefaultDirectory = "/opt/tritonserver/backends"

// LibraryDirectory returns the folder of the libraries of Triton's backends for values of Options.Config.
func LibraryDirectory(values map[string]string) string {
	return cmp.Or(values[KeyDirectory], DefaultDirectory)
}

// LibraryFile returns the name of the library of a backend: libtriton_NAME.so.
func LibraryFile(backend string) string { return "libtriton_" + backend + ".so" }

// Libraries returns the names of the backends that have a library below a folder, see LibraryDirectory. The error is one of the file system.
func Libraries(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if files.IsRegular(filepath.Join(dir, e.Name(), LibraryFile(e.Name()))) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// FindLibrary returns the path of the library of the backend that a model names, or "". It is looked for where Triton does: in the folder of the
// version, then in that of the model, then in the folder of the backend below LibraryDirectory. That last one is for backends that are not
// listed: a listed one is better than the library of Triton's installation, unless the model brings its own.
func FindLibrary(n Named) string {
	if n.Backend == "" || strings.ContainsAny(n.Backend, "/\x00") || n.Backend == "." || n.Backend == ".." {
		return ""
	}
	dirs := []string{n.Dir, n.ModelDir}
	if n.Dir == "" {
		dirs, _ = filepath.Glob(filepath.Join(escaped(n.ModelDir), "[1-9]*"))
		dirs = append(dirs, n.ModelDir)
	}
	if !n.Known {
		dirs = append(dirs, filepath.Join(LibraryDirectory(n.Values), n.Backend))
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, LibraryFile(n.Backend))
		if files.IsRegular(path) {
			return path
		}
	}
	return ""
}

// escaped returns a path as a pattern that matches it alone.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
