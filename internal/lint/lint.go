// Package lint tells every problem of model repositories at once: what is wrong with the configurations, the folders, the
// ensembles that are compiled of them, and the models as far as their runtimes are here. A report is a text, JSON, or SARIF
// for code scanners.
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

// Settings is what to look at, and how.
type Settings struct {
	// Repository was opened over Roots with ConfigName; its failures are told.
	Repository *repository.Repository
	// Roots are the folders that hold models.
	Roots []string
	// Backends are those that models may name.
	Backends *backends.Registry
	// ConfigName, when not empty, picks configs/NAME.pbtxt of a model that has it.
	ConfigName string
	// Options is how configurations are read.
	Options config.Options

	_ struct{}
}

// Report is what there is to tell.
type Report struct {
	// Models is how many there are.
	Models int `json:"models"`
	// Diagnostics are by model, never nil.
	Diagnostics []config.Diagnostic `json:"diagnostics"`
}

// Examine looks at every model.
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

// Write prints the report in one of the formats. version is the program's own.
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
