package steps

import (
	"bytes"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

// Labels are the lines of a labels file, each encoded as a BYTES element. Line 0 is the label
// of class 0. It is nil where no file is configured.
type Labels [][]byte

var noLabel = tensor.AppendBytes(nil, "")

// of returns the label of a class, an empty one if class is negative.
func (l Labels) of(class int) []byte {
	if class < 0 {
		return noLabel
	}
	return l[class]
}

// WriteLabels allocates output port with the labels of classes, which must be below len(l). A
// negative class has an empty label. It does nothing if l is nil.
func WriteLabels[T int32 | int64](b *backends.Batch, port int, shape tensor.Shape, l Labels, classes []T) error {
	if l == nil {
		return nil
	}
	n := 0
	for _, class := range classes {
		n += len(l.of(int(class)))
	}
	out, err := b.AllocBytes(port, shape, n)
	if err != nil {
		return err
	}
	dst := out.Bytes()
	for _, class := range classes {
		dst = dst[copy(dst, l.of(int(class))):]
	}
	return nil
}

// Labels reads the text file that parameter key names and returns its lines, each encoded as a
// BYTES element. It returns nil if the parameter is empty. The text must be UTF-8.
func (s *Settings) Labels(key string) (Labels, error) {
	name := s.Params[key]
	if name == "" {
		return nil, nil
	}
	path, err := s.Find(name)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the labels of model '%s': %w", s.Model, err)
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	labels := make(Labels, len(lines))
	for i, line := range lines {
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("labels file '%s' of model '%s', line %d: expected UTF-8, found % x", name, s.Model, i+1, line)
		}
		labels[i] = tensor.AppendBytes(nil, bytes.TrimSuffix(line, []byte("\r")))
	}
	return labels, nil
}
