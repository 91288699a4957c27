package steps

import (
	"bytes"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/tensor"
)

// Labels reads the text file that parameter key names and returns its lines, each encoded as a
// BYTES element. It returns nil if the parameter is empty. The text must be UTF-8.
func (s *Settings) Labels(key string) ([][]byte, error) {
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
	labels := make([][]byte, len(lines))
	for i, line := range lines {
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("labels file '%s' of model '%s', line %d: expected UTF-8, found % x", name, s.Model, i+1, line)
		}
		labels[i] = tensor.AppendBytes(nil, bytes.TrimSuffix(line, []byte("\r")))
	}
	return labels, nil
}
