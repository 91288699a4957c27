package config_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"tutti/core/config"
	"tutti/core/goldentest"
	"tutti/proto/modelconfig"
)

// TestEveryFieldHasClass walks the schema: every field is honoured by a row of its
// own, or is a hint or refused by its row or by that of a field around it.
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

// wholly lists messages that are honoured with everything in them.
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

// TestPage holds docs/config.md to the tables.
func TestPage(t *testing.T) {
	t.Parallel()
	goldentest.Check(t, "../../docs/config.md", page())
}

func page() []byte {
	var b bytes.Buffer
	b.WriteString("# config.pbtxt\n\nWritten by `make golden` from the tables in `core/config`.\n\n## Fields\n\n" +
		"A field is *honoured*; or it is a *hint* about speed, accepted with a notice and without effect; or it is *refused*, because it " +
		"would change an answer or a promise and is not built. A row counts for all fields below it that have no row.\n\n" +
		"| field | class | what it does, or why not |\n|---|---|---|\n")
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
	b.WriteString("\n## Diagnostics\n\nWhat `tutti validate` reports, and the log. Codes keep their meaning. " +
		"An *extension* is accepted here and not by Triton; `--strict` makes it an error.\n\n" +
		"| code | severity | what is found | what to do |\n|---|---|---|---|\n")
	for _, r := range config.Rules() {
		severity := string(r.Severity)
		if r.Extension {
			severity += ", extension"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Code, severity, r.Doc, r.Fix)
	}
	return b.Bytes()
}
