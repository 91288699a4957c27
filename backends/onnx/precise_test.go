//go:build cgo

package onnx

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/internal/precision"
)

// Precise checks the declared precision of a version as on a machine with this processor. It returns how many session options it added.
func Precise(s *backends.Settings, p precision.Processor, arch string) (int, error) {
	m := &model{path: s.File(modelFile), places: bind.Places(s.Config)}
	set, err := modelSettings(s.Config, 1, start{})
	if err != nil {
		return 0, err
	}
	before := len(set.entries)
	err = m.precise(s, &set, p, arch)
	return len(set.entries) - before, err
}
