package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
)

const weights = 8 << 20

// weightyModels writes five models whose instances hold weights of 8 MiB each at a device, one that holds 64 MiB, and an ensemble of three
// models that do not fit on a device together.
func weightyModels(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const ports = `max_batch_size: 8 input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] }` + "\n"
	holds := func(n int) string {
		return fmt.Sprintf(`backend: "identity" parameters { key: "sim.weights" value { string_value: "%d" } } instance_group { kind: KIND_GPU gpus: 0 }`+"\n", n)
	}
	for i := range 5 {
		write(fmt.Sprintf("m%d", i), holds(weights)+ports+[]string{"", "dynamic_batching {}\n"}[i%2])
	}
	write("huge", holds(8*weights)+ports)
	step := func(model, in, out string) string {
		return fmt.Sprintf(`step { model_name: %q model_version: -1 input_map { key: "INPUT0" value: %q } output_map { key: "OUTPUT0" value: %q } }`+"\n", model, in, out)
	}
	write("chain", `platform: "ensemble" `+ports+"ensemble_scheduling {\n"+step("m0", "INPUT0", "a")+step("m1", "a", "b")+step("m2", "b", "OUTPUT0")+"}\n")
	return root
}

// readyReasons returns the reasons of the READY models of a server.
func readyReasons(t *testing.T, a addresses) map[string]string {
	t.Helper()
	resp, err := http.Post("http://"+a.http+"/v2/repository/index", "application/json", strings.NewReader(`{"ready": true}`)) //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var list []infer.Entry
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range list {
		all[e.Name] = e.Reason
	}
	return all
}

// inferAll sends requests to models over HTTP and gRPC from several clients, and checks the responses.
func inferAll(t *testing.T, a addresses, requests int, models ...string) {
	t.Helper()
	viaHTTP := client.NewHTTP("http://"+a.http, nil)
	defer func() { _ = viaHTTP.Close() }()
	viaGRPC := dialGRPC(t, a.grpc)
	defer func() { _ = viaGRPC.Close() }()
	var wg sync.WaitGroup
	for i, c := range []client.Client{viaHTTP, viaGRPC, viaHTTP, viaGRPC} {
		wg.Go(func() {
			for k := range requests {
				model := models[(i+k)%len(models)]
				x := []float32{float32(i), float32(k), 0.5, 2}
				resp, err := c.Infer(context.Background(), &client.Request{Model: model, ID: model, Inputs: []client.Tensor{client.Of("INPUT0", []int64{1, 4}, x...)}})
				if err != nil {
					t.Errorf("model %s: %v", model, err)
					continue
				}
				if got, err := client.Values[float32](resp.Output("OUTPUT0")); err != nil || !slices.Equal(got, x) {
					t.Errorf("model %s returned %v, %v; want %v", model, got, err, x)
				}
			}
		})
	}
	wg.Wait()
}

// TestModelMemory runs a server with more models than its GPU has memory for, by --model-load-gpu-limit and by the driver's memory. All
// models are READY, requests load those that are evicted, and index, metrics, log and traces say so. The ledger stays exact.
func TestModelMemory(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	for name, limits := range map[string]struct {
		memory int64
		flags  []string
	}{
		"limit":         {0, []string{fmt.Sprintf("--model-load-gpu-limit=0:%f", 1.5*weights/(1<<30))}},
		"out of memory": {2*weights + weights/2, nil},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			d, c, flags := newDrive(t, 2, 1)
			d.Set("memory", limits.memory)
			t.Cleanup(func() { d.Set("memory", 0) })
			flags = append(append(flags, limits.flags...), "--model-repository="+weightyModels(t), "--model-memory=lru", "--model-control-mode=explicit",
				"--load-model=m0", "--load-model=m3", "--load-model=m4", "--load-model=chain", "--trace-store-every=1", "--trace-store-rate=0")
			a, log := serveLogged(t, c, flags...)
			checkEvicted(t, a, 3)
			inferAll(t, a, 10, "m0", "m3", "chain", "m4", "m1")
			checkEvicted(t, a, 3)
			metrics := metricsOf(t, a)
			for _, family := range []string{"ensemble_model_evictions_total", "ensemble_model_reloads_total"} {
				if !regexp.MustCompile(family + `\{model="m[0-4]",version="1"\} [1-9]`).MatchString(metrics) {
					t.Errorf("no %s in\n%s", family, metrics)
				}
			}
			if !strings.Contains(log.String(), "model evicted to make room") || !strings.Contains(log.String(), "evicted model loaded again") {
				t.Errorf("the log:\n%s", log)
			}
			checkLoadInTraces(t, a)
			if limits.memory > 0 {
				code, text := postTo(t, a, "/v2/repository/models/huge/load", "{}")
				if code == http.StatusOK || !strings.Contains(text, "the weights of model 'huge': ") || !strings.Contains(text, "out of memory") || !strings.Contains(text, "no other model is there that could be evicted") {
					t.Errorf("a model that does not fit alone: %d %s", code, text)
				}
				inferAll(t, a, 2, "m0", "chain")
			}
			d.check(t, metricsOf(t, a))
		})
	}
}

// checkEvicted checks that all models are READY, n of them with the reason that they are evicted.
func checkEvicted(t *testing.T, a addresses, n int) {
	t.Helper()
	reasons, evicted := readyReasons(t, a), 0
	for name, why := range reasons {
		if regexp.MustCompile(`^evicted from device:0 after \S+ idle; loads again on its next request$`).MatchString(why) {
			evicted++
		} else if why != "" {
			t.Errorf("model %s: %s", name, why)
		}
		for _, path := range []string{"/v2/health/ready", "/v2/models/" + name + "/ready"} {
			resp, err := http.Get("http://" + a.http + path) //nolint:noctx // ends with the server
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
	}
	if len(reasons) != 6 || evicted != n {
		t.Errorf("%d models are READY, %d of them evicted, expected 6 and %d: %v", len(reasons), evicted, n, reasons)
	}
}

// checkLoadInTraces checks that a trace names the time in which its request waited for a model to be loaded again.
func checkLoadInTraces(t *testing.T, a addresses) {
	t.Helper()
	var list inspect.TraceList
	dashboardAPI(t, a, "traces?limit=1000", &list)
	for i := range list.Traces {
		var v inspect.TraceView
		dashboardAPI(t, a, "traces/"+list.Traces[i].ID, &v)
		for _, p := range v.Split {
			if p.Kind == "model_load" && p.Ns > 0 && p.Text == "waiting for the evicted model "+p.Model+" to be loaded again" {
				return
			}
		}
	}
	t.Errorf("none of %d traces names a wait for a load", len(list.Traces))
}
