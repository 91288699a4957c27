package sim

import (
	"errors"
	"fmt"
	"time"
)

// Node is a step of a graph: a model with its own queue.
type Node struct {
	Name string
	// After are the positions of the nodes whose outputs the node reads; all of them lie before it.
	After []int
	// A batch of n rows takes Fixed + n*PerRow.
	Fixed, PerRow time.Duration
	MaxBatch      int
	// Instances is how many batches execute at a time, 0 for 1.
	Instances int
	// Device is the number of the device that executes the node's batches, one at a time, together with those of the other nodes of that
	// number. 0 is a device of the node alone, for each instance.
	Device int
	// Share is the part of the requests that execute the node, as behind a condition; the others skip it. 0 is all.
	Share float64
}

// time returns how long a batch takes.
func (n *Node) time(rows int) float64 { return float64(n.Fixed) + float64(rows)*float64(n.PerRow) }

// share is Share, with its default.
func (n *Node) share() float64 {
	if n.Share <= 0 {
		return 1
	}
	return min(n.Share, 1)
}

// Graph is a graph of nodes, each behind those that it reads.
type Graph struct {
	Nodes []Node
}

// Check returns an error that names what is wrong with a graph.
func (g *Graph) Check() error {
	if len(g.Nodes) == 0 {
		return errors.New("the graph has no step")
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch {
		case n.MaxBatch < 1:
			return fmt.Errorf("step '%s': the largest batch is %d rows, expected at least 1", n.Name, n.MaxBatch)
		case n.Fixed < 0 || n.PerRow < 0 || n.Fixed+n.PerRow == 0:
			return fmt.Errorf("step '%s': a batch takes %v and %v a row, expected times above 0", n.Name, n.Fixed, n.PerRow)
		case n.Instances < 0:
			return fmt.Errorf("step '%s': %d instances, expected at least 1", n.Name, n.Instances)
		}
		for _, a := range n.After {
			if a < 0 || a >= i {
				return fmt.Errorf("step '%s' reads step %d, expected one before it", n.Name, a)
			}
		}
	}
	return nil
}
