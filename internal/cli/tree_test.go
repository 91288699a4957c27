package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/internal/options"
)

// walk calls f for every command below c.
func walk(c *cobra.Command, f func(c *cobra.Command)) {
	for _, sub := range c.Commands() {
		f(sub)
		walk(sub, f)
	}
}

// words splits a command line as a shell does, up to a redirection.
func words(t *testing.T, line string) (list []string) {
	t.Helper()
	word, quoted, open := "", false, false
	for _, r := range line + " " {
		switch {
		case r == '\'':
			quoted, open = !quoted, true
		case r == ' ' && !quoted:
			if word == ">" || word == "|" {
				return list
			}
			if word != "" || open {
				list = append(list, word)
			}
			word, open = "", false
		default:
			word += string(r)
		}
	}
	if quoted {
		t.Fatalf("a quote of %q is open", line)
	}
	return list
}

// isConfig reports whether an argument belongs to --config, whose file no test has.
func isConfig(arg string) bool { return arg == "--config" || arg == "tutti.yaml" }

// TestExamples checks that each command has examples, whose command exists and has their flags.
func TestExamples(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if err := (&contextFile{Contexts: map[string]*savedContext{"prod": {URL: "http://127.0.0.1:8000"}}}).write(); err != nil {
		t.Fatal(err)
	}
	p := &program{name: commandName, stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	walk(Tree(tutti.Components{}), func(c *cobra.Command) {
		row := find(c.Annotations[rowName])
		if c.Annotations[rowName] == "" {
			return
		}
		if c.Example == "" {
			t.Errorf("'%s' has no example", c.CommandPath())
		}
		for _, example := range row.examples {
			args := words(t, example)
			if len(args) == 0 || args[0] != commandName {
				t.Errorf("'%s' has the example %q, expected a call of tutti", c.CommandPath(), example)
				continue
			}
			found, _, err := c.Root().Find(args[1:])
			if err != nil || found.Annotations[rowName] == "" || !c.HasSubCommands() && found != c {
				t.Errorf("the example %q of '%s' is one of '%s' (%v)", example, c.CommandPath(), found.CommandPath(), err)
				continue
			}
			full := found.Annotations[rowName]
			rest := args[1+len(strings.Fields(full)):]
			if full == "serve" || full == "worker" {
				if _, err := options.Parse(slices.DeleteFunc(rest, isConfig), nil); err != nil {
					t.Errorf("the example %q: %v", example, err)
				}
				continue
			}
			rest, behind, _ := beforeServe(rest)
			if _, err := options.Parse(slices.DeleteFunc(behind, isConfig), nil); err != nil {
				t.Errorf("the example %q: %v", example, err)
			}
			if _, err := parse(p.describe(find(full)), rest); err != nil {
				t.Errorf("the example %q: %v", example, err)
			}
		}
	})
}
