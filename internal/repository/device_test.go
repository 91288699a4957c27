package repository_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/sim/simtest"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/cache/local"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/steps"
)

// TestTensorsStayAtTheDevice checks, with a diamond of models on one and on two devices, that every request is
// copied to the device once and back once, and that its tensors never leave their device, also under concurrent
// requests.
func TestTensorsStayAtTheDevice(t *testing.T) {
	t.Parallel()
	const requests = 40
	for _, devices := range []int{1, 2} {
		w := newWorld(t)
		w.atDevices(t, devices)
		r := w.repo(t, folder(t, doubleModel+strings.Replace(ensemble("ens",
			step("plain", "-1", "IN", "A"), step("plain", "-1", "IN", "B"), step("plain", "-1", "A", "X"), step("plain", "-1", "B", "Y"),
		), "ensemble_scheduling", `output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling`, 1)))
		var wg sync.WaitGroup
		for i := range requests {
			wg.Go(func() {
				if got, err := send(t.Context(), r, w.request("ens", float32(i))); err != nil || got != float32(4*i) {
					t.Errorf("got %v, %v; want %d", got, err, 4*i)
				}
			})
		}
		wg.Wait()
		if up, down, peer := w.machine.Moved(); up != requests || down != 2*requests || peer != 0 {
			t.Errorf("%d devices: %d copies up, %d down and %d across for %d requests with one input and two outputs", devices, up, down, peer, requests)
		}
		text := scrapeText(t, w.metrics)
		copies, _ := simtest.CopiesOf(text)
		w.machine.Compare(copies)
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(line, "ensemble_copies_total") && !strings.Contains(line, `reason="device_step"`) && !strings.Contains(line, `reason="response"`) {
				t.Errorf("a move between steps: %s", line)
			}
		}
		if p, err := r.Plan("ens", -1); err != nil || p.Devices != 1<<devices-1 || !strings.Contains(p.Text(), "copy IN host -> device") {
			t.Errorf("plan %v, %v", p, err)
		}
	}
}

func scrapeText(tb testing.TB, x *telemetry.Metrics) string {
	tb.Helper()
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(x, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(context.Background(), "GET", "/metrics", nil))
	return rec.Body.String()
}

// TestInstanceGroupsAtDevices checks that the instance groups of backend sim select devices.
// shows: backends.sim
func TestInstanceGroupsAtDevices(t *testing.T) {
	cudatest.NotAtDevices(t, "it has devices of its own")
	t.Parallel()
	w := newWorld(t)
	w.more.BackendConfig = map[string]map[string]string{"sim": {"devices": "2"}}
	model := func(name, group string) string {
		return "-- " + name + "/1/ --\n-- " + name + `/config.pbtxt --
backend: "sim" max_batch_size: 8 parameters { key: "sim.backend" value { string_value: "identity" } }
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
` + group + "\n"
	}
	link := func(model, in, out string) string {
		return `step { model_name: "` + model + `" model_version: -1 input_map { key: "INPUT0" value: "` + in + `" } output_map { key: "OUTPUT0" value: "` + out + `" } }` + "\n"
	}
	r := w.repo(t, folder(t, model("anywhere", "")+model("second", "instance_group { kind: KIND_GPU gpus: 1 count: 2 }")+
		model("absent", "instance_group { kind: KIND_GPU gpus: 2 }")+
		ensemble("ens", link("anywhere", "IN", "A"), link("second", "A", "B"), link("anywhere", "B", "X"))))
	for i := range 10 {
		if got, err := send(t.Context(), r, w.request("ens", float32(i))); err != nil || got != float32(i) {
			t.Errorf("got %v, %v; want %d", got, err, i)
		}
	}
	p, err := r.Plan("ens", -1)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"at device:1 (its backend decides)\n", "at device:1 (KIND_GPU)\n", "copy IN host -> device:1 for step 0 input INPUT0, its size varies\n", "copy X device:1 -> host for the response, its size varies\n"} {
		if !strings.Contains(p.Text(), line) {
			t.Errorf("no %q in\n%s", line, p.Text())
		}
	}
	if text := scrapeText(t, w.metrics); strings.Contains(text, "device:0") || !strings.Contains(text, `ensemble_copies_total{direction="host_to_device",from="host",model="anywhere",reason="device_step",tensor="INPUT0",to="device:1",version="1"} 10`) {
		t.Errorf("requests were not bound to the one device where all steps can be:\n%s", text)
	}
	if got := failures(r)["absent"]; !strings.Contains(got, "2") {
		t.Errorf("a group at a device that is not there: %q", got)
	}
}

// sum returns a step that adds IN to the state S and outputs the sum as OUT and as S.
func sum() steps.Factory {
	port := func(name string) config.Port { return config.Port{Name: name, DType: tensor.FP32, Dims: tensor.Of(-1)} }
	f := stepOf("sum", true, func(_ context.Context, b *backends.Batch) error {
		for port := range b.Out {
			out, err := b.Alloc(port, tensor.FP32, b.In[0].Shape)
			if err != nil {
				return err
			}
			for i, v := range tensor.Slice[float32](&b.In[0]) {
				tensor.Slice[float32](out)[i] = v + tensor.Slice[float32](&b.In[1])[i]
			}
		}
		return nil
	})
	f.Signature = func(*steps.Settings) (*config.Signature, error) {
		return &config.Signature{Inputs: []config.Port{port("IN"), port("S")}, Outputs: []config.Port{port("OUT"), port("S_OUT")}}, nil
	}
	return f
}

// TestSequencesAtDevices checks sequences with state through two stateful models and one between them: states stay
// on their device, and all steps of a request run on one device.
func TestSequencesAtDevices(t *testing.T) {
	t.Parallel()
	const adder = `-- NAME/1/ --
-- NAME/config.pbtxt --
backend: "native" max_batch_size: 8 parameters { key: "step" value { string_value: "sum" } }
sequence_batching { STRATEGY {} max_sequence_idle_microseconds: 3600000000 state { input_name: "S" output_name: "S_OUT" data_type: TYPE_FP32 dims: [ -1 ] } }
`
	const sequences, length = 5, 4
	for _, tc := range []struct {
		devices  int
		strategy string
	}{{1, "oldest"}, {1, "direct"}, {2, "oldest"}, {2, "direct"}} {
		w := newWorld(t, sum())
		w.atDevices(t, tc.devices)
		text := strings.ReplaceAll(adder, "STRATEGY", tc.strategy)
		r := w.repo(t, folder(t, doubleModel+strings.ReplaceAll(text, "NAME", "first")+strings.ReplaceAll(text, "NAME", "last")+ensemble("ens",
			step("first", "-1", "IN", "A"), step("plain", "-1", "A", "B"), step("last", "-1", "B", "X"))))
		if f := failures(r); len(f) > 0 {
			t.Fatal(f)
		}
		before, _, _ := w.machine.Moved()
		var wg sync.WaitGroup
		for id := range uint64(sequences) {
			wg.Go(func() {
				first, last := float32(0), float32(0)
				for k := range length {
					req := w.request("ens", float32(int(id)+k))
					req.Sequence = infer.Sequence{ID: id + 1, Start: k == 0, End: k == length-1}
					first += float32(int(id) + k)
					last += 2 * first
					if got, err := send(t.Context(), r, req); err != nil || got != last {
						t.Errorf("request %d of sequence %d gave %v, %v; want %v", k, id, got, err, last)
					}
				}
			})
		}
		wg.Wait()
		// Besides the requests, initial states and padding rows are copied to the devices.
		up, down, peer := w.machine.Moved()
		if up -= before; up < sequences*length || up > sequences*length+int64(16*tc.devices) || down != sequences*length || peer != 0 {
			t.Errorf("%d devices: %d copies up, %d down and %d across for %d requests", tc.devices, up, down, peer, sequences*length)
		}
	}
}

// TestCacheAtDevices checks the response cache of models on a device and of an ensemble of them.
func TestCacheAtDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.atDevices(t, 1)
	store := local.New(local.Settings{Size: 1 << 20, Alloc: w.alloc})
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	w.more.Responses = store
	const kept = " response_cache { enable: true }\n"
	r := w.repo(t, folder(t, strings.TrimSuffix(doubleModel, "\n")+kept+
		ensemble("ens", step("plain", "-1", "IN", "A"), step("plain", "-1", "A", "X"))+kept))
	if f := failures(r); len(f) > 0 {
		t.Fatal(f)
	}
	for i, tc := range []struct {
		model   string
		in, out float32
		copies  int64 // in each direction, since the start
	}{
		{"ens", 1, 4, 1},
		{"ens", 1, 4, 1},
		{"ens", 2, 8, 2}, // the steps of the ensemble use no cache
		{"plain", 1, 2, 3},
		{"plain", 1, 2, 3},
		{"plain", 2, 4, 4},
		{"ens", 1, 4, 4},
	} {
		got, err := send(t.Context(), r, w.request(tc.model, tc.in))
		if up, down, peer := w.machine.Moved(); err != nil || got != tc.out || up != tc.copies || down != tc.copies || peer != 0 {
			t.Errorf("request %d gave %v, %v, after %d copies up and %d down, want %v after %d", i, got, err, up, down, tc.out, tc.copies)
		}
	}
}
