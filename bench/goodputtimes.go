package main

import (
	"context"
	"fmt"
	"time"

	tutticlient "github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/scheduler/sim"
)

// batchTimes are the batches that the models of a graph have executed, by node. Their times are those in the model: what the server does before and after
// is not in them, because a bound by them must not excuse it.
type batchTimes [][]infer.BatchStats

// timesOf reads the statistics of a graph's models.
func timesOf(c tutticlient.Client, graph *sim.Graph) (t batchTimes, err error) {
	for i := range graph.Nodes {
		list, err := c.Statistics(context.Background(), graph.Nodes[i].Name)
		if err != nil {
			return nil, err
		}
		if len(list) != 1 {
			return nil, fmt.Errorf("model '%s': statistics of %d versions, expected one", graph.Nodes[i].Name, len(list))
		}
		t = append(t, list[0].Batches)
	}
	return t, nil
}

// since returns the batches of t that were executed after before.
func (t batchTimes) since(before batchTimes) batchTimes {
	later := make(batchTimes, len(t))
	for i := range t {
		known := map[uint64]infer.Duration{}
		for _, b := range before[i] {
			known[b.BatchSize] = b.ComputeInfer
		}
		for _, b := range t[i] {
			was := known[b.BatchSize]
			b.ComputeInfer.Count -= was.Count
			b.ComputeInfer.Ns -= was.Ns
			if b.ComputeInfer.Count > 0 {
				later[i] = append(later[i], b)
			}
		}
	}
	return later
}

// apply returns the graph with the times of the batches: by least squares, weighted with their number, and without parts below zero.
func (t batchTimes) apply(graph *sim.Graph) (sim.Graph, error) {
	timed := sim.Graph{Nodes: append([]sim.Node(nil), graph.Nodes...)}
	for i := range timed.Nodes {
		n := &timed.Nodes[i]
		var count, rows, ns, square, mix float64
		for _, b := range t[i] {
			k, size, took := float64(b.ComputeInfer.Count), float64(b.BatchSize), float64(b.ComputeInfer.Ns)
			count, rows, ns, square, mix = count+k, rows+k*size, ns+took, square+k*size*size, mix+took*size
		}
		if count == 0 {
			return timed, fmt.Errorf("model '%s' has executed no batch", n.Name)
		}
		rows, ns = rows/count, ns/count
		perRow := 0.0
		if variance := square/count - rows*rows; variance > 1e-9 {
			perRow = min(max((mix/count-rows*ns)/variance, 0), ns/rows)
		}
		n.Fixed, n.PerRow = time.Duration(ns-perRow*rows), max(1, time.Duration(perRow))
	}
	return timed, nil
}

// wasted returns what part of the models' time was for requests that were not in time, of which so many were.
func (t batchTimes) wasted(inTime float64) float64 {
	all, useful := 0.0, 0.0
	for i := range t {
		rows, ns := 0.0, 0.0
		for _, b := range t[i] {
			rows, ns = rows+float64(b.BatchSize*b.ComputeInfer.Count), ns+float64(b.ComputeInfer.Ns)
		}
		all += ns
		if rows > 0 {
			useful += ns * min(inTime/rows, 1)
		}
	}
	return 1 - useful/max(all, 1)
}
