// Package lint finds the problems of model repositories: in configurations, in folders, in the compiled ensembles,
// and in model files if their runtimes are on this machine. A report is text, JSON, or SARIF for code scanners.
package lint

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Settings select the repositories and how to read them.
type Settings struct {
	// Repository was opened over Roots with ConfigName; the report contains its failures.
	Repository *repository.Repository
	// Roots are the folders that hold models.
	Roots []string
	// Backends are the backends that models may name.
	Backends *backends.Registry
	// ConfigName, unless empty, selects configs/NAME.pbtxt in the folders of models that have this file.
	ConfigName string
	// Options are the options for reading configurations.
	Options config.Options

	_ struct{}
}

// Report lists the problems of repositories.
type Report struct {
	// Models is the number of models.
	Models int `json:"models"`
	// Diagnostics are sorted by model. Never nil.
	Diagnostics []config.Diagnostic `json:"diagnostics"`
}

// Examine checks every model.
func Examine(s Settings) *Report {
	e := &examiner{
		Settings: s, configs: map[string]*modelconfig.ModelConfig{}, places: map[string]*config.Positions{}, list: []config.Diagnostic{},
	}
	names := s.Repository.Models()
	e.run(names)
	return &Report{Models: len(names), Diagnostics: e.list}
}

// The formats of a report.
const (
	Text  = "text"
	JSON  = "json"
	SARIF = "sarif"
)

// Write writes the report in one of the formats. version is the program's version.
func (r *Report) Write(w io.Writer, format, version string) error {
	switch format {
	case JSON:
		return writeJSON(w, r)
	case SARIF:
		return writeJSON(w, newSARIF(r.Diagnostics, version))
	}
	return r.writeText(w)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (r *Report) writeText(w io.Writer) error {
	var b strings.Builder
	counts := map[config.Severity]int{}
	for i := range r.Diagnostics {
		counts[r.Diagnostics[i].Severity]++
		b.WriteString(r.Diagnostics[i].String() + "\n")
	}
	fmt.Fprintf(&b, "%s in %s\n", strings.Join([]string{
		plural(counts[config.Fault], "error"), plural(counts[config.Warning], "warning"), plural(counts[config.Notice], "notice"),
	}, ", "), plural(r.Models, "model"))
	_, err := io.WriteString(w, b.String())
	return err
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
