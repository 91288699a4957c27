package classify

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/steps"
)

// labelsKey is the parameter that names the file of labels.
const labelsKey = "labels_file"

// readLabels returns the labels of the configured file, nil if there is none. The file must have at least
// k lines.
func readLabels(s *steps.Settings, k int) (steps.Labels, error) {
	labels, err := s.Labels(labelsKey)
	if err == nil && labels != nil && len(labels) < k {
		err = config.WithFix(config.Errorf(config.StepParam, "parameters."+labelsKey, "labels file '%s' of model '%s': expected at least k = %d lines, found %d",
			s.Params[labelsKey], s.Model, k, len(labels)), "write a label on a line for every class, or choose fewer by the parameter k")
	}
	return labels, err
}
