package httpapi_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/shm"
)

// object creates a shared memory object and returns its key.
func object(t *testing.T, size int) string {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "httpapi-test-*")
	if err != nil {
		t.Skipf("no shared memory here: %v", err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	return "/" + filepath.Base(f.Name())
}

func TestSharedMemoryControl(t *testing.T) {
	t.Parallel()
	key := object(t, 128)
	s, _ := serve(t, func(set *httpapi.Settings) { set.Regions = shm.NewRegistry(true) })
	handle := base64.StdEncoding.EncodeToString(make([]byte, 64))
	const system, cuda = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
	lacks := func(field string) string {
		return `{"error":"Shared memory register request has no '` + field + `' field"}`
	}
	for _, tt := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", system + "/status", ``, 200, `[]`},
		{"GET", system + "/region/r/status", ``, 404, `{"error":"Unable to find system shared memory region: 'r'"}`},
		{"POST", system + "/region/r/register", `{"key":"` + key + `","byte_size":64}`, 200, ``},
		{"POST", system + "/region/q/register", `{"key":"` + key + `","offset":64,"byte_size":64,"x":1}`, 200, ``},
		{"POST", system + "/region/r/register", `{"key":"` + key + `","byte_size":64}`, 400, `{"error":"shared memory region 'r' already in manager"}`},
		{"GET", system + "/status", ``, 200, `[{"name":"q","key":"` + key + `","offset":64,"byte_size":64},{"name":"r","key":"` + key + `","offset":0,"byte_size":64}]`},
		{"GET", system + "/region/r/status", ``, 200, `[{"name":"r","key":"` + key + `","offset":0,"byte_size":64}]`},
		{"POST", system + "/region/n/register", `{"key":"/no-such-object","byte_size":64}`, 500, `{"error":"Unable to open shared memory region: '/no-such-object'"}`},
		{"POST", system + "/region/n/register", `{"key":"` + key + `","offset":65,"byte_size":64}`, 400, `{"error":"failed to register shared memory region 'n': invalid args"}`},
		{"POST", system + "/region/n/register", `{"byte_size":64}`, 400, lacks("key")},
		{"POST", system + "/region/n/register", ``, 500, `{"error":"failed to parse the request JSON buffer: The document is empty. at 0"}`},
		{"POST", system + "/region/n/register", `{"raw_handle":5,"byte_size":1}`, 400, lacks("key")},
		{"POST", system + "/region/n/register", `{"key":"k"}`, 400, lacks("byte_size")},
		{"POST", system + "/region/n/register", `{"key":1}`, 500, `{"error":"Unable to parse 'key': attempt to access JSON non-string as string"}`},
		{"POST", system + "/region/n/register", `{"key":"k","byte_size":-1}`, 500, `{"error":"Unable to parse 'byte_size': attempt to access JSON non-unsigned-integer as unsigned-integer"}`},
		{"POST", system + "/region/n/register", `{"key":`, 500, `{"error":"failed to parse the request JSON buffer: Invalid value. at 7"}`},
		{"POST", system + "/register", `{"key":"k","byte_size":1}`, 400, `{"error":"'region name' is necessary to register system shared memory region"}`},
		{"GET", system + "/region/n/register", ``, 405, `{"error":"Method Not Allowed"}`},
		{"POST", system + "/region/r/unregister", ``, 200, ``},
		{"POST", system + "/region/nope/unregister", ``, 200, ``},
		{"GET", system + "/region/r/status", ``, 404, `{"error":"Unable to find system shared memory region: 'r'"}`},
		{"POST", cuda + "/unregister", ``, 200, ``},
		{"GET", system + "/region/q/status", ``, 200, `[{"name":"q","key":"` + key + `","offset":64,"byte_size":64}]`},
		{"POST", system + "/unregister", ``, 200, ``},
		{"GET", system + "/status", ``, 200, `[]`},

		{"GET", cuda + "/status", ``, 200, `[]`},
		{"GET", cuda + "/region/c/status", ``, 404, `{"error":"Unable to find cuda shared memory region: 'c'"}`},
		{"POST", cuda + "/region/c/register", `{"raw_handle":{"b64":"` + handle + `"},"device_id":0,"byte_size":8}`, 400, `{"error":"failed to register shared memory region 'c': invalid args, GPUs not supported"}`},
		{"POST", cuda + "/region/c/register", `{"device_id":0,"byte_size":8}`, 400, lacks("raw_handle")},
		{"POST", cuda + "/region/c/register", `{"raw_handle":{"b64":"` + handle + `"},"device_id":0}`, 400, lacks("byte_size")},
		{"POST", cuda + "/region/c/register", `{"raw_handle":{"b64":"AAAA"},"device_id":0,"byte_size":8}`, 400, `{"error":"'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"}`},
		{"POST", cuda + "/region/c/register", `{"raw_handle":{},"device_id":0,"byte_size":8}`, 400, `{"error":"'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"}`},
		{"POST", cuda + "/register", `{}`, 400, `{"error":"'region name' is necessary to register cuda shared memory region"}`},
		{"POST", cuda + "/region/c/unregister", ``, 200, ``},
	} {
		code, _, got := call(t, tt.method, s.URL+tt.path, []byte(tt.body))
		if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.code {
			t.Errorf("%s %s: status %d, want %d (-want +got):\n%s", tt.path, tt.body, code, tt.code, diff)
		}
	}
}

// TestSharedMemoryControlDisabled tests the default.
func TestSharedMemoryControlDisabled(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	const want = `{"error":"Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."}`
	for _, kind := range []string{"/v2/systemsharedmemory", "/v2/cudasharedmemory"} {
		for _, end := range []string{"/register", "/region/r/register", "/unregister", "/region/r/unregister"} {
			if code, _, got := call(t, "POST", s.URL+kind+end, []byte(`{`)); code != 501 || got != want {
				t.Errorf("%s: %d %s", kind+end, code, got)
			}
		}
		if code, _, got := call(t, "GET", s.URL+kind+"/status", nil); code != 200 || got != "[]" {
			t.Errorf("%s/status: %d %s", kind, code, got)
		}
	}
}
