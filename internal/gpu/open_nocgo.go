//go:build !cgo

package gpu

import (
	"log/slog"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Devices are the open GPUs: none in a build without cgo.
type Devices struct{}

// Open returns an error: the driver is called through cgo.
func Open(Settings) (*Devices, error) {
	return nil, status.Reasonf(status.RuntimeMissing, "this binary was built with CGO_ENABLED=0 and uses no GPU")
}

// Version returns "".
func (*Devices) Version() string { return "" }

// List returns nil.
func (*Devices) List() []Info { return nil }

// Accelerators returns nil.
func (*Devices) Accelerators() []tensor.Accelerator { return nil }

// Pinned returns nil.
func (*Devices) Pinned(tensor.Allocator) tensor.Allocator { return nil }

// Watch does nothing.
func (*Devices) Watch(*slog.Logger) {}

// Uses returns nil.
func (*Devices) Uses() []Use { return nil }

// Memory returns an error.
func (*Devices) Memory(number int) (used, total int64, err error) {
	return 0, 0, status.Errorf(status.NotFound, "there is no GPU %d", number)
}

// Started returns the zero time.
func (*Devices) Started() time.Time { return time.Time{} }

// Close does nothing.
func (*Devices) Close() error { return nil }
