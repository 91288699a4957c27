//go:build !cgo

// Package nvml measures no GPUs: this program was built without cgo.
package nvml

import (
	"errors"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// Name is the file name of the library.
const Name = "libnvidia-ml.so.1"

// Meter measures no GPUs.
type Meter struct{}

// Open fails.
func Open(string) (*Meter, error) {
	return nil, errors.New("GPUs are measured only by a program that was built with cgo")
}

// Read returns nil.
func (*Meter) Read() []telemetry.GPU { return nil }

// Close does nothing.
func (*Meter) Close() error { return nil }
