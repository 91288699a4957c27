package config_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// TestEveryFieldHasClass checks that every field of the schema is honoured by its own row, or is a hint or refused
// by its own row or its message's.
func TestEveryFieldHasClass(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	walk((*modelconfig.ModelConfig)(nil).ProtoReflect().Descriptor(), "", func(path string) {
		known[path] = true
		f, ok := config.FieldOf(path)
		if !ok {
			t.Errorf("%s has no class", path)
		} else if f.Class == config.Honoured && f.Path != path && !wholly[f.Path] {
			t.Errorf("%s has no row of its own below %s, which is honoured", path, f.Path)
		}
		if f.Doc == "" || !strings.HasSuffix(f.Doc, ".") {
			t.Errorf("%s is described by no sentence: %q", path, f.Doc)
		}
		if (f.Value == nil) != (f.Only == "") {
			t.Errorf("%s says which values it means in one way only", path)
		}
	})
	rows := map[string]bool{}
	for _, f := range config.Fields() {
		if rows[f.Path] {
			t.Errorf("%s has two rows", f.Path)
		}
		rows[f.Path] = true
		if !known[f.Path] {
			t.Errorf("there is no field %s", f.Path)
		}
	}
}

// wholly lists messages that are honoured with all their fields.
var wholly = map[string]bool{"optimization.graph": true}

func walk(desc protoreflect.MessageDescriptor, prefix string, visit func(path string)) {
	for i := range desc.Fields().Len() {
		fd := desc.Fields().Get(i)
		path := prefix + fd.TextName()
		visit(path)
		below := fd.Message()
		if fd.IsMap() {
			below = fd.MapValue().Message()
		}
		if below != nil {
			walk(below, path+".", visit)
		}
	}
}

// TestPage compares docs/config.md with the tables.
func TestPage(t *testing.T) {
	t.Parallel()
	goldentest.Check(t, "../../docs/config.md", page())
}

func page() []byte {
	var b bytes.Buffer
	b.WriteString("<!-- page run by TestPage -->\n# config.pbtxt\n\nAfter this page you know which fields of Triton's `config.pbtxt` have an effect, and what to do about each code that `tutti validate` reports. " +
		"[scheduling.md](scheduling.md) explains batching, queues, sequences and instances. Written by `make golden` from the tables in `core/config`.\n\n## Fields\n\n" +
		"A field has one of three classes:\n\n- *honoured*: it has the effect that Triton documents.\n- *hint*: it affects only speed. It is accepted " +
		"with a notice and has no effect; the row says what happens instead.\n- *refused*: it would change results and is not supported.\n\n" +
		"A row also applies to the fields below it that have no row.\n\n| field | class | effect, or reason |\n|---|---|---|\n")
	for _, f := range config.Fields() {
		class := string(f.Class)
		if f.Only != "" {
			class += " when " + f.Only
		}
		if len(f.By) > 0 {
			class += ", honoured by " + strings.Join(f.By, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Path, class, f.Doc)
	}
	b.WriteString("\n## Diagnostics\n\n`tutti validate` and the server's log report these codes. A code never changes its meaning. " +
		"An *extension* is accepted by this server and not by Triton; `--strict` makes it an error.\n\n" +
		"| code | severity | finding | what to do |\n|---|---|---|---|\n")
	for _, r := range config.Rules() {
		severity := string(r.Severity)
		if r.Extension {
			severity += ", extension"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Code, severity, r.Doc, r.Fix)
	}
	return b.Bytes()
}

// TestEveryFieldIsRead sets each field of the schema for a model of each kind and for an ensemble, and checks that
// nothing panics.
func TestEveryFieldIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kinds := []string{"onnxruntime", "python", "identity", "native", "pytorch", "tensorrt", "sequence", "unknown", ""}
	walk((*modelconfig.ModelConfig)(nil).ProtoReflect().Descriptor(), "", func(path string) {
		for _, backend := range kinds {
			cfg := &modelconfig.ModelConfig{Backend: backend}
			if backend == "" {
				cfg.Platform = config.EnsemblePlatform
			}
			setField(cfg.ProtoReflect(), strings.Split(path, "."))
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s of backend '%s' panics: %v", path, backend, p)
					}
				}()
				config.NormaliseAndCheck(cfg, config.Source{Name: "m", Dir: dir}, nil)
			}()
		}
	})
}

// setField sets the field at a path, and the messages around it, to a value other than the default.
func setField(m protoreflect.Message, path []string) {
	fd := m.Descriptor().Fields().ByTextName(path[0])
	switch {
	case fd.IsMap():
		v := m.Mutable(fd).Map()
		key := protoreflect.MapKey(protoreflect.ValueOfString("k"))
		if fd.MapKey().Kind() != protoreflect.StringKind {
			key = protoreflect.ValueOfUint64(1).MapKey()
		}
		if fd.MapValue().Message() == nil {
			v.Set(key, someValue(fd.MapValue()))
		} else if below := v.Mutable(key).Message(); len(path) > 1 {
			setField(below, path[1:])
		}
	case fd.IsList() && fd.Message() != nil:
		if below := m.Mutable(fd).List().AppendMutable().Message(); len(path) > 1 {
			setField(below, path[1:])
		}
	case fd.IsList():
		m.Mutable(fd).List().Append(someValue(fd))
	case fd.Message() != nil:
		if below := m.Mutable(fd).Message(); len(path) > 1 {
			setField(below, path[1:])
		}
	default:
		m.Set(fd, someValue(fd))
	}
}

// someValue returns a value of a scalar field, other than its default.
func someValue(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	default:
		return protoreflect.ValueOfString("s")
	}
}
