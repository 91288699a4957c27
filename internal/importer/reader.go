package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-server/tutti/core/config"
)

// maxNodes bounds the values of a file, aliases written out: a file of a few hundred bytes can stand for billions.
const maxNodes = 200_000

// maxDepth bounds how deep values are nested.
const maxDepth = 100

// reader reads values and collects errors with their places.
type reader struct {
	file string
	errs []error
}

// value is a part of a file.
type value struct {
	n    *yaml.Node
	path string
}

// field is a field of an object.
type field struct {
	name string
	value
}

// documents returns the documents of a file. JSON is read as YAML, of which it is a part, so that places are known in both.
func (r *reader) documents(data []byte) ([]value, error) {
	if t := bytes.TrimLeft(data, " \t\r\n\ufeff"); len(t) > 0 && t[0] == '{' {
		if err := validJSON(data); err != nil {
			return nil, fmt.Errorf("%s: %w", r.file, err)
		}
		data = bytes.ReplaceAll(data, []byte("\t"), []byte(" ")) // between values: a string of JSON has none
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var docs []value
	for {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s", r.file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		left := maxNodes
		if err := limit(&n, &left, 0); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", r.file, n.Line, err)
		}
		if len(n.Content) == 1 && resolve(n.Content[0]).Kind == yaml.MappingNode {
			docs = append(docs, value{n: resolve(n.Content[0])})
		} else if len(n.Content) == 1 && n.Content[0].Tag != "!!null" {
			return nil, fmt.Errorf("%s:%d: found %s, expected an object with the fields of a pipeline", r.file, n.Line, kindOf(resolve(n.Content[0])))
		}
	}
}

// validJSON returns the error of a text that is no JSON, with its line.
func validJSON(data []byte) error {
	var v any
	err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &v)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		return fmt.Errorf("line %d: the JSON is not valid: %w", line, err)
	}
	return err
}

// limit counts the values below a node, those of aliases each time.
func limit(n *yaml.Node, left *int, depth int) error {
	if *left--; *left < 0 {
		return fmt.Errorf("the file has more than %d values with its aliases written out", maxNodes)
	}
	if depth > maxDepth {
		return fmt.Errorf("values are nested more than %d deep", maxDepth)
	}
	if n.Kind == yaml.AliasNode {
		return limit(n.Alias, left, depth+1)
	}
	for _, c := range n.Content {
		if err := limit(c, left, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the node that an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return "'" + n.Value + "'"
}

// fail reports what is wrong with a value.
func (r *reader) fail(v value, format string, args ...any) {
	line := 0
	if v.n != nil {
		line = v.n.Line
	}
	at := ""
	if v.path != "" {
		at = v.path + ": "
	}
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %s%s", r.file, line, at, fmt.Sprintf(format, args...)))
}

// fields returns the fields of an object, in their order. A missing value has none.
func (r *reader) fields(v value) (list []field) {
	if v.n == nil {
		return nil
	}
	if v.n.Kind != yaml.MappingNode {
		r.fail(v, "found %s, expected an object", kindOf(v.n))
		return nil
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(v.n.Content); i += 2 {
		name := v.n.Content[i].Value
		if line, twice := seen[name]; twice {
			r.fail(value{v.n.Content[i], v.path}, "the field '%s' is there twice, first in line %d", name, line)
			continue
		}
		seen[name] = v.n.Content[i].Line
		list = append(list, field{name, value{resolve(v.n.Content[i+1]), join(v.path, name)}})
	}
	return list
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// object returns the fields of an object by name. Fields that are not known are errors with the nearest name.
func (r *reader) object(v value, known ...string) map[string]value {
	m := map[string]value{}
	for _, f := range r.fields(v) {
		if !slices.Contains(known, f.name) {
			r.fail(f.value, "there is no field '%s' here, expected one of %s.%s", f.name, strings.Join(known, ", "), config.DidYouMean(f.name, known))
			continue
		}
		m[f.name] = f.value
	}
	return m
}

// list returns the items of a list. A missing value has none.
func (r *reader) list(v value) (items []value) {
	if v.n == nil || v.n.Tag == "!!null" {
		return nil
	}
	if v.n.Kind != yaml.SequenceNode {
		r.fail(v, "found %s, expected a list", kindOf(v.n))
		return nil
	}
	for i, n := range v.n.Content {
		items = append(items, value{resolve(n), fmt.Sprintf("%s[%d]", v.path, i)})
	}
	return items
}

// text returns a string, and "" for a missing value.
func (r *reader) text(v value) string {
	if v.n == nil {
		return ""
	}
	if v.n.Kind != yaml.ScalarNode || v.n.Tag == "!!null" {
		r.fail(v, "found %s, expected a text", kindOf(v.n))
		return ""
	}
	return v.n.Value
}

// name returns a string that is not empty; of is the object that must have it.
func (r *reader) name(of, v value, what string) string {
	t := r.text(v)
	switch {
	case v.n == nil:
		r.fail(of, "the field '%s' is missing", what)
	case t == "":
		r.fail(v, "the name is empty")
	}
	return t
}

// folderName returns a string that can be the name of a model's folder.
func (r *reader) folderName(of, v value, what string) string {
	t := r.name(of, v, what)
	if strings.ContainsAny(t, "/\\\x00*,") || strings.HasPrefix(t, ".") {
		r.fail(v, "'%s' cannot be the name of a model: it would not be that of a folder", t)
		return ""
	}
	return t
}

// integer returns a number, and fallback for a missing value.
func (r *reader) integer(v value, fallback int64) int64 {
	if v.n == nil {
		return fallback
	}
	n, err := strconv.ParseInt(r.text(v), 10, 64)
	if err != nil {
		r.fail(v, "found %s, expected an integer", kindOf(v.n))
	}
	return n
}

// choice returns a text that is one of a few.
func (r *reader) choice(v value, fallback string, of ...string) string {
	if v.n == nil {
		return fallback
	}
	t := r.text(v)
	if !slices.Contains(of, t) {
		r.fail(v, "found '%s', expected one of %s.%s", t, strings.Join(of, ", "), config.DidYouMean(t, of))
	}
	return t
}
