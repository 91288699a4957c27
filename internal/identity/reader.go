package identity

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-server/tutti/core/config"
)

// maxFile bounds the auth file and each file with a token.
const maxFile = 1 << 20

// reader reads the auth file. Its errors name the line.
type reader struct {
	file   string
	getenv func(string) string
	spaces func(model string, control bool) []string // see Settings.Namespaces
	files  []string                                  // that were read
}

func (r *reader) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("auth file '%s', line %d: %w", r.file, n.Line, fmt.Errorf(format, args...))
}

// readSecret reads a file that decides who may use the server. Nobody but its owner may be able to write it.
func (r *reader) readSecret(file string) ([]byte, error) {
	r.files = append(r.files, file)
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("'%s' is no regular file", file)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("'%s' has mode %#o: others than its owner can write it, and so decide who may use the server; expected chmod go-w", file, info.Mode().Perm())
	case info.Size() > maxFile:
		return nil, fmt.Errorf("'%s' has %d bytes, expected %d at most", file, info.Size(), maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// document returns the root of the file.
func (r *reader) document() (*yaml.Node, error) {
	data, err := r.readSecret(r.file)
	if err != nil {
		return nil, fmt.Errorf("auth file: %w", err)
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("auth file '%s' is empty: nobody could use the server; expected tokens, issuers, certificates or anonymous, and roles", r.file)
	case err != nil:
		return nil, fmt.Errorf("auth file '%s': %w", r.file, err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("auth file '%s' holds more than one document", r.file)
	}
	return doc.Content[0], nil
}

// fields reads a mapping: set has a function for each key.
func (r *reader) fields(n *yaml.Node, what string, set map[string]func(*yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return r.errorf(n, "%s: expected a mapping of keys to values", what)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		f := set[key.Value]
		switch {
		case f == nil:
			return r.unknown(key, what, set)
		case seen[key.Value] > 0:
			return r.errorf(key, "%s: key '%s' is in line %d already", what, key.Value, seen[key.Value])
		}
		seen[key.Value] = key.Line
		if err := f(value); err != nil {
			return err
		}
	}
	return nil
}

// typo is the largest edit distance at which a name counts as misspelled.
const typo = 2

func (r *reader) unknown(key *yaml.Node, what string, set map[string]func(*yaml.Node) error) error {
	var names []string
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	meant := ""
	if near := config.Nearest(key.Value, names, typo); near != "" {
		meant = "; did you mean '" + near + "'?"
	}
	return r.errorf(key, "%s: unknown key '%s', expected one of %s%s", what, key.Value, strings.Join(names, ", "), meant)
}

// list reads a list; a single value stands for a list of it.
func (*reader) list(n *yaml.Node, each func(*yaml.Node) error) error {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	for _, item := range items {
		if err := each(item); err != nil {
			return err
		}
	}
	return nil
}

// text returns a function that reads a text that is not empty.
func (r *reader) text(to *string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
			return r.errorf(n, "expected a text")
		}
		*to = n.Value
		return nil
	}
}

// texts returns a function that reads a list of texts.
func (r *reader) texts(to *[]string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		return r.list(n, func(n *yaml.Node) error {
			var s string
			if err := r.text(&s)(n); err != nil {
				return err
			}
			*to = append(*to, s)
			return nil
		})
	}
}

// stamps are the states of files.
type stamps []stamp

type stamp struct {
	time time.Time
	size int64
	mode os.FileMode
}

func stampsOf(files []string) (list stamps) {
	for _, name := range files {
		var s stamp
		if info, err := os.Stat(name); err == nil {
			s = stamp{info.ModTime(), info.Size(), info.Mode()}
		}
		list = append(list, s)
	}
	return list
}

func (s stamps) equal(t stamps) bool {
	return slices.EqualFunc(s, t, func(a, b stamp) bool { return a.size == b.size && a.mode == b.mode && a.time.Equal(b.time) })
}
