package config

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// unsupported rejects every field that is set and not honoured, and every library.
func (l *problems) unsupported() {
	said := map[string]bool{}
	visitSet(l.cfg.ProtoReflect(), "", "", func(plain, at string, fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		f, ok := FieldOf(plain)
		switch {
		case !ok || f.Class != Refused || !f.concerns(plain, v) || slices.Contains(f.By, l.cfg.GetBackend()):
			return true
		case !said[f.Path]:
			said[f.Path] = true
			l.refuse(&f, at, fd)
		}
		return false
	})
	l.libraries()
}

func (l *problems) refuse(f *Field, at string, fd protoreflect.FieldDescriptor) {
	named := f.Path
	if fd.Enum() != nil {
		named += ": " + f.Only
	}
	l.add(NotHonoured, at, "model '%s' sets '%s', which this server does not support", l.cfg.GetName(), named)
	l.fix("remove the field. " + f.Doc)
}

// Hints returns a notice for every field in the file, before Normalise, that only affects speed.
func Hints(cfg *modelconfig.ModelConfig) []Diagnostic {
	l := &problems{cfg: cfg}
	said := map[string]bool{}
	visitSet(cfg.ProtoReflect(), "", "", func(plain, at string, _ protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		f, ok := FieldOf(plain)
		if !ok || f.Class != Hinted || !f.concerns(plain, v) {
			return true
		}
		if !said[f.Path] {
			said[f.Path] = true
			l.add(Hint, at, "model '%s' sets '%s', which has no effect here: %s", cfg.GetName(), f.Path, clause(f.Doc))
		}
		return false
	})
	return l.list
}

// clause turns a sentence into a clause of another sentence.
func clause(sentence string) string {
	return strings.ToLower(sentence[:1]) + strings.TrimSuffix(sentence[1:], ".")
}

// tritonLibrary matches the file name of a Triton backend, cache, agent or batching strategy.
var tritonLibrary = regexp.MustCompile(`libtriton\w*\.so|\.so(\.\d+)*$`)

// batchStrategy is the parameter that names a library for custom batching.
const batchStrategy = "TRITON_BATCH_STRATEGY_PATH"

// checksumAgent is the repository agent that comes with Triton.
const checksumAgent = "checksum"

// libraries rejects libraries that Triton would load.
func (l *problems) libraries() {
	name := l.cfg.GetName()
	refuse := func(field, library string) {
		l.add(SharedLibrary, field, "model '%s' names the shared library '%s' in '%s', which this server does not load", name, library, field)
	}
	l.runtime()
	own := "libtriton_" + l.cfg.GetBackend() + ".so" // names the backend a second time
	if f := l.cfg.GetDefaultModelFilename(); f != own && tritonLibrary.MatchString(path.Base(f)) {
		refuse("default_model_filename", f)
	}
	if p, ok := l.cfg.GetParameters()[batchStrategy]; ok {
		refuse("parameters."+batchStrategy, p.GetStringValue())
	}
	for i, a := range l.cfg.GetModelRepositoryAgents().GetAgents() {
		if a.GetName() != checksumAgent {
			refuse("model_repository_agents.agents["+strconv.Itoa(i)+"]", "libtritonrepoagent_"+a.GetName()+".so")
		}
	}
	if l.cfg.GetBackend() == onnxRuntime {
		return // it has custom operators
	}
	for i, f := range l.cfg.GetModelOperations().GetOpLibraryFilename() {
		refuse("model_operations.op_library_filename["+strconv.Itoa(i)+"]", f)
	}
}

// runtime accepts the library that Triton would load for the built-in backend, and rejects others with Triton's
// text.
func (l *problems) runtime() {
	name, r := l.cfg.GetName(), l.cfg.GetRuntime()
	switch {
	case r == "", r == "libtriton_"+l.cfg.GetBackend()+".so":
		return
	case !filepath.IsLocal(r):
		l.add(SharedLibrary, "runtime", "backend library name '%s' escapes backend directory, for model '%s', check model config runtime field", r, name)
	default:
		l.add(SharedLibrary, "runtime", "unable to find backend library '%s' for model '%s', this server loads no libraries made for Triton", r, name)
	}
	l.fix("remove the field: backend '" + l.cfg.GetBackend() + "' needs no library")
}

// visitSet visits the set fields of m, outer ones first. A field of a list or map is visited once per element:
// plain is its path, at the path with indices. visit reports whether to descend.
func visitSet(m protoreflect.Message, plain, at string, visit func(plain, at string, fd protoreflect.FieldDescriptor, v protoreflect.Value) bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		name := fd.TextName()
		one := func(where string, v protoreflect.Value, message bool) {
			if visit(plain+name, where, fd, v) && message {
				visitSet(v.Message(), plain+name+".", where+".", visit)
			}
		}
		switch v := m.Get(fd); {
		case fd.IsMap():
			for _, k := range sortedMapKeys(v.Map()) {
				one(at+name, v.Map().Get(k), fd.MapValue().Message() != nil)
			}
		case fd.IsList():
			for i := range v.List().Len() {
				one(at+name+"["+strconv.Itoa(i)+"]", v.List().Get(i), fd.Message() != nil)
			}
		default:
			one(at+name, v, fd.Message() != nil)
		}
	}
}

func sortedMapKeys(m protoreflect.Map) []protoreflect.MapKey {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, compareKeys)
	return keys
}
