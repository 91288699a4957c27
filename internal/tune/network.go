package tune

import (
	"time"

	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// Network is an ensemble as a queueing network: nodes that requests visit, and models with one queue each.
type Network struct {
	Ensemble string
	Models   []Model
	Nodes    []Node
	// Samples are the requests of the traffic. Request i is a copy of sample i modulo their number.
	Samples []Sample
}

// Model is a model of the ensemble. Several nodes may share it.
type Model struct {
	Name   string
	Config *modelconfig.ModelConfig // completed, as it is now
	Padded bool                     // rows of different lengths share a batch
	// Inline marks a model without a queue: requests execute it on their own goroutine, in any number at a time.
	Inline bool
	// Costs are the measured costs. A model whose threads cannot be set has them for 0 threads.
	Costs map[Execution]Cost
	// Current are the settings as they are now; Threads is 0 where they cannot be set.
	Current Setting
	// Largest is the largest max_batch_size to try. It is more than the current one where the model's file takes larger
	// batches, and at most the largest batch that was measured.
	Largest int32
	// Fixed is why a larger max_batch_size was tried in vain. Empty where none was tried, or one was found.
	Fixed string
	// Versions are the versions in other precisions. Those that were refused have no costs.
	Versions []Alternative
	// Offer is the command that makes a version in another precision, where there is none.
	Offer string
}

// Execution is how a model executes.
type Execution struct {
	Version Version
	Threads int
}

// Version is a version of a model to serve in place of the current one. The zero value is the current one.
type Version struct {
	Number    int64
	Precision precision.Precision
}

// Alternative is a version that may be served in place of the current one.
type Alternative struct {
	Version
	// Refused is why it was not tried. Empty if it was.
	Refused string
}

// Node is one step of the ensemble.
type Node struct {
	Name  string
	Model int   // in Network.Models
	After []int // the nodes whose outputs it reads, each once
}

// Sample is one request of the traffic: its size at each node.
type Sample struct{ Sizes []Size }

// Size is what a batching policy and a Cost see of a request at a node.
type Size struct {
	Rows, Length int32  // Length is the extent of the padded dimension, 0 without padding
	Elements     int64  // of all inputs
	Shape        uint64 // equal for requests that may share a batch
}

// Setting is what tune can change of one model.
type Setting struct {
	Version   Version
	MaxBatch  int32
	Batching  bool    // dynamic_batching
	Preferred []int32 // preferred_batch_size
	Delay     time.Duration
	Instances int
	Threads   int // within one execution; 0 where they cannot be set
}

// rules returns the batching rules of a model with a setting, as the server would read them. ok is false for a model
// that executes one request at a time.
func (m *Model) rules(s *Setting) (r dynamic.Rules, ok bool, err error) {
	if !s.Batching {
		return r, false, nil
	}
	cfg := s.apply(m.Config)
	r, err = dynamic.RulesOf(cfg, m.Padded)
	return r, true, err
}

// cost returns the cost of a model with a setting: with its number of threads, or with the nearest number that was measured.
func (m *Model) cost(s *Setting) *Cost {
	threads := s.Threads
	if c, ok := m.Costs[Execution{s.Version, threads}]; ok {
		return &c
	}
	best, found := Cost{}, -1
	for x, c := range m.Costs {
		n := x.Threads
		if x.Version != s.Version {
			continue
		}
		if found < 0 || abs(n-threads) < abs(found-threads) || abs(n-threads) == abs(found-threads) && n < found {
			best, found = c, n
		}
	}
	return &best
}

func abs(n int) int { return max(n, -n) }
