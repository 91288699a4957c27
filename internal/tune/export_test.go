package tune

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/client"
)

// NewCost returns a cost with coefficients in ns: constant, per row, per element, and per element and length.
func NewCost(width float64, coefficients ...float64) Cost {
	c := Cost{Width: width}
	copy(c.coefficients[:], coefficients)
	return c
}

// Search searches the best settings of a network.
func Search(ctx context.Context, n *Network, cores int, objective time.Duration, rate float64) (*Report, error) {
	t := &tuning{Settings: &Settings{Ensemble: n.Ensemble, Objective: objective, Rate: rate, Progress: func(string, float64) {}}, cores: cores, network: n}
	return t.search(ctx)
}

// SameRows compares the outputs of a request with those of a batch of its copies.
func SameRows(alone, batch []client.Tensor, times int) error { return sameRows(alone, batch, times) }
