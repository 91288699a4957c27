package importer

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// text returns the configuration of an ensemble.
func (e *ensemble) text() string {
	e.nameWires()
	var t strings.Builder
	for line := range strings.Lines(e.comment) {
		t.WriteString("# " + line)
	}
	fmt.Fprintf(&t, "name: %s\nplatform: \"ensemble\"\n", quoted(e.name))
	for _, w := range e.in {
		w.port.write(&t, "input", w.name)
	}
	for _, w := range e.out {
		w.port.write(&t, "output", w.name)
	}
	t.WriteString("ensemble_scheduling {\n")
	for _, s := range e.steps {
		s.write(&t)
	}
	t.WriteString("}\n")
	for _, p := range e.allParams() {
		t.WriteString(parameter(p[0], p[1]))
	}
	return t.String()
}

// allParams returns the parameters of the ensemble, with those of conditions and joined tensors.
func (e *ensemble) allParams() [][2]string {
	list := append(slices.Clone(e.params), e.demuxParams()...)
	for i, s := range e.steps {
		if s.when != nil {
			list = append(list, [2]string{"step." + e.stepKey(i) + ".when", s.when.String()})
		}
	}
	if len(e.joins) > 0 {
		m := map[string][]string{}
		for _, j := range e.joins {
			for _, w := range j.from {
				m[j.to.name] = append(m[j.to.name], w.name)
			}
		}
		text, _ := json.Marshal(m)
		list = append(list, [2]string{"ensemble.first_of", string(text)})
	}
	return list
}

func (s *step) write(t *strings.Builder) {
	version := int64(-1)
	if s.version > 0 {
		version = s.version
	}
	fmt.Fprintf(t, "  step {\n    model_name: %s\n    model_version: %d\n", quoted(s.model), version)
	for _, l := range s.in {
		fmt.Fprintf(t, "    input_map { key: %s value: %s }\n", quoted(l.port), quoted(l.wire.name))
	}
	for _, l := range s.out {
		fmt.Fprintf(t, "    output_map { key: %s value: %s }\n", quoted(l.port), quoted(l.wire.name))
	}
	t.WriteString("  }\n")
}

// write writes an input or output.
func (p port) write(t *strings.Builder, kind, name string) {
	fmt.Fprintf(t, "%s {\n  name: %s\n", kind, quoted(name))
	if p.known {
		dims := make([]string, len(p.dims))
		for i, d := range p.dims {
			dims[i] = strconv.FormatInt(d, 10)
		}
		fmt.Fprintf(t, "  data_type: %s\n  dims: [ %s ]\n", p.dtype, strings.Join(dims, ", "))
	}
	t.WriteString("}\n")
}

// text returns the configuration of a model.
func (m *model) text() string {
	var t strings.Builder
	fmt.Fprintf(&t, "name: %s\n", quoted(m.name))
	if m.remote != "" {
		t.WriteString("backend: \"remote\"\n")
	}
	t.WriteString(m.configText)
	if m.sig != nil {
		for _, p := range m.sig.in {
			p.write(&t, "input", p.name)
		}
		for _, p := range m.sig.out {
			p.write(&t, "output", p.name)
		}
	}
	for _, p := range [][2]string{{"endpoint", m.remote}, {"remote_model", m.far}} {
		if p[1] != "" {
			t.WriteString(parameter(p[0], p[1]))
		}
	}
	return t.String()
}

// parameter returns a parameter of a configuration.
func parameter(key, value string) string {
	return fmt.Sprintf("parameters { key: %s value { string_value: %s } }\n", quoted(key), quoted(value))
}

// quoted returns a string of config.pbtxt.
func quoted(s string) string { return strconv.QuoteToASCII(s) }

// versionsOnly is a folder of which only the version folders are seen.
func versionsOnly(dir string) fs.FS { return versions{os.DirFS(dir)} }

type versions struct{ fs.FS }

// ReadDir lists the version folders at the top, and everything below them.
func (v versions) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(v.FS, name)
	if err != nil || name != "." {
		return list, err
	}
	kept := list[:0]
	for _, e := range list {
		if e.IsDir() && isVersion(e.Name()) {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

func isVersion(name string) bool {
	n, err := strconv.ParseInt(name, 10, 64)
	return err == nil && n > 0
}
