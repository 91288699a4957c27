package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The formats of data that commands print. formatText and formatTable are the forms for people, of which a command has one.
const (
	formatTable = "table"
	formatText  = "text"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// output is the flag -o, which is also --format.
type output struct {
	format  string
	formats []string
}

// outputFlag declares -o and --format. The first of the formats is the default.
func outputFlag(fs *flag.FlagSet, formats ...string) *output {
	o := &output{formats[0], formats}
	fs.Var(o, "format", "output `format`: "+o.choice())
	fs.Var(o, "o", "--format")
	return o
}

// choice returns the formats as a sentence has them.
func (o *output) choice() string {
	last := len(o.formats) - 1
	return strings.TrimPrefix(strings.Join(o.formats[:last], ", ")+" or "+o.formats[last], " or ")
}

func (o *output) String() string { return o.format }

// Set selects a format. The two forms for people stand for each other.
func (o *output) Set(format string) error {
	other := map[string]string{formatTable: formatText, formatText: formatTable}[format]
	switch {
	case slices.Contains(o.formats, format):
		o.format = format
	case other != "" && slices.Contains(o.formats, other):
		o.format = other
	default:
		return fmt.Errorf("unknown format '%s', expected %s", format, o.choice())
	}
	return nil
}

// machine reports whether the output is for programs.
func (o *output) machine() bool { return o.format == formatJSON || o.format == formatYAML }

// print prints data in the format. people prints it in the other formats.
func (o *output) print(w io.Writer, data any, people func() error) error {
	switch o.format {
	case formatJSON:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(data)
	case formatYAML:
		return writeYAML(w, data)
	}
	return people()
}

// writeYAML prints data with the names and in the order that its JSON has.
func writeYAML(w io.Writer, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil { // which reads JSON too, and keeps its order
		return err
	}
	blockStyle(&node)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&node); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// blockStyle removes the style of JSON from a node, but for lists of plain values, which stay on a line.
func blockStyle(n *yaml.Node) {
	plain := n.Kind == yaml.SequenceNode
	for _, c := range n.Content {
		plain = plain && c.Kind == yaml.ScalarNode
		blockStyle(c)
	}
	if n.Style &^= yaml.FlowStyle | yaml.DoubleQuotedStyle; plain {
		n.Style |= yaml.FlowStyle
	}
}

// sink is the output of a command. It remembers the first error, which makes the command fail: not every part of a command
// looks at it.
type sink struct {
	w   io.Writer
	err error
}

// Write writes to the output.
func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}

// original returns the writer below a sink.
func original(w io.Writer) io.Writer {
	if s, ok := w.(*sink); ok {
		return s.w
	}
	return w
}
