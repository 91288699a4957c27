package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// counting responds n times, with 0 to n-1.
const counting = `import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for i in range(int(request.inputs()[0].as_numpy()[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", numpy.array([i], numpy.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
`

// countTo requests n responses of counting, and checks them.
func countTo(ctx context.Context, g *client.GRPC, n int32) error {
	next := int32(0)
	wrong := ""
	req := &client.Request{Model: "count", Inputs: []client.Tensor{client.Of("IN", []int64{1}, n)}}
	err := g.Stream(ctx, req, func(r *client.Response) error {
		if out := r.Output("OUT"); out != nil {
			v, err := client.Values[int32](out)
			if err != nil || len(v) != 1 || v[0] != next {
				wrong = fmt.Sprintf("response %d is %v: %v", next, v, err)
			}
			next++
		}
		return nil
	})
	if err == nil && next != n {
		wrong = fmt.Sprintf("%d responses, want %d", next, n)
	}
	if wrong != "" {
		return fmt.Errorf("wrong: %s", wrong)
	}
	return err
}

// killNamed sends SIGKILL to the descendants of a process with the given name, and returns how many there were.
func killNamed(t *testing.T, parent int, name string) (killed int) {
	t.Helper()
	for _, pid := range children(t, parent) {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		if err == nil && strings.TrimSpace(string(text)) == name && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// TestDecoupledKills kills the process of a decoupled Python model again and again while many clients wait for its responses: each request ends
// with the right responses or with an error that says to send it again, and no request is without an end.
func TestDecoupledKills(t *testing.T) {
	t.Parallel()
	requirePython(t)
	clients, each, kills := 64, 4, 4
	if !testing.Short() {
		clients, each, kills = 256, 8, 20
	}
	root := t.TempDir()
	writeModel(t, root, "count", `backend: "python" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }`)
	writeFile(t, root+"/count/1/model.py", []byte(counting))
	p := startServer(t, "--model-repository="+root)
	g := dialGRPC(t, p.grpc)
	defer func() { _ = g.Close() }()
	ended := make(chan struct{}, clients*each)
	var right, again atomic.Int32
	var wg sync.WaitGroup
	for k := range clients {
		wg.Go(func() {
			for i := range each {
				switch err := countTo(t.Context(), g, int32((k+i)%20)); {
				case err == nil:
					right.Add(1)
				case strings.Contains(err.Error(), "sent again") || strings.Contains(err.Error(), "send the request again") || strings.Contains(err.Error(), "is started again in"):
					again.Add(1)
				default:
					t.Errorf("a request of %d responses: %v", (k+i)%20, err)
				}
				ended <- struct{}{}
			}
		})
	}
	killed := 0
	for range kills {
		for range clients * each / (kills + 1) {
			<-ended
		}
		killed += killNamed(t, p.cmd.Process.Pid, "py:count")
	}
	wg.Wait()
	t.Logf("%d processes killed: %d requests with the right responses, %d to send again", killed, right.Load(), again.Load())
	if killed == 0 || right.Load() == 0 {
		t.Errorf("%d processes killed, %d right", killed, right.Load())
	}
	if err := countTo(t.Context(), g, 3); err != nil && !strings.Contains(err.Error(), "again") {
		t.Errorf("afterwards: %v", err)
	}
}
