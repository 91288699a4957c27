package options

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// maxConfig is the largest size in bytes of the file of --config.
const maxConfig = 1 << 20

// readConfig reads options from a YAML file: a mapping from names of flags to texts, numbers and booleans, or to
// lists of them for flags that may be repeated. For example: "http-port: 80".
func readConfig(flags []Flag, file string) (given, error) {
	data, err := readBounded(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read config file '%s': %w", file, err)
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return given{}, nil // the file has only comments
	case err != nil:
		return nil, fmt.Errorf("config file '%s': %w", file, err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("config file '%s' holds more than one document", file)
	}
	r := &configReader{flags: flags, file: file, given: given{}, lines: map[string]int{}}
	return r.given, r.mapping(doc.Content[0])
}

// readBounded reads a regular file of at most maxConfig bytes. It refuses a pipe, which may never end.
func readBounded(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("expected a file, found %s", info.Mode().Type())
	case info.Size() > maxConfig:
		return nil, fmt.Errorf("it has %d bytes, expected %d at most", info.Size(), maxConfig)
	}
	return os.ReadFile(file)
}

type configReader struct {
	flags []Flag
	file  string
	given given
	// lines has the line number of each flag in the file.
	lines map[string]int
}

func (r *configReader) errorf(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s: %s", r.place(n), fmt.Sprintf(format, args...))
}

func (r *configReader) place(n *yaml.Node) string {
	return fmt.Sprintf("config file '%s', line %d", r.file, n.Line)
}

func (r *configReader) mapping(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return r.errorf(n, "expected a mapping of option names to values")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if err := r.entry(n.Content[i], n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (r *configReader) entry(key, val *yaml.Node) error {
	f := findFlag(r.flags, key.Value)
	switch {
	case key.Kind != yaml.ScalarNode || f == nil:
		return r.errorf(key, "there is no option '%s'%s", key.Value, suggestion("", nearest(r.flags, key.Value)))
	case f.Name == flagConfig || f.Name == flagHelp:
		return r.errorf(key, "option '%s' belongs on the command line", f.Name)
	case r.lines[f.Name] > 0:
		return r.errorf(key, "option '%s' was given in line %d already", f.Name, r.lines[f.Name])
	}
	r.lines[f.Name] = key.Line
	if val.Kind != yaml.SequenceNode {
		return r.scalar(f, val)
	}
	if !f.Many {
		return r.errorf(val, "option '%s' takes one value, found a list", f.Name)
	}
	for _, item := range val.Content {
		if err := r.scalar(f, item); err != nil {
			return err
		}
	}
	return nil
}

func (r *configReader) scalar(f *Flag, n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return r.errorf(n, "option '%s' expects a text, a number or a boolean", f.Name)
	}
	r.given.add(value{flag: f, text: n.Value, from: r.place(n)})
	return nil
}
