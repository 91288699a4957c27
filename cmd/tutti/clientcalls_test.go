package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
)

// connections returns a client of a server for each way of sending.
func connections(t *testing.T, a addresses) map[string]client.Conn {
	t.Helper()
	byGRPC, err := client.Dial("grpc://" + a.grpc)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]client.Conn{
		"binary": client.NewHTTP("http://"+a.http, nil), "json": client.NewHTTP("http://"+a.http, &client.HTTPOptions{JSON: true}), "grpc": byGRPC,
	}
	t.Cleanup(func() {
		for _, c := range all {
			_ = c.Close()
		}
	})
	return all
}

// refusal checks that err is an *Error with a text.
func refusal(t *testing.T, what string, err error, text string) {
	t.Helper()
	if e, ok := errors.AsType[*client.Error](err); !ok || !strings.Contains(e.Text, text) || e.Status == "" {
		t.Errorf("%s: %v, expected a refusal with %q", what, err, text)
	}
}

// TestClientHealth checks health and metadata over each protocol.
func TestClientHealth(t *testing.T) {
	t.Parallel()
	for way, c := range connections(t, clientServer(t)) {
		live, err := c.Live(t.Context())
		ready, failed := c.Ready(t.Context())
		if !live || !ready || err != nil || failed != nil {
			t.Errorf("%s: live %v, %v, ready %v, %v", way, live, err, ready, failed)
		}
		for model, want := range map[[2]string]bool{{"rank", ""}: true, {"rank", "1"}: true, {"rank", "9"}: false, {"none", ""}: false} {
			if got, err := c.ModelReady(t.Context(), model[0], model[1]); got != want || err != nil {
				t.Errorf("%s: ModelReady(%v) = %v, %v", way, model, got, err)
			}
		}
		s, err := c.Server(t.Context())
		if err != nil || s.Name != "triton" || s.Version == "" || !slices.Contains(s.Extensions, "sequence") {
			t.Errorf("%s: %+v, %v", way, s, err)
		}
	}
}

// TestClientSequence checks that requests of a sequence share their state over each protocol.
func TestClientSequence(t *testing.T) {
	t.Parallel()
	id := uint64(1)
	for way, c := range connections(t, clientServer(t)) {
		for _, s := range []client.Sequence{{ID: id}, {Name: "name-" + way}} {
			var sums []int32
			for i, n := range []int32{5, 6, 7} {
				s.Start, s.End = i == 0, i == 2
				resp, err := c.Infer(t.Context(), &client.Request{Model: "sum", Inputs: []client.Tensor{client.Of("INPUT", []int64{1, 1}, n)}, Sequence: &s})
				if err != nil {
					t.Fatal(err)
				}
				sum, err := client.Values[int32](resp.Output("OUTPUT"))
				if err != nil {
					t.Fatal(err)
				}
				sums = append(sums, sum...)
			}
			if d := cmp.Diff([]int32{5, 11, 18}, sums); d != "" {
				t.Errorf("%s (-want +got): %s", way, d)
			}
		}
		_, err := c.Infer(t.Context(), &client.Request{Model: "sum", Inputs: []client.Tensor{client.Of("INPUT", []int64{1, 1}, int32(1))}, Sequence: &client.Sequence{ID: 99}})
		refusal(t, way, err, "must specify the START flag")
		id++
	}
}

// TestClientShared checks inputs and outputs in shared memory, and the regions of a server, over each protocol.
func TestClientShared(t *testing.T) {
	t.Parallel()
	for way, c := range connections(t, clientServer(t)) {
		m, err := client.CreateShared(fmt.Sprintf("/tutti-%d-%s", os.Getpid(), way), 4096)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.RegisterSystem(t.Context(), "all", m.Key, 0, 4096); err != nil {
			t.Fatal(err)
		}
		if err := c.RegisterSystem(t.Context(), "end", m.Key, 4000, 96); err != nil {
			t.Fatal(err)
		}
		refusal(t, way, c.RegisterSystem(t.Context(), "none", m.Key+"-none", 0, 1), "none")
		if err := c.RegisterSystem(t.Context(), "", m.Key, 0, 1); err == nil {
			t.Errorf("%s: a region without a name", way)
		}
		list, err := c.SystemRegions(t.Context(), "end")
		if d := cmp.Diff([]client.SystemRegion{{Name: "end", Key: m.Key, Offset: 4000, Size: 96}}, list); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got): %s", way, err, d)
		}
		if list, err := c.SystemRegions(t.Context(), ""); err != nil || len(list) != 2 {
			t.Errorf("%s: %v, %v", way, list, err)
		}
		in := client.Of("scores", []int64{1, 3}, float32(0.5), 2, 1)
		n := copy(m.Bytes[64:], in.Data)
		at := client.Region{Name: "end", Offset: 8, Size: 8}
		resp, err := c.Infer(t.Context(), &client.Request{
			Model: "rank", Inputs: []client.Tensor{{Name: "scores", DType: tensor.FP32, Shape: in.Shape, Region: &client.Region{Name: "all", Offset: 64, Size: uint64(n)}}},
			Outputs: []string{"labels", "values"}, Regions: map[string]client.Region{"values": at},
		})
		if err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		labels, err := resp.Output("labels").Strings()
		if d := cmp.Diff([]string{"dog", "fox"}, labels); err != nil || d != "" {
			t.Errorf("%s: %v, %s", way, err, d)
		}
		values := resp.Output("values")
		if values == nil || values.Region == nil || values.Region.Name != "end" || len(values.Data) > 0 {
			t.Fatalf("%s: the output in shared memory is %+v", way, values)
		}
		out, err := m.Tensor(values, client.Region{Offset: 4008, Size: 8})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := client.Values[float32](&out); err != nil || got[0] < 0.62 || got[0] > 0.63 {
			t.Errorf("%s: %v, %v", way, got, err)
		}
		if err := errors.Join(c.UnregisterSystem(t.Context(), "end"), c.UnregisterSystem(t.Context(), ""), m.Close()); err != nil {
			t.Error(err)
		}
		if list, err := c.SystemRegions(t.Context(), ""); err != nil || len(list) != 0 {
			t.Errorf("%s: %v, %v", way, list, err)
		}
		// This server has no GPU: its refusal says so.
		refusal(t, way, c.RegisterCUDA(t.Context(), "gpu", make([]byte, 64), 0, 1), "")
		if list, err := c.CUDARegions(t.Context(), ""); err != nil || len(list) != 0 {
			t.Errorf("%s: %v, %v", way, list, err)
		}
		if err := c.UnregisterCUDA(t.Context(), ""); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
}

// TestClientControl checks loads with a configuration and files, and settings of traces and the log, over each protocol.
func TestClientControl(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	a := serve(t, "--model-repository="+clientModels(t), "--model-control-mode=explicit", "--load-model=rank", "--backend-config=onnxruntime,library-path="+requireRuntime(t),
		"--trace-config=mode=triton", "--trace-config=triton,file="+filepath.Join(t.TempDir(), "trace.json"))
	model, err := os.ReadFile(starterModels + "/integers.onnx")
	if err != nil {
		t.Fatal(err)
	}
	for way, c := range connections(t, a) {
		o := &client.LoadOptions{Config: `{"backend": "onnxruntime"}`, Files: map[string][]byte{"3/model.onnx": model}}
		if err := c.LoadWith(t.Context(), "sent", o); err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		two := func(name string) client.Tensor { return client.Of(name, []int64{2, 3}, int64(1), 2, 3, 4, 5, 6) }
		resp, err := c.Infer(t.Context(), &client.Request{Model: "sent", Version: "3", Inputs: []client.Tensor{two("A"), two("B")}})
		if err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		if sum, err := client.Values[int64](resp.Output("A_plus_B")); err != nil || sum[5] != 12 || resp.Version != "3" {
			t.Errorf("%s: %v, %v", way, resp, err)
		}
		if err := c.Unload(t.Context(), "sent", false); err != nil {
			t.Error(err)
		}
		refusal(t, way, c.LoadWith(t.Context(), "sent", &client.LoadOptions{Config: `{"backend": `}), "")
		refusal(t, way, c.Load(t.Context(), "nothing"), "nothing")

		was, err := c.TraceSettings(t.Context(), "rank")
		if err != nil || len(was["trace_level"]) == 0 {
			t.Fatalf("%s: %v, %v", way, was, err)
		}
		now, err := c.SetTrace(t.Context(), "rank", client.TraceSettings{"trace_rate": {"77"}, "trace_level": {"TIMESTAMPS"}})
		if err != nil || !slices.Equal(now["trace_rate"], []string{"77"}) || !slices.Equal(now["trace_level"], []string{"TIMESTAMPS"}) {
			t.Errorf("%s: %v, %v", way, now, err)
		}
		if now, err = c.SetTrace(t.Context(), "rank", client.TraceSettings{"trace_rate": nil, "trace_level": nil}); err != nil || !cmp.Equal(now, was) {
			t.Errorf("%s: reset to %v, %v; want %v", way, now, err, was)
		}
		_, err = c.SetTrace(t.Context(), "", client.TraceSettings{"trace_rate": {"often"}})
		refusal(t, way, err, "often")

		logs, err := c.SetLog(t.Context(), client.LogSettings{"log_verbose_level": uint32(1), "log_info": true})
		if err != nil || logs["log_verbose_level"] != uint32(1) || logs["log_info"] != true {
			t.Errorf("%s: %v, %v", way, logs, err)
		}
		if logs, err = c.SetLog(t.Context(), client.LogSettings{"log_verbose_level": uint32(0)}); err != nil || logs["log_verbose_level"] != uint32(0) {
			t.Errorf("%s: %v, %v", way, logs, err)
		}
		if logs, err = c.LogSettings(t.Context()); err != nil || logs["log_format"] != "default" {
			t.Errorf("%s: %v, %v", way, logs, err)
		}
		_, err = c.SetLog(t.Context(), client.LogSettings{"log_format": "poem"})
		refusal(t, way, err, "poem")
	}
}
