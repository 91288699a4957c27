//go:build cgo

package tutti_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/logtest"
	"github.com/tutti-server/tutti/steps"
)

// deviceHold is deviceCopy with instances that hold a mebibyte of device memory.
func deviceHold() backends.Factory {
	f := deviceCopy()
	open := f.New
	f.Name, f.New = "devicehold", func(o backends.Options) (backends.Backend, error) {
		b, err := open(o)
		return backends.Loader(func(ctx context.Context, s backends.Settings) (backends.Model, error) {
			m, err := b.Load(ctx, s)
			return &holdingModel{m.(*deviceModel)}, err //nolint:forcetypeassert // deviceCopy's
		}), err
	}
	return f
}

type holdingModel struct{ *deviceModel }

func (m *holdingModel) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	inst, err := m.deviceModel.NewInstance(ctx, at)
	if err != nil {
		return nil, err
	}
	held, err := m.places.Device(at).Alloc(1 << 20)
	return &holdingInstance{inst.(*deviceInstance), held}, err //nolint:forcetypeassert // deviceModel's
}

type holdingInstance struct {
	*deviceInstance
	held *tensor.Buffer
}

func (i *holdingInstance) Close() error {
	i.held.Release()
	return i.deviceInstance.Close()
}

// serveAtGPUs runs a server with models at GPU 1 only and at both GPUs, models of sequences there, and an ensemble of two steps at both. The
// server must end without an error.
func serveAtGPUs(t *testing.T, args ...string) (door, metrics httpDoor, output *logtest.Buffer) {
	t.Helper()
	root := t.TempDir()
	const port = "input { name: \"INPUT0\" data_type: TYPE_INT32 dims: [ -1 ] }\noutput { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
	step := func(in, out string) string {
		return fmt.Sprintf("step { model_name: \"both\" model_version: -1 input_map { key: \"INPUT0\" value: %q } output_map { key: \"OUTPUT0\" value: %q } }\n", in, out)
	}
	for name, text := range map[string]string{
		"only1": "backend: \"devicecopy\"\ninstance_group { kind: KIND_GPU gpus: 1 }\n" + port,
		"both":  "backend: \"devicecopy\"\ninstance_group { kind: KIND_GPU }\n" + port,
		"hold":  "backend: \"devicehold\"\ninstance_group { kind: KIND_GPU gpus: 1 }\n" + port,
		"seq":   "backend: \"devicecopy\"\nsequence_batching { direct {} max_sequence_idle_microseconds: 3600000000 }\ninstance_group { kind: KIND_GPU }\n" + port,
		"seq1":  "backend: \"devicecopy\"\nsequence_batching { direct {} max_sequence_idle_microseconds: 3600000000 }\ninstance_group { kind: KIND_GPU gpus: 1 }\n" + port,
		"chain": "platform: \"ensemble\"\nparameters { key: \"require_resident\" value { string_value: \"true\" } }\n" + port +
			"ensemble_scheduling {\n" + step("INPUT0", "a") + step("a", "OUTPUT0") + "}\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output = &logtest.Buffer{}
	s, err := tutti.Open(t.Context(), tutti.Settings{
		Args: append([]string{
			"--model-repository=" + root, "--cuda-driver=" + cudatest.Library(t),
			"--http-address=127.0.0.1", "--http-port=0", "--grpc-port=0", "--grpc-address=127.0.0.1", "--metrics-port=0",
		}, args...),
		Components: tutti.Components{Backends: func(*steps.Registry) []backends.Factory { return []backends.Factory{deviceCopy(), deviceHold()} }},
		Stderr:     output,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, output.String())
	}
	must(t, s.Start())
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(context.Background()); err != nil { // also where a GPU was lost
			t.Errorf("the end of the server: %v", err)
		}
	})
	return httpDoor{tb: t, url: "http://" + s.HTTPAddress()}, httpDoor{tb: t, url: "http://" + s.MetricsAddress()}, output
}

const fourNumbers = `{"inputs": [{"name": "INPUT0", "shape": [4], "datatype": "INT32", "data": [1, 2, 3, 4]}]}`

// inferNumbers sends requests from 10 clients and returns the number that succeeded, and the errors.
func inferNumbers(d httpDoor, model string, requests int) (good int, errs []string) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 10 {
		wg.Go(func() {
			for range requests / 10 {
				body, _, err := d.call("POST", "/v2/models/"+model+"/infer", []byte(fourNumbers))
				mu.Lock()
				if err != nil {
					errs = append(errs, err.Error())
				} else if strings.Contains(string(body), `"data":[1,2,3,4]`) {
					good++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return good, errs
}

// TestRequestStaysOnOneGPU checks 100 concurrent requests to an ensemble whose steps have instances at every GPU: all GPUs take
// requests, and no tensor goes from one to another.
func TestRequestStaysOnOneGPU(t *testing.T) { //nolint:paralleltest // counts the copies of the process
	door, metrics, _ := serveAtGPUs(t)
	before := cudatest.Count(t)
	if good, errs := inferNumbers(door, "chain", 100); good != 100 {
		t.Errorf("%d of 100 requests succeeded: %v", good, errs)
	}
	after := cudatest.Count(t)
	if after.Peer != before.Peer || after.Up-before.Up != 100 || after.Down-before.Down != 100 {
		t.Errorf("%d copies up, %d down and %d between GPUs for 100 requests", after.Up-before.Up, after.Down-before.Down, after.Peer-before.Peer)
	}
	text, _, err := metrics.call("GET", "/metrics", nil)
	must(t, err)
	for _, at := range []string{"device:0", "device:1"} {
		if !strings.Contains(string(text), `direction="host_to_device",from="host",model="both",reason="device_step",tensor="INPUT0",to="`+at+`"`) {
			t.Errorf("no request was at %s", at)
		}
	}
}

// TestLostGPU checks that a GPU that is lost under load fails requests with the reason only, that models with instances elsewhere go on,
// and that readiness, metrics and the log name it.
func TestLostGPU(t *testing.T) { //nolint:paralleltest // loses a device of the process
	door, metrics, output := serveAtGPUs(t)
	for _, model := range []string{"only1", "both", "chain"} {
		if good, errs := inferNumbers(door, model, 20); good != 20 {
			t.Fatalf("%s: %d of 20 requests succeeded: %v", model, good, errs)
		}
	}
	t.Cleanup(func() { cudatest.Set(t, "revive", 1) })
	var wg sync.WaitGroup
	wg.Go(func() {
		_, errs := inferNumbers(door, "chain", 400)
		for _, err := range errs {
			if !strings.Contains(err, "device:1") || !strings.HasPrefix(err, "503 ") {
				t.Errorf("a request under way failed with %s", err)
			}
		}
	})
	cudatest.Set(t, "lose", 1)
	wg.Wait()
	good, errs := inferNumbers(door, "only1", 20)
	if good != 0 || len(errs) != 20 || !strings.Contains(errs[0], "device:1 is lost, restart the server to use it again: cu") {
		t.Errorf("at the lost GPU: %d succeeded, %v", good, errs)
	}
	for _, model := range []string{"both", "chain"} {
		if good, errs := inferNumbers(door, model, 100); good != 100 {
			t.Errorf("%s with instances elsewhere: %d of 100 succeeded: %v", model, good, errs)
		}
		if _, _, err := door.call("GET", "/v2/models/"+model+"/ready", nil); err != nil {
			t.Errorf("%s: %v", model, err)
		}
	}
	for path, model := range map[string]string{"/v2/health/ready": "hold", "/v2/models/only1/ready": "only1"} {
		if _, _, err := door.call("GET", path, nil); err == nil || !strings.Contains(err.Error(), "model '"+model+"' has no other place: device:1 is lost") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, _, err := door.call("GET", "/v2/health/live", nil); err != nil {
		t.Error(err)
	}
	text, _, err := metrics.call("GET", "/metrics", nil)
	must(t, err)
	if !strings.Contains(string(text), `ensemble_device_lost{place="device:1"} 1`) || !strings.Contains(string(text), `ensemble_device_lost{place="device:0"} 0`) {
		t.Errorf("metrics:\n%s", text)
	}
	if n := strings.Count(output.String(), "a GPU is lost"); n != 1 {
		t.Errorf("the log says %d times that a GPU is lost:\n%s", n, output.String())
	}
	awaitRecycled(door, output)
	checkLostShown(t, door)
	if good, errs := inferNumbers(door, "chain", 20); good != 20 {
		t.Errorf("once the instances are closed: %d of 20 succeeded: %v", good, errs)
	}
}

// awaitRecycled returns when the instances of every model at GPU 1 are closed, as the log says once for each model.
func awaitRecycled(d httpDoor, output *logtest.Buffer) {
	for range 10_000 {
		if strings.Count(output.String(), "instances on a lost GPU are closed") == 5 {
			return
		}
		_, _, _ = d.call("GET", "/v2/health/live", nil) // what it returns is not of interest
	}
	d.tb.Fatalf("the instances of the lost GPU are not closed:\n%s", output.String())
}

// checkLostShown checks what the index and the dashboard show of models at the lost GPU 1.
func checkLostShown(t *testing.T, door httpDoor) {
	t.Helper()
	const why = "device:1 is lost, restart the server to use it again: cu"
	want := map[string]string{
		"only1": "UNAVAILABLE model 'only1' has no other place: " + why, "hold": "UNAVAILABLE model 'hold' has no other place: " + why,
		"seq1": "UNAVAILABLE model 'seq1' has no other place: " + why,
		"both": "READY serves at device:0 only: " + why, "seq": "READY serves at device:0 only: " + why, "chain": "READY ",
	}
	text, _, err := door.call("POST", "/v2/repository/index", []byte("{}"))
	must(t, err)
	var index []struct{ Name, State, Reason string }
	must(t, json.Unmarshal(text, &index))
	for _, e := range index {
		if got := e.State + " " + e.Reason; !strings.HasPrefix(got, want[e.Name]) || e.Name == "chain" && got != "READY " {
			t.Errorf("the index has %s: %s", e.Name, got)
		}
	}
	if text, _, err = door.call("POST", "/v2/repository/index", []byte(`{"ready":true}`)); err != nil || strings.Contains(string(text), "only1") || !strings.Contains(string(text), "both") {
		t.Errorf("ready are %s, %v", text, err)
	}
	text, _, err = door.call("GET", "/ui/api/graph/chain", nil)
	must(t, err)
	var graph struct {
		Nodes []struct{ Places, Lost []string } `json:"nodes"`
	}
	must(t, json.Unmarshal(text, &graph))
	for _, n := range graph.Nodes {
		if len(n.Places) != 2 || len(n.Lost) != 1 || n.Lost[0] != "device:1" {
			t.Errorf("the dashboard has %s", text)
		}
	}
}

// ask sends a request of a sequence and returns its error's text, "" without one.
func ask(d httpDoor, model string, id int, start, end bool) string {
	body := strings.Replace(fourNumbers, "{", fmt.Sprintf(`{"parameters": {"sequence_id": %d, "sequence_start": %t, "sequence_end": %t}, `, id, start, end), 1)
	if _, _, err := d.call("POST", "/v2/models/"+model+"/infer", []byte(body)); err != nil {
		return err.Error()
	}
	return ""
}

// TestLostGPUEndsSequences checks that sequences at a lost GPU end with a status that says so, that those elsewhere go on, and that new
// ones start where an instance is left.
func TestLostGPUEndsSequences(t *testing.T) { //nolint:paralleltest // loses a device of the process
	door, _, output := serveAtGPUs(t)
	for _, err := range []string{ask(door, "seq", 1, true, false), ask(door, "seq", 2, true, false), ask(door, "seq1", 3, true, false)} {
		if err != "" {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { cudatest.Set(t, "revive", 1) })
	cudatest.Set(t, "lose", 1)
	_, _ = inferNumbers(door, "only1", 10) // which notice the loss
	awaitRecycled(door, output)
	broken, live := 0, 0
	for _, id := range []int{1, 2} {
		switch err := ask(door, "seq", id, false, false); {
		case err == "":
			live = id
		case strings.HasPrefix(err, "503 ") && strings.Contains(err, fmt.Sprintf("sequence %d for model 'seq' has ended: device:1 is lost, restart the server", id)):
			broken = id
		default:
			t.Errorf("sequence %d: %s", id, err)
		}
	}
	if broken == 0 || live == 0 {
		t.Fatalf("sequence %d was broken off, %d goes on", broken, live)
	}
	if err := ask(door, "seq", broken, false, true); !strings.Contains(err, "has ended: device:1 is lost") {
		t.Errorf("the end of the sequence: %q", err)
	}
	if err := ask(door, "seq", broken, false, false); !strings.Contains(err, "must specify the START flag") {
		t.Errorf("after its end: %q", err)
	}
	if err := ask(door, "seq", live, false, true); err != "" {
		t.Errorf("the end of the other sequence: %s", err)
	}
	if err := ask(door, "seq", broken, true, true); err != "" {
		t.Errorf("a new sequence of the id: %s", err)
	}
	for _, start := range []bool{false, true} {
		if err := ask(door, "seq1", 3, start, false); !strings.HasPrefix(err, "503 ") || !strings.Contains(err, "model 'seq1' has no other place: device:1 is lost") {
			t.Errorf("with start %t, at the lost GPU only: %q", start, err)
		}
	}
}

// TestLostGPUReload checks that a load after the loss is refused with the reason, also when the driver would work again, that what
// serves goes on, and that models can be unloaded, and loaded without the lost GPU.
func TestLostGPUReload(t *testing.T) { //nolint:paralleltest // loses a device of the process
	door, _, output := serveAtGPUs(t, "--model-control-mode=explicit", "--load-model=*")
	cudatest.Set(t, "lose", 1)
	_, _ = inferNumbers(door, "only1", 10) // which notice the loss
	awaitRecycled(door, output)
	for _, revived := range []bool{false, true} {
		if revived {
			cudatest.Set(t, "revive", 1)
		}
		for _, model := range []string{"only1", "both", "seq"} {
			_, _, err := door.call("POST", "/v2/repository/models/"+model+"/load", nil)
			if err == nil || !strings.Contains(err.Error(), "no instance of model '"+model+"' can be made: device:1 is lost, restart the server to use it again") {
				t.Errorf("a load of %s, revived %t: %v", model, revived, err)
			}
		}
		if good, errs := inferNumbers(door, "both", 20); good != 20 {
			t.Errorf("%d of 20 requests succeeded: %v", good, errs)
		}
	}
	const here = `{"parameters": {"config": "{\"backend\":\"devicecopy\",\"instance_group\":[{\"kind\":\"KIND_GPU\",\"gpus\":[0]}],` +
		`\"input\":[{\"name\":\"INPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}],\"output\":[{\"name\":\"OUTPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}]}"}}`
	if _, _, err := door.call("POST", "/v2/repository/models/only1/load", []byte(here)); err != nil {
		t.Errorf("a load at the other GPU: %v", err)
	}
	if good, errs := inferNumbers(door, "only1", 20); good != 20 {
		t.Errorf("at the other GPU: %d of 20 requests succeeded: %v", good, errs)
	}
	for _, model := range []string{"hold", "seq1"} {
		if _, _, err := door.call("POST", "/v2/repository/models/"+model+"/unload", nil); err != nil {
			t.Errorf("unloading %s: %v", model, err)
		}
	}
	if _, _, err := door.call("GET", "/v2/health/ready", nil); err != nil {
		t.Errorf("without the models of the lost GPU: %v", err)
	}
}

// TestSpillIsTold checks that a full pool of a GPU's memory is logged once and counted, and that no request fails for it.
func TestSpillIsTold(t *testing.T) { //nolint:paralleltest // uses the driver of the process
	door, metrics, output := serveAtGPUs(t, "--cuda-memory-pool-byte-size=0:16", "--cuda-memory-pool-byte-size=1:16")
	if good, errs := inferNumbers(door, "chain", 40); good != 40 {
		t.Errorf("%d of 40 requests succeeded: %v", good, errs)
	}
	text, _, err := metrics.call("GET", "/metrics", nil)
	must(t, err)
	if !regexp.MustCompile(`ensemble_spills_total\{place="device:[01]"\} [1-9]`).Match(text) {
		t.Errorf("metrics:\n%s", text)
	}
	if n := strings.Count(output.String(), "the memory pool of a GPU is full"); n < 1 || n > 2 {
		t.Errorf("the log says %d times that a pool is full:\n%s", n, output.String())
	}
}

// TestSpillInTrace checks that the trace of a request has what spilled of it, with tensor, step, bytes, places and reason: in the
// dashboard's API, and in the text of tutti why.
func TestSpillInTrace(t *testing.T) { //nolint:paralleltest // uses the driver of the process
	door, _, _ := serveAtGPUs(t, "--cuda-memory-pool-byte-size=0:8", "--cuda-memory-pool-byte-size=1:8", "--pinned-memory-pool-byte-size=3000000")
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	_, _, err := door.call("POST", "/v2/models/chain/infer", []byte(fourNumbers), "traceparent", "00-"+id+"-00f067aa0ba902b7-01", "tracestate", "tutti=retain")
	must(t, err)
	var v struct {
		Spans  []struct{ Place string } `json:"spans"`
		Events []struct {
			Kind, Tensor, From, To, Reason string
			Bytes                          int64
			Node                           int32
		} `json:"events"`
	}
	text, _, err := door.call("GET", "/ui/api/traces/"+id, nil)
	must(t, err)
	must(t, json.Unmarshal(text, &v))
	got := map[string]string{}
	for _, e := range v.Events {
		if e.Kind == "spill" {
			got[fmt.Sprintf("%d %s", e.Node, e.Tensor)] = fmt.Sprintf("%d bytes %s to %s: %s", e.Bytes, e.From, e.To, e.Reason)
		}
	}
	at := "16 bytes " + v.Spans[0].Place + " to pinned: the pool of 8 bytes is full, see --cuda-memory-pool-byte-size"
	want := map[string]string{"0 INPUT0": at, "0 OUTPUT0": at, "1 OUTPUT0": at}
	if !maps.Equal(got, want) {
		t.Errorf("spills %v, want %v\n%s", got, want, text)
	}
	text, _, err = door.call("GET", "/ui/api/traces/"+id+"?as=text", nil)
	must(t, err)
	line := "spilled: tensor 'INPUT0' of both, 16 bytes, is at pinned instead of " + v.Spans[0].Place + ": the pool of 8 bytes is full"
	if !strings.Contains(string(text), line) {
		t.Errorf("tutti why prints\n%swant %s", text, line)
	}
}

// TestLoadLimitOfGPU checks that --model-load-gpu-limit refuses a model at a GPU of which more memory is in use, by name of the GPU, and
// that models there go on.
func TestLoadLimitOfGPU(t *testing.T) { //nolint:paralleltest // uses the driver of the process
	door, _, _ := serveAtGPUs(t, "--model-load-gpu-limit=1:0", "--model-control-mode=explicit", "--load-model=hold")
	_, _, err := door.call("POST", "/v2/repository/models/only1/load", nil)
	if err == nil || !regexp.MustCompile(`no instance of model 'only1' can be made: \d+ of the \d+ bytes of device:1 are in use, more than the fraction 0 of --model-load-gpu-limit`).MatchString(err.Error()) {
		t.Errorf("a load beyond the limit: %v", err)
	}
	if good, errs := inferNumbers(door, "hold", 20); good != 20 {
		t.Errorf("%d of 20 requests succeeded: %v", good, errs)
	}
}
