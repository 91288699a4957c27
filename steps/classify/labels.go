package classify

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// labelsKey is the parameter that names the file of labels.
const labelsKey = "labels_file"

// readLabels returns the labels of the configured file as encoded BYTES elements,
// or nil when none is configured.
func readLabels(s *steps.Settings, k int) ([][]byte, error) {
	labels, err := s.Labels(labelsKey)
	if err == nil && labels != nil && len(labels) < k {
		err = config.WithFix(config.Errorf(config.StepParam, "parameters."+labelsKey, "labels file '%s' of model '%s': expected at least k = %d lines, found %d",
			s.Params[labelsKey], s.Model, k, len(labels)), "write a label on a line for every class, or choose fewer by the parameter k")
	}
	return labels, err
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
