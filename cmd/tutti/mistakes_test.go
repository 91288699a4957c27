package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/goldentest"
)

// TestMistakes checks the output of tutti validate for repositories with one common mistake each. A file of
// testdata/mistakes starts with a sentence about the mistake, followed by the changes to the repository of fruit.txtar:
//
//	replace FILE `old` `new`
//	rename FILE FILE
//	remove FILE
//	cut FILE N              keeps the first N bytes
//	folder                  validates that folder of the repository
//	empty                   starts without any model
//	python                  needs a Python with numpy
//
// Further files are added to the repository; want is the expected output.
func TestMistakes(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	goldentest.Each(t, "testdata/mistakes/*.txtar", func(t *testing.T, file string) {
		t.Helper()
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := &mistake{t: t, root: t.TempDir()}
		m.make(a)
		if len(a.Files) == 0 || a.Files[len(a.Files)-1].Name != "want" {
			a.Files = append(a.Files, txtar.File{Name: "want"})
		}
		a.Files[len(a.Files)-1].Data = m.validate()
		goldentest.Check(t, file, txtar.Format(a))
	})
}

// mistake is a repository with one mistake.
type mistake struct {
	t    *testing.T
	root string
	look string // the validated folder, below root
}

// make writes the repository that the archive describes.
func (m *mistake) make(a *txtar.Archive) {
	m.t.Helper()
	var commands [][]string
	start := "testdata/fruit.txtar"
	for _, line := range strings.Split(string(a.Comment), "\n")[1:] {
		words := fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "empty":
			start = ""
		case words[0] == "python":
			if err := pythonCheck(); err != nil {
				m.t.Skip(err)
			}
		default:
			commands = append(commands, words)
		}
	}
	if start != "" {
		fruit, err := txtar.ParseFile(start)
		m.check(err)
		model, err := os.ReadFile(filepath.Join(examplesDir, "digits", "digits_cnn", "1", "model.onnx"))
		m.check(err)
		m.write(append(fruit.Files, txtar.File{Name: "fruit_net/1/model.onnx", Data: model}))
	}
	m.write(a.Files)
	for _, words := range commands {
		m.check(m.run(words))
	}
}

// write writes files into the repository.
func (m *mistake) write(files []txtar.File) {
	m.t.Helper()
	for _, f := range files {
		if f.Name == "want" {
			continue
		}
		m.check(os.MkdirAll(filepath.Dir(m.path(f.Name)), 0o750))
		m.check(os.WriteFile(m.path(f.Name), f.Data, 0o600))
	}
}

// fields splits a line at blanks. Words in quotes may contain blanks. For example, cut `a b` 3 has three fields.
func fields(line string) []string {
	var words []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		end := strings.IndexByte(line+" ", ' ')
		if line[0] == '`' {
			end = strings.IndexByte(line[1:], '`') + 2
		}
		words = append(words, strings.Trim(line[:end], "`"))
		line = line[end:]
	}
	return words
}

func (m *mistake) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *mistake) path(name string) string { return filepath.Join(m.root, filepath.FromSlash(name)) }

var errCommand = errors.New("there is no such command, or it lacks a word")

// run executes one command.
func (m *mistake) run(words []string) error {
	switch {
	case words[0] == "replace" && len(words) == 4:
		text, err := os.ReadFile(m.path(words[1]))
		if err == nil && !strings.Contains(string(text), words[2]) {
			err = fmt.Errorf("%s has no %q", words[1], words[2])
		}
		if err != nil {
			return err
		}
		return os.WriteFile(m.path(words[1]), []byte(strings.Replace(string(text), words[2], words[3], 1)), 0o600)
	case words[0] == "rename" && len(words) == 3:
		return os.Rename(m.path(words[1]), m.path(words[2]))
	case words[0] == "remove" && len(words) == 2:
		return os.RemoveAll(m.path(words[1]))
	case words[0] == "cut" && len(words) == 3:
		var n int64
		if _, err := fmt.Sscan(words[2], &n); err != nil {
			return err
		}
		return os.Truncate(m.path(words[1]), n)
	case words[0] == "folder" && len(words) == 2:
		m.look = words[1]
		return nil
	}
	return fmt.Errorf("%q: %w", words, errCommand)
}

// interpreter matches the path of this machine's Python in a suggested fix.
var interpreter = regexp.MustCompile(`run '\S+/python[0-9.]*`)

// validate returns the output of the command, with repo in place of the repository's folder and python in place of
// the interpreter's path.
func (m *mistake) validate() []byte {
	m.t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(m.t.Context(), []string{"tutti", "validate", m.path(m.look)}, &out, &errs, components())
	if code > 1 {
		m.t.Errorf("validate ended with %d", code)
	}
	text := bytes.ReplaceAll(append(out.Bytes(), errs.Bytes()...), []byte(m.root), []byte("repo"))
	return interpreter.ReplaceAll(text, []byte("run 'python"))
}
