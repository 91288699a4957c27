package config

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// maxLabels bounds the lines of a label file. The largest public class lists have 21,843.
const maxLabels = 1 << 20

// ReadLabels reads the label files that cfg names for outputs, in the model's folder dir, into sig. A label file
// has one label per line.
func ReadLabels(cfg *modelconfig.ModelConfig, dir string, sig *Signature) error {
	for _, out := range cfg.GetOutput() {
		at := sig.Output(out.GetName())
		if out.GetLabelFilename() == "" || at < 0 {
			continue
		}
		labels, err := readLabels(dir, out.GetLabelFilename())
		if err != nil {
			return Errorf(LabelFile, "output", "label file '%s' for output '%s' in model '%s' cannot be read: %w",
				out.GetLabelFilename(), out.GetName(), cfg.GetName(), err)
		}
		sig.Outputs[at].Labels = labels
	}
	return nil
}

// readLabels reads a file of the folder dir. The name must not lead out of the folder. A symbolic link may, as in
// Triton.
func readLabels(dir, name string) ([]string, error) {
	if !filepath.IsLocal(name) {
		return nil, errors.New("it is outside the model's folder")
	}
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("expected a file, found %s", info.Mode())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var labels []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if len(labels) == maxLabels {
			return nil, status.Errorf(status.InvalidArg, "more than %d lines", maxLabels)
		}
		labels = append(labels, strings.TrimRight(lines.Text(), " \t\r"))
	}
	return labels, lines.Err()
}
