package httpapi_test

import (
	"context"
	"encoding/binary"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/shm"
)

// region is a registered POSIX object of 64 bytes, and its file.
func region(t *testing.T, name string) (*shm.Registry, *os.File) {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "tutti-test-")
	if err != nil {
		t.Skip("no shared memory here: ", err)
	}
	t.Cleanup(func() { _ = f.Close(); _ = os.Remove(f.Name()) })
	if err := f.Truncate(64); err != nil {
		t.Fatal(err)
	}
	r := shm.NewRegistry(true)
	if err := r.RegisterSystem(name, strings.TrimPrefix(f.Name(), "/dev/shm"), 0, 64); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Every request has let go of it.
		if err := r.Unregister(shm.System, ""); err != nil {
			t.Error(err)
		}
		if left, err := r.Status(shm.System, ""); err != nil || len(left) > 0 {
			t.Errorf("regions still in use: %v, %v", left, err)
		}
	})
	return r, f
}

func shared(offset, size int) string {
	s := `"parameters":{"shared_memory_region":"r","shared_memory_byte_size":` + strconv.Itoa(size)
	if offset > 0 {
		s += `,"shared_memory_offset":` + strconv.Itoa(offset)
	}
	return s + "}"
}

func TestSharedMemory(t *testing.T) {
	t.Parallel()
	r, f := region(t, "r")
	s, _ := serve(t, func(set *httpapi.Settings) { set.Regions = r })
	if _, err := f.WriteAt([]byte{1, 0, 0, 0, 2, 0, 0, 0}, 8); err != nil {
		t.Fatal(err)
	}
	in := `{"id":"7","inputs":[{"name":"X","shape":[2],"datatype":"INT32",` + shared(8, 8) + `}],"outputs":[{"name":"X",` + shared(32, 16) + `}]}`
	code, h, got := call(t, "POST", s.URL+inferPath, []byte(in))
	want := `{"id":"7","model_name":"echo","model_version":"1","outputs":[{"name":"X","datatype":"INT32","shape":[2]}]}`
	if diff := cmp.Diff(want, got); diff != "" || code != http.StatusOK || h.Get("Content-Type") != "application/json" {
		t.Errorf("status %d, headers %v (-want +got):\n%s", code, h, diff)
	}
	var b [8]byte
	if _, err := f.ReadAt(b[:], 32); err != nil || binary.LittleEndian.Uint64(b[:]) != 2<<32|1 {
		t.Errorf("the region holds %v, %v", b, err)
	}
	// Together with the other kinds of inputs and outputs.
	head := `{"inputs":[{"name":"A","shape":[2],"datatype":"INT32",` + shared(8, 8) + `},{"name":"B","shape":[2],"datatype":"FP16","parameters":{"binary_data_size":4}},` +
		`{"name":"C","shape":[1],"datatype":"BOOL","data":[true]}],"outputs":[{"name":"B",` + shared(0, 4) + `},` +
		`{"name":"A","parameters":{"binary_data":true}},{"name":"C"}]}`
	code, _, got = call(t, "POST", s.URL+inferPath, []byte(head+"abcd"), lengthHeader, strconv.Itoa(len(head)))
	want = `{"model_name":"echo","model_version":"1","outputs":[{"name":"B","datatype":"FP16","shape":[2]},` +
		`{"name":"A","datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}},{"name":"C","datatype":"BOOL","shape":[1],"data":[true]}]}` +
		"\x01\x00\x00\x00\x02\x00\x00\x00"
	if diff := cmp.Diff(want, got); diff != "" || code != http.StatusOK {
		t.Errorf("status %d (-want +got):\n%s", code, diff)
	}
	if _, err := f.ReadAt(b[:4], 0); err != nil || string(b[:4]) != "abcd" {
		t.Errorf("the region holds %q, %v", b[:4], err)
	}
}

// shows: shm.errors
func TestSharedMemoryErrors(t *testing.T) {
	t.Parallel()
	r, _ := region(t, "r")
	s, _ := serve(t, func(set *httpapi.Settings) { set.Regions = r })
	from := func(place string) string { return input(`"shape":[2],"datatype":"INT32",` + place) }
	to := func(place string) string {
		return `{"outputs":[{"name":"X",` + place + `}],` + from(`"data":[1,2]`)[1:]
	}
	tests := []struct {
		name, body string
		code       int
		want       string
	}{
		{"unknown", from(`"parameters":{"shared_memory_region":"s","shared_memory_byte_size":8}`), 404, "Unable to find shared memory region: 's'"},
		{"offset", from(shared(64, 8)), 400, "Invalid offset for shared memory region: 'r'"},
		{"end", from(shared(60, 8)), 400, "Invalid offset + byte size for shared memory region: 'r'"},
		{"too few bytes", from(shared(0, 4)), 400, "[request id: <id_unknown>] input byte size mismatch for input 'X' for model 'echo'. Expected 8, got 4"},
		{"no size", from(`"parameters":{"shared_memory_region":"r"}`), 400, "[request id: <id_unknown>] input byte size mismatch for input 'X' for model 'echo'. Expected 8, got 0"},
		{"no strings", input(`"shape":[1],"datatype":"BYTES",` + shared(0, 2)), 400, "[request id: <id_unknown>] incomplete string length indicator for inference input 'X' for model 'echo', expecting 4 bytes but only 2 bytes available"},
		{"shape", input(`"shape":[9223372036854775807,3],"datatype":"INT32",` + shared(0, 8)), 400, "invalid shape for input 'X': shape [9223372036854775807,3] causes total element count to exceed maximum size of 9223372036854775807"},
		{"unknown for an output", to(`"parameters":{"shared_memory_region":"s","shared_memory_byte_size":8}`), 404, "Unable to find shared memory region: 's'"},
		{"output too large", to(shared(0, 4)), 500, "shared memory size specified with the request for output 'X' (4 bytes) should be at least 8 bytes to hold the results"},
		{"output beyond", to(shared(60, 8)), 400, "Invalid offset + byte size for shared memory region: 'r'"},
		{"second output bad", `{"outputs":[{"name":"X",` + shared(0, 8) + `},{"name":"Y",` + shared(70, 8) + `}],` + from(`"data":[1,2]`)[1:], 400, "Invalid offset for shared memory region: 'r'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, _, got := call(t, "POST", s.URL+inferPath, []byte(tt.body))
			if want := `{"error":"` + tt.want + `"}`; code != tt.code || got != want {
				t.Errorf("got status %d, %s, want %d, %s", code, got, tt.code, want)
			}
		})
	}
}

// described describes the model echo with the settings of a test.
type described struct {
	infer.Catalog
	as infer.Description
}

func (d described) Describe(model string, version int64) (*infer.Description, error) {
	if model != "echo" {
		return d.Catalog.Describe(model, version)
	}
	return &d.as, nil
}

// shows: infer.classification
func TestClassification(t *testing.T) {
	t.Parallel()
	labels := infer.Port{Name: "X", Labels: []string{"cat", "dog"}}
	for _, tt := range []struct {
		name, in, want string
		as             infer.Description
	}{
		{
			"without labels", `{"outputs":[{"name":"X","parameters":{"classification":2}}],"inputs":[{"name":"X","shape":[3],"datatype":"FP32","data":[0.25,3,1]}]}`,
			output(`"datatype":"BYTES","shape":[2],"data":["3.000000:1","1.000000:2"]`),
			infer.Description{},
		},
		{
			"with some labels", `{"outputs":[{"name":"X","parameters":{"classification":9}}],"inputs":[{"name":"X","shape":[3],"datatype":"INT32","data":[-1,3,1]}]}`,
			output(`"datatype":"BYTES","shape":[3],"data":["3:1:dog","1:2","-1:0:cat"]`),
			infer.Description{Outputs: []infer.Port{labels}},
		},
		{
			"a batch", `{"outputs":[{"name":"X","parameters":{"classification":1}}],"inputs":[{"name":"X","shape":[2,2],"datatype":"UINT8","data":[1,2,4,3]}]}`,
			output(`"datatype":"BYTES","shape":[2,1],"data":["2:1:dog","4:0:cat"]`),
			infer.Description{MaxBatch: 8, Outputs: []infer.Port{labels}},
		},
		{
			"in binary", `{"outputs":[{"name":"X","parameters":{"classification":1,"binary_data":true}}],"inputs":[{"name":"X","shape":[2],"datatype":"UINT8","data":[1,2]}]}`,
			output(`"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":7}`) + "\x03\x00\x00\x002:1",
			infer.Description{},
		},
		{
			"none", `{"outputs":[{"name":"X","parameters":{"classification":0}}],"inputs":[{"name":"X","shape":[2],"datatype":"UINT8","data":[1,2]}]}`,
			output(`"datatype":"UINT8","shape":[2],"data":[1,2]`),
			infer.Description{},
		},
		{
			"of strings", `{"outputs":[{"name":"X","parameters":{"classification":1}}],"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":["a"]}]}`,
			`{"error":"class result not available for output due to unsupported type 'BYTES'"}`,
			infer.Description{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, _ := serve(t, func(set *httpapi.Settings) { set.Catalog = described{set.Catalog, tt.as} })
			_, _, got := call(t, "POST", s.URL+inferPath, []byte(tt.in))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecoupledInfer sends requests to a decoupled model, which are rejected before the body is read.
func TestDecoupledInfer(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, func(set *httpapi.Settings) {
		set.Catalog = described{set.Catalog, infer.Description{Decoupled: true}}
	})
	for _, body := range []string{goodInput, "{", ""} {
		code, _, got := call(t, "POST", s.URL+inferPath, []byte(body), "Content-Encoding", "zip")
		if want := `{"error":"HTTP end point doesn't support models with decoupled transaction policy"}`; code != status.Unsupported.HTTP() || got != want {
			t.Errorf("%q: status %d, %s", body, code, got)
		}
	}
}

// TestRegionInUse checks that regions cannot be unregistered during a request, and can after its response.
//
// shows: shm.use
func TestRegionInUse(t *testing.T) {
	t.Parallel()
	for _, parts := range []string{
		`"inputs":[{"name":"X","shape":[2],"datatype":"INT32",` + shared(0, 8) + `}]`,
		`"inputs":[{"name":"X","shape":[2],"datatype":"INT32","data":[1,2]}],"outputs":[{"name":"X",` + shared(8, 8) + `}]`,
	} {
		r, _ := region(t, "r")
		s, e := serve(t, func(set *httpapi.Settings) { set.Regions = r })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v2/models/wait/infer", strings.NewReader("{"+parts+"}"))
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
				t.Error("the request has a response")
			}
		}()
		<-e.Waiting
		for path, want := range map[string]string{
			"/region/r/unregister": "Cannot unregister shared memory region 'r', it is currently in use.",
			"/unregister":          "Failed to unregister the following system shared memory regions: r ,",
		} {
			code, _, got := call(t, "POST", s.URL+"/v2/systemsharedmemory"+path, nil)
			if code != http.StatusInternalServerError || got != `{"error":"`+want+`"}` {
				t.Errorf("%s: got status %d, %s, want %s", path, code, got, want)
			}
		}
		cancel()
		<-e.Cancelled
		<-done
	}
}

// TestRegionFreeAfterResponse unregisters a region as soon as the response has arrived.
func TestRegionFreeAfterResponse(t *testing.T) {
	t.Parallel()
	r, f := region(t, "r")
	address, _ := listen(t, func(set *httpapi.Settings) { set.Regions = r })
	good := `{"inputs":[{"name":"X","shape":[2],"datatype":"INT32",` + shared(0, 8) + `}],"outputs":[{"name":"X",` + shared(8, 8) + `}]}`
	key := strings.TrimPrefix(f.Name(), "/dev/shm")
	for _, in := range []string{good, strings.Replace(good, "[2]", "[3]", 1), strings.Replace(good, "INT32", "INT33", 1)} {
		for range 50 {
			call(t, "POST", "http://"+address+inferPath, []byte(in))
			if err := r.Unregister(shm.System, "r"); err != nil {
				t.Fatalf("%s: %v", in, err)
			}
			if err := r.RegisterSystem("r", key, 0, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
}
