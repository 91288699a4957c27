package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/steps"
)

// measuredFile holds the figures of make bench-backends.
const measuredFile = "../../bench/peers/backends/measured.json"

// measured holds the figures of one backend: medians in microseconds, ours and the framework's.
type measured struct {
	Version, Where, When string
	Cases                []struct {
		Ours, Theirs string
		CPU          [2]float64 `json:"cpu_us"`
		Clock        [2]float64 `json:"clock_us"`
	}
}

// ratio divides our CPU time of a case by the framework's.
func (m *measured) ratio(i int) float64 { return m.Cases[i].CPU[0] / m.Cases[i].CPU[1] }

const backendsHead = `<!-- page run by TestBackendsPage -->
# Backends

After this page you can choose the backend of a model, set its parameters, and fetch its library. Written by ` + "`make golden`" + ` from what each backend declares, and from the figures of ` + "`make bench-backends`" + `.

A model names its backend in ` + "`config.pbtxt`" + `, or a platform that stands for one. The runtime's library is opened when a
model first needs it; it is not part of the program. It is looked for at ` + "`--backend-config=NAME,library-path=PATH`" + `, at the
variable ` + "`TUTTI_NAME_LIB`" + ` (for Python, ` + "`python-runtime`" + ` and ` + "`TUTTI_PYTHON`" + `), in ` + "`.runtime`" + ` beside the program or its folder or
in the working directory, in the user's cache, and where the system keeps libraries. Where it is not, that model is
UNAVAILABLE with the command that fetches it, and the others serve. ` + "`tutti runtime list`" + ` and ` + "`tutti doctor`" + ` print what
is there.

The cost of a call is measured with the two-input model of ` + "`examples/backends`" + `, one row and one thread. This model computes next to nothing,
so the figures are the overhead of the backend, beside that of the framework's own call in Python in the same run. Other programs used the machine:
that shows in the wall times, and hardly in the CPU times.
`

// TestBackendsPage checks that docs/backends.md is up to date.
func TestBackendsPage(t *testing.T) {
	t.Parallel()
	figures := map[string]measured{}
	text, err := os.ReadFile(measuredFile)
	if err == nil {
		err = json.Unmarshal(text, &figures)
	}
	if err != nil {
		t.Fatal(err)
	}
	folders := exampleFolders(t)
	b := bytes.NewBufferString(backendsHead)
	b.WriteString("\n| backend | platforms | default file | version | how to get it | CPU of a call, ours : Python |\n|---|---|---|---|---|---|\n")
	var others []backends.Factory
	var sections bytes.Buffer
	described := map[string]string{} // the backend of each text
	for _, f := range components().Backends(&steps.Registry{}) {
		folder := folders[f.Name]
		if !f.Native {
			others = append(others, f)
			continue
		}
		m := figures[folder]
		writeBackendRow(b, &f, &m)
		if twin := described[f.Guide.Doc]; twin != "" {
			fmt.Fprintf(&sections, "\n## %s\n\n[`%[2]s`](#%[2]s) under another name: the default file is %[3]s, and limits, settings and parameters are the same.\n", f.Name, twin, ticked(f.DefaultFile))
			continue
		}
		described[f.Guide.Doc] = f.Name
		writeBackend(&sections, &f, &m, folder)
	}
	b.Write(sections.Bytes())
	b.WriteString("\n## Without a runtime\n\nThese are part of the program.\n\n| backend | models |\n|---|---|\n")
	for _, f := range others {
		if f.Guide.Doc == "" {
			t.Errorf("backend '%s' has no guide", f.Name)
		}
		if len(f.Guide.Params) > 0 {
			fmt.Fprintf(b, "| [`%[1]s`](#%[1]s) | %s. |\n", f.Name, strings.Split(f.Guide.Doc, ". ")[0])
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", f.Name, f.Guide.Doc)
	}
	for _, f := range others {
		if len(f.Guide.Params) > 0 {
			m := figures[folders[f.Name]]
			var section bytes.Buffer
			writeBackend(&section, &f, &m, folders[f.Name])
			b.Write(bytes.TrimRight(section.Bytes(), "\n"))
			b.WriteString("\n")
		}
	}
	goldentest.Check(t, docsDir+"backends.md", b.Bytes())
}

// exampleFolders returns the folder in examples/backends of each backend that has one.
func exampleFolders(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(backendsDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]string{}
	for _, root := range found {
		for _, f := range factoriesOf(t, root) {
			folders[f.Name] = filepath.Base(root)
		}
	}
	return folders
}

// ticked puts each name into backticks.
func ticked(names ...string) string {
	var list []string
	for _, n := range names {
		if n != "" {
			list = append(list, "`"+n+"`")
		}
	}
	return strings.Join(list, ", ")
}

func writeBackendRow(b *bytes.Buffer, f *backends.Factory, m *measured) {
	version, how := "", ""
	if i := slices.IndexFunc(runtimes.List(), func(r runtimes.Runtime) bool { return r.Name == f.Name }); i >= 0 {
		r := runtimes.List()[i]
		var size int64
		for _, a := range r.Releases[0].Archives {
			size += a.Size
		}
		version = r.Title + " " + r.Releases[0].Version
		if r.Releases[0].Python != "" { // one release for each version of Python
			version = r.Title + ", for Python 3.9 to 3.14"
		}
		how = fmt.Sprintf("`tutti runtime fetch %s` (%d MB)", r.Name, (size+500_000)/1_000_000)
	}
	cost := "not measured"
	if len(m.Cases) > 0 {
		cost = fmt.Sprintf("%.1f : %.1f µs", m.Cases[0].CPU[0], m.Cases[0].CPU[1])
	}
	fmt.Fprintf(b, "| [`%s`](#%s) | %s | %s | %s | %s | %s |\n", f.Name, f.Name, ticked(f.Platforms...), ticked(f.DefaultFile), version, how, cost)
}

// writeBackend writes a backend's section.
func writeBackend(b *bytes.Buffer, f *backends.Factory, m *measured, folder string) {
	fmt.Fprintf(b, "\n## %s\n\n", f.Name)
	if f.Guide.Doc != "" {
		fmt.Fprintf(b, "%s\n\n", f.Guide.Doc)
	}
	if f.Guide.Limits != "" {
		fmt.Fprintf(b, "Limits: %s\n\n", f.Guide.Limits)
	}
	if folder != "" {
		fmt.Fprintf(b, "Example: `examples/backends/%s`, compared with the framework's own numbers over each protocol.\n\n", folder)
	}
	if len(f.ConfigKeys) > 0 {
		fmt.Fprintf(b, "Settings of `--backend-config=%s,KEY=VALUE`: %s.\n\n", f.Name, ticked(f.ConfigKeys...))
	}
	if len(f.Guide.Params) > 0 {
		b.WriteString("| parameter | meaning |\n|---|---|\n")
		for _, p := range f.Guide.Params {
			fmt.Fprintf(b, "| %s | %s |\n", ticked(strings.Split(p.Key, ", ")...), p.Doc)
		}
		b.WriteString("\n")
	}
	if len(m.Cases) == 0 {
		return
	}
	fmt.Fprintf(b, "Tried with %s of Python's on %s, %s:\n\n| model | Python's call | CPU per call, µs | time per call, µs | ratio |\n|---|---|---|---|---|\n", m.Version, m.Where, m.When)
	for i, c := range m.Cases {
		how := strings.TrimPrefix(strings.TrimPrefix(c.Theirs, c.Ours), ", ")
		if how == "" {
			how = "arrays in and out"
		}
		fmt.Fprintf(b, "| `%s` | %s | %.1f : %.1f | %.1f : %.1f | %.2f |\n", c.Ours, how, c.CPU[0], c.CPU[1], c.Clock[0], c.Clock[1], m.ratio(i))
	}
}
