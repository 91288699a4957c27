package cli

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tutti-server/tutti"
)

// TestOutputs checks that each command prints JSON and YAML besides its form for people, or has a reason not to.
func TestOutputs(t *testing.T) {
	without := map[string]string{
		"completion": "the script is for a shell",
		"demo":       "it shows the server to a person; scripts start serve and infer",
		"serve":      "its output is the log: --log-format",
		"worker":     "its output is the log: --log-format",
	}
	p := &program{name: commandName, stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	walk(Tree(tutti.Components{}), func(c *cobra.Command) {
		name := c.Annotations[rowName]
		if name == "" || c.HasSubCommands() {
			return
		}
		_, excepted := without[name]
		delete(without, name)
		if excepted && (name == "serve" || name == "worker") {
			return // their flags are options of internal/options
		}
		f := p.describe(find(name)).Lookup("o")
		if (f != nil) == excepted {
			t.Errorf("'%s': -o is declared: %v, expected %v", name, f != nil, !excepted)
		}
		if f == nil {
			return
		}
		for _, format := range []string{formatJSON, formatYAML, formatTable, formatText} {
			if err := f.Value.Set(format); err != nil {
				t.Errorf("'%s -o %s': %v", name, format, err)
			}
		}
		if f.Value.Set("xml") == nil {
			t.Errorf("'%s -o xml' is not refused", name)
		}
	})
	for name := range without {
		t.Errorf("'%s' is no command", name)
	}
}
