//go:build cgo

package main

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends/onnx/onnxtest"
	"github.com/tutti-server/tutti/backends/sim"
	"github.com/tutti-server/tutti/backends/sim/simtest"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// onnxWeights is the memory at the device of each of those models besides weights: what the stand-in adds.
const onnxWeights = weights + 256

// weightyOnnx writes models of ONNX files with weights at GPU 0, their twins on the host, and the ensemble chain of two of them: m0 to m3
// and loop with weights of 8 MiB, two with twice and huge with eight times as much. m2 has an arena of the runtime.
func weightyOnnx(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, m := range map[string]struct {
		file   string
		n      int
		config string
	}{
		"m0": {"mlp.onnx", weights, "max_batch_size: 8"},
		"m1": {"mlp.onnx", weights, "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 500 }"},
		"m2": {"mlp.onnx", weights, `max_batch_size: 8 parameters { key: "arena_extend_strategy" value { string_value: "1" } }`},
		"m3": {"mlp.onnx", weights, "max_batch_size: 8"}, "loop": {"loop.onnx", weights, ""},
		"two": {"mlp.onnx", 2 * weights, "max_batch_size: 8"}, "huge": {"mlp.onnx", 8 * weights, "max_batch_size: 8"},
	} {
		size := fmt.Sprintf(` parameters { key: "session.standin_weights" value { string_value: "%d" } } `, m.n)
		writeOnnxModel(t, root, name, `backend: "onnxruntime" instance_group { kind: KIND_GPU gpus: 0 } `+size+m.config, m.file)
		host, _, _ := strings.Cut(m.config, "parameters")
		writeOnnxModel(t, root, name+"_cpu", `backend: "onnxruntime" instance_group { kind: KIND_CPU } `+host, m.file)
	}
	for _, suffix := range []string{"", "_cpu"} {
		writeOnnxModel(t, root, "chain"+suffix, fmt.Sprintf(`platform: "ensemble" max_batch_size: 8
			input { name: "x" data_type: TYPE_FP32 dims: 16 } output { name: "y" data_type: TYPE_FP32 dims: 16 }
			ensemble_scheduling { step [
				{ model_name: "m0%s" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "h" } },
				{ model_name: "m1%s" model_version: -1 input_map { key: "x" value: "h" } output_map { key: "y" value: "y" } } ] }`, suffix, suffix), "")
	}
	return root
}

// TestOnnxModelMemory runs a server with ONNX models of which two fit on the GPU together, in the server's pool and in arenas of the
// runtime. Requests load those that are evicted; a model with a request in flight stays; one that is too large alone is refused. Afterwards
// the ledger has exactly the driver's copies, and the driver exactly the memory of the loaded models.
func TestOnnxModelMemory(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	driver := cudatest.Count(t)
	own := ownCopies(t)
	t.Cleanup(func() { cudatest.Set(t, "memory", 0) })
	cudatest.Set(t, "memory", 2*weights+weights/2)
	a := serveOnnxGPUFrom(t, weightyOnnx(t), append(loadAll("m0", "m1", "m2", "m3", "loop", "chain", "m0_cpu", "m1_cpu", "m2_cpu", "m3_cpu", "loop_cpu", "two_cpu", "chain_cpu"),
		"--model-memory=lru", "--model-control-mode=explicit")...)
	checkRoom(t, a, driver.Held)

	var clients sync.WaitGroup
	models := []string{"m0", "m2", "chain", "m3", "m1"}
	for client := range 4 {
		clients.Go(func() {
			for k := range 10 {
				same(t, a, models[(client+k)%len(models)], rowOf(client+k))
			}
		})
	}
	clients.Wait()
	checkRoom(t, a, driver.Held)
	checkInUse(t, a)

	code, text := post(t, "http://"+a.http+"/v2/repository/models/huge/load", "{}")
	if code == http.StatusOK || !strings.Contains(text, "huge") || !strings.Contains(text, "out of memory") || !strings.Contains(text, "no other model is there that could be evicted") {
		t.Errorf("a model that does not fit alone: %d %s", code, text)
	}
	for _, model := range models {
		same(t, a, model, rowOf(5))
	}
	checkRoom(t, a, driver.Held)
	var now sim.Traffic
	for name, to := range own {
		n := int64(onnxtest.Count(t, name)) - to
		switch name {
		case "up":
			now.Up.Store(n)
		case "up_bytes":
			now.UpBytes.Store(n)
		case "down":
			now.Down.Store(n)
		case "down_bytes":
			now.DownBytes.Store(n)
		}
	}
	after := cudatest.Count(t)
	after.Within -= uint64(int64(onnxtest.Count(t, "within")) - own["within"])
	after.WithinBytes -= uint64(int64(onnxtest.Count(t, "within_bytes")) - own["within_bytes"])
	ledger, _ := simtest.CopiesOf(metricsOf(t, a))
	if got := simtest.Since(driver, after, &now); fmt.Sprint(got) != fmt.Sprint(ledger) || got["host_to_device copies"] == 0 {
		t.Errorf("the ledger has\n%v, the driver without the models' kernels\n%v", ledger, got)
	}
}

// TestOnnxWeightsBesidePool checks that --cuda-memory-pool-byte-size bounds tensors only: weights that are larger, and than the pinned
// memory too, are on the GPU.
func TestOnnxWeightsBesidePool(t *testing.T) { //nolint:paralleltest // as above
	before := cudatest.Count(t).Held
	a := serveOnnxGPUFrom(t, weightyOnnx(t), append(loadAll("m0", "m1", "chain", "m0_cpu", "m1_cpu", "chain_cpu"), "--model-control-mode=explicit",
		"--cuda-memory-pool-byte-size=0:65536", "--pinned-memory-pool-byte-size=1048576")...)
	for k := range 5 {
		same(t, a, "chain", rowOf(k))
	}
	checkRoom(t, a, before)
	if m := metricsOf(t, a); !strings.Contains(m, `ensemble_spills_total{place="device:0"} 0`) {
		t.Errorf("something spilled:\n%s", regexp.MustCompile("(?m)^ensemble_spills.*$").FindAllString(m, -1))
	}
}

// loadAll returns the flags that load models.
func loadAll(names ...string) (flags []string) {
	for _, name := range names {
		flags = append(flags, "--load-model="+name)
	}
	return flags
}

// ownCopies returns the copies of the stand-in so far.
func ownCopies(t *testing.T) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, name := range []string{"up", "down", "within"} {
		all[name], all[name+"_bytes"] = int64(onnxtest.Count(t, name)), int64(onnxtest.Count(t, name+"_bytes"))
	}
	return all
}

// checkRoom checks that the driver holds exactly the weights of the models that the index has as loaded, and their arenas, besides what it
// held before.
func checkRoom(t *testing.T, a addresses, before uint64) {
	t.Helper()
	var loaded []string
	arena := onnxtest.Count(t, "arena")
	want := int64(before) + int64(arena)
	for name, reason := range readyReasons(t, a) {
		switch {
		case strings.HasSuffix(name, "_cpu") || name == "chain":
		case name == "m2": // in an arena, with what that keeps for its next run
			if (reason == "") != (arena >= onnxWeights) || reason != "" && arena != 0 {
				t.Errorf("the arena of model m2 has %d bytes, its reason is '%s'", arena, reason)
			}
			if reason == "" {
				loaded = append(loaded, name)
			}
		case reason == "" && name == "two":
			want += onnxWeights + weights
			loaded = append(loaded, name)
		case reason == "":
			want += onnxWeights
			loaded = append(loaded, name)
		case !strings.HasPrefix(reason, "evicted from device:0 after "):
			t.Errorf("model %s: %s", name, reason)
		}
	}
	slices.Sort(loaded)
	if held := int64(cudatest.Count(t).Held); held != want || len(loaded) > 2 || len(loaded) == 0 {
		t.Errorf("the driver holds %d bytes, want %d of the models %v", held, want, loaded)
	}
}

// checkInUse checks that a model with a request in flight stays while others come and go beside it, and that one that does not fit beside
// it is loaded when the request has ended.
func checkInUse(t *testing.T, a addresses) {
	t.Helper()
	evictions := func() string {
		return regexp.MustCompile(`ensemble_model_evictions_total\{model="loop",version="1"\} \S+`).FindString(metricsOf(t, a))
	}
	const body = `{"inputs":[{"name":"n","shape":[1],"datatype":"INT64","data":[%d]},{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}`
	same(t, a, "loop", fmt.Sprintf(body, 3))
	before := evictions()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runs := onnxtest.Count(t, "runs")
	ended := make(chan error, 1)
	go func() { ended <- leave(ctx, "http://"+a.http+"/v2/models/loop/infer", fmt.Sprintf(body, int64(1)<<40)) }()
	for onnxtest.Count(t, "runs") == runs { // until it runs
		checkServing(t, a, "loop")
	}
	for k := range 8 {
		same(t, a, []string{"m0", "m3", "m2"}[k%3], rowOf(k))
	}
	load := make(chan string, 1)
	go func() {
		code, text := postTo(t, a, "/v2/repository/models/two/load", "{}")
		load <- fmt.Sprint(code, text)
	}()
	for idle := true; idle; { // until nothing else is there that could make room for it
		reasons := readyReasons(t, a)
		idle = slices.ContainsFunc([]string{"m0", "m1", "m2", "m3"}, func(name string) bool { return reasons[name] == "" })
	}
	if reason, now := readyReasons(t, a)["loop"], evictions(); reason != "" || now != before {
		t.Errorf("the model with a request in flight was evicted: %s, %s; it was %s before", reason, now, before)
	}
	select {
	case err := <-ended:
		t.Errorf("the endless request has ended: %v", err)
	case got := <-load:
		t.Errorf("a model was loaded without room: %s", got)
	default:
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("an endless run has ended")
	}
	if got := <-load; !strings.HasPrefix(got, "200") {
		t.Errorf("the load after the request has ended: %s", got)
	}
	same(t, a, "two", rowOf(2))
}

// leave sends a request whose client leaves when ctx is done, and returns the client's error.
func leave(ctx context.Context, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// checkServing checks that a model is ready.
func checkServing(t *testing.T, a addresses, model string) {
	t.Helper()
	resp, err := http.Get("http://" + a.http + "/v2/models/" + model + "/ready") //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("model %s: %s", model, resp.Status)
	}
}
