package tune

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/lab"
	"github.com/tutti-server/tutti/internal/load"
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

// Variants returns the network of an ensemble with the versions and numbers of threads to measure.
func Variants(ctx context.Context, s Settings) (n *Network, err error) {
	over, err := lab.NewOverlay(s.Root)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, over.Remove()) }()
	s.Progress = func(string, float64) {}
	n, _, err = (&tuning{Settings: &s, cores: 1}).variants(ctx, over)
	return n, err
}

// VersionsText returns what the report says about versions in other precisions. All models count as equally slow.
func (n *Network) VersionsText() string {
	n.Samples = []Sample{{Sizes: make([]Size, len(n.Nodes))}}
	for i := range n.Models {
		for x := range n.Models[i].Costs {
			n.Models[i].Costs[x] = NewCost(1, 1)
		}
	}
	var b strings.Builder
	n.versionsText(&b)
	return b.String()
}

// SameRows compares the outputs of a request with those of a batch of its copies.
func SameRows(alone, batch []client.Tensor, times int) error { return sameRows(alone, batch, times) }

// Lowered returns the rate of a pilot after a run with a measured outcome; the rate itself if the server reached it.
func Lowered(n *Network, cores int, objective time.Duration, rate float64, measured Outcome) (float64, error) {
	t := &tuning{Settings: &Settings{Objective: objective}, cores: cores, network: n}
	p := load.Plan{Duration: time.Second, Rate: rate}
	late, err := t.overloaded(&p, &measured)
	if !late || err != nil {
		return rate, err
	}
	return calmed(rate, measured.Throughput), nil
}

// Least returns the least number of requests of a run.
func Least(s *Settings, rate float64) int { return s.least(rate) }

// Disturbed returns the error of a run of a network beside other processes.
func Disturbed(n *Network, err error, foreign float64) error {
	return (&tuning{network: n}).disturbed(err, foreign)
}
