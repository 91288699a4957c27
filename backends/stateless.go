package backends

import (
	"context"

	"github.com/tutti-server/tutti/core/config"
)

// Loader is a Backend without a runtime: a function that loads models. For example, Factory.New of the backend "square"
// returns Loader(load). It is safe for concurrent use if the function is.
type Loader func(ctx context.Context, s Settings) (Model, error)

// Load calls f.
func (f Loader) Load(ctx context.Context, s Settings) (Model, error) { return f(ctx, s) }

// Close does nothing.
func (Loader) Close() error { return nil }

// Ports is embedded by a Model that has nothing to free, and by its instances.
type Ports struct{ Sig *config.Signature }

// Signature returns p.Sig.
func (p Ports) Signature() *config.Signature { return p.Sig }

// Close does nothing.
func (Ports) Close() error { return nil }
