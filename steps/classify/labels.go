package classify

import (
	"bytes"
	"fmt"
	"os"
	"unicode/utf8"

	"tutti/backends"
	"tutti/core/tensor"
	"tutti/steps"
)

// readLabels returns the labels of the configured file as encoded BYTES elements,
// or nil when none is configured.
func readLabels(s *steps.Settings, k int) ([][]byte, error) {
	name := s.Params["labels_file"]
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
	labels := make([][]byte, len(lines))
	for i, line := range lines {
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("labels file '%s' of model '%s', line %d: expected UTF-8, found % x", name, s.Model, i+1, line)
		}
		labels[i] = tensor.AppendBytes(nil, bytes.TrimSuffix(line, []byte("\r")))
	}
	if len(labels) < k {
		return nil, fmt.Errorf("labels file '%s' of model '%s': expected at least k = %d lines, found %d", name, s.Model, k, len(labels))
	}
	return labels, nil
}

// noLabel is an empty BYTES element.
var noLabel = tensor.AppendBytes(nil, "")

// labelOf is the encoded label of a class, empty for -1.
func labelOf(labels [][]byte, class int32) []byte {
	if class < 0 {
		return noLabel
	}
	return labels[class]
}

// writeLabels makes an output of the labels of classes.
func writeLabels(b *backends.Batch, port int, shape tensor.Shape, labels [][]byte, classes []int32) error {
	n := 0
	for _, class := range classes {
		n += len(labelOf(labels, class))
	}
	out, err := b.AllocBytes(port, shape, n)
	if err != nil {
		return err
	}
	dst := out.Bytes()
	for _, class := range classes {
		dst = dst[copy(dst, labelOf(labels, class)):]
	}
	return nil
}
