package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/tutti-server/tutti/bench/proc"
	"github.com/tutti-server/tutti/internal/load"
)

const (
	// routerAddress is where KServe's router listens: it has no option for the port.
	routerAddress = "127.0.0.1:8080"
	routerReady   = "http://" + routerAddress + "/readyz"
	routerCalls   = 4000
)

// routerGraph is an InferenceGraph of the models left and right, and the ensemble that replaces it.
type routerGraph struct {
	name, kind string // kind is the type of the root node
	ensemble   string // its steps
	outputs    string
	responses  int // outputs of a request
}

// routerGraphs lists what is compared. The second step of the chain gets the request again and not the first one's response: the router passes
// bodies as they are, and v2 outputs are no v2 inputs. Both models pass their input on, so that the outputs are the same.
var routerGraphs = []routerGraph{
	{
		"two models in a row", "Sequence", `
step { model_name: "left" input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "between" } }
step { model_name: "right" input_map { key: "INPUT0" value: "between" } output_map { key: "OUTPUT0" value: "RIGHT" } }`,
		`{ name: "RIGHT" data_type: TYPE_FP32 dims: [ -1 ] }`, 1,
	},
	{
		"two models side by side", "Ensemble", `
step { model_name: "left" input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "LEFT" } }
step { model_name: "right" input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "RIGHT" } }`,
		`{ name: "LEFT" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "RIGHT" data_type: TYPE_FP32 dims: [ -1 ] }`, 2,
	},
}

// kserve compares KServe's router over two models of our server with one ensemble of the same models.
func (b *bench) kserve() error {
	if _, err := os.Stat(b.routerPath); err != nil {
		return fmt.Errorf("%w: scripts/prepare-peers kserve builds KServe's router", err)
	}
	var failures []error
	for i := range routerGraphs {
		failures = append(failures, b.graph(&routerGraphs[i]))
	}
	return errors.Join(append(failures, b.table.Flush())...)
}

// graph measures one graph.
func (b *bench) graph(g *routerGraph) (err error) {
	root, err := os.MkdirTemp("", "bench-router")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	const ports = `input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }`
	const model = `backend: "identity" ` + ports + ` output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }`
	whole := `platform: "ensemble" ` + ports + ` output [ ` + g.outputs + ` ] ensemble_scheduling {` + g.ensemble + ` }`
	if err := errors.Join(taxWrite(root, "left", model), taxWrite(root, "right", model), taxWrite(root, "whole", whole)); err != nil {
		return err
	}
	server, err := b.serve(root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	router, err := b.startRouter(g.spec(server.HTTP))
	if err != nil {
		return err
	}
	defer router.stop()
	if err := errors.Join(g.check(server.HTTP), g.check(routerAddress)); err != nil {
		return err
	}
	var failures []error
	for _, connections := range []int{1, concurrency} {
		failures = append(failures, b.compareGraph(g, server, router, connections))
	}
	return errors.Join(failures...)
}

// spec returns the graph as the router's option.
func (g *routerGraph) spec(server string) string {
	step := func(name string) map[string]any {
		return map[string]any{"name": name, "serviceUrl": "http://" + server + "/v2/models/" + name + "/infer"}
	}
	text, err := json.Marshal(map[string]any{"nodes": map[string]any{
		"root": map[string]any{"routerType": g.kind, "steps": []any{step("left"), step("right")}},
	}})
	if err != nil {
		panic(err) // unreachable: texts
	}
	return string(text)
}

// check sends a request to the ensemble, or to the router, which takes any path, and compares the outputs.
func (g *routerGraph) check(addr string) error {
	want := []any{1.5, 2.0, -3.0}
	body, err := json.Marshal(map[string]any{"inputs": []any{map[string]any{"name": "INPUT0", "datatype": "FP32", "shape": []int{3}, "data": want}}})
	if err != nil {
		return err
	}
	resp, err := http.Post("http://"+addr+"/v2/models/whole/infer", "application/json", bytes.NewReader(body)) //nolint:noctx // ends with the servers
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var got any
	if err := json.Unmarshal(text, &got); err != nil {
		return err
	}
	list := dataOf(got)
	if len(list) != g.responses || slices.ContainsFunc(list, func(one []any) bool { return !slices.Equal(one, want) }) {
		return fmt.Errorf("%s at %s: status %d, response %s, expected %d outputs %v", g.name, addr, resp.StatusCode, text, g.responses, want)
	}
	return nil
}

// dataOf returns all arrays of the name data below a value.
func dataOf(v any) (list [][]any) {
	switch v := v.(type) {
	case map[string]any:
		for key, one := range v {
			if data, ok := one.([]any); ok && key == "data" {
				list = append(list, data)
			} else {
				list = append(list, dataOf(one)...)
			}
		}
	case []any:
		for _, one := range v {
			list = append(list, dataOf(one)...)
		}
	}
	return list
}

// routerProcess is a router.
type routerProcess struct {
	*proc.Process
	cmd *exec.Cmd
}

// stop kills the router: it would wait 30 s after SIGTERM.
func (r *routerProcess) stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// startRouter starts the router with a graph and waits until it is ready.
func (b *bench) startRouter(graph string) (*routerProcess, error) {
	if resp, err := http.Get(routerReady); err == nil { //nolint:noctx // at once
		return nil, errors.Join(fmt.Errorf("%s is in use, and KServe's router has no other port", routerAddress), resp.Body.Close())
	}
	cmd := exec.Command(b.routerPath, "--graph-json", graph) //nolint:gosec,noctx // the bench names it; ended by stop
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &routerProcess{Process: proc.Attach(cmd.Process.Pid, routerAddress, ""), cmd: cmd}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, routerReady, http.NoBody)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK {
			return r, nil
		}
		select {
		case <-ctx.Done():
			r.stop()
			return nil, fmt.Errorf("%s is not ready: %w", b.routerPath, errors.Join(ctx.Err(), err))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// graphRun is what requests cost on one side.
type graphRun struct{ p50, throughput, cpu []float64 } // us, requests per second, us of CPU over all servers

// compareGraph prints one row for a number of connections. It is an error when the ensemble costs more.
func (b *bench) compareGraph(g *routerGraph, server *process, router *routerProcess, connections int) error {
	var ours, theirs graphRun
	for round := range b.rounds + 1 {
		sides := []struct {
			run  *graphRun
			http string
		}{{&ours, server.HTTP}, {&theirs, routerAddress}}
		for _, side := range sides {
			if round == 0 { // fills pools
				side.run = &graphRun{}
			}
			if err := side.run.add(server, router, side.http, connections); err != nil {
				return err
			}
		}
	}
	row := fmt.Sprintf("%s, FP32[16] as JSON, %d connections", g.name, connections)
	b.row(row+": p50", "us", ours.p50, theirs.p50, 1)
	b.row(row+": CPU of all servers", "us", ours.cpu, theirs.cpu, 1)
	fmt.Fprintf(b.table, "%s: requests per second\ttutti %.0f\tpeer %.0f\tratio %.2f (at least 1.00)\n",
		row, median(ours.throughput), median(theirs.throughput), median(ours.throughput)/median(theirs.throughput))
	if median(ours.cpu) > median(theirs.cpu) || median(ours.p50) > median(theirs.p50) || median(ours.throughput) < median(theirs.throughput) {
		return fmt.Errorf("%s: the ensemble costs more than KServe's router with the same models", row)
	}
	return nil
}

// add measures one round against an address.
func (r *graphRun) add(server *process, router *routerProcess, addr string, connections int) (err error) {
	group, err := load.Dial(load.Target{HTTP: addr}, load.JSON, []load.Request{ramp("whole", 16)}, connections)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	cpu := func() (float64, error) {
		a, err := server.CPU()
		c, failed := router.CPU()
		return float64(a+c) / 1e3, errors.Join(err, failed)
	}
	before, err := cpu()
	if err != nil {
		return err
	}
	result, err := load.Run(group.Clients, load.Plan{Requests: routerCalls})
	if err = errors.Join(err, result.First); err != nil {
		return err
	}
	after, err := cpu()
	r.p50 = append(r.p50, float64(result.P50)/1e3)
	r.throughput = append(r.throughput, result.Throughput)
	r.cpu = append(r.cpu, (after-before)/routerCalls)
	return err
}
