package python

import (
	"time"

	"github.com/tutti-server/tutti/backends"
)

// SetLoadTime changes how long commands of a load may take, while no model is being loaded.
func SetLoadTime(b backends.Backend, d time.Duration) {
	b.(*backend).set.load = d //nolint:forcetypeassert // of this package
}
