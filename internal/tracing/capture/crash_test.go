package capture_test

import (
	"bytes"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// TestCrashes checks that requests that end processes are kept in a bounded number and size, and not if the server redacts.
func TestCrashes(t *testing.T) {
	t.Parallel()
	pool := tensor.NewPool()
	record := func(s *capture.Store, size int) string {
		in, err := tensor.New(pool, tensor.Uint8, tensor.Of(int64(size)))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Release()
		copy(in.Bytes(), bytes.Repeat([]byte{7}, size))
		return s.RecordCrash("m", 1, "r", []infer.Named{{Name: "IN", Tensor: in}})
	}
	reason := func(s *capture.Store, id string) string {
		list, err := s.Tensors(id, false)
		if err != nil {
			t.Fatal(err)
		}
		if x := list.List[0]; x.HasContent != (x.Reason == "") {
			t.Errorf("%+v", x)
		}
		return list.List[0].Reason
	}
	s := capture.New(capture.Settings{Bytes: 1 << 20, RequestBytes: 10_000})
	first := record(s, 100)
	if why := reason(s, first); why != "" {
		t.Errorf("the content is left out: %s", why)
	}
	for range 16 {
		record(s, 100)
	}
	if _, err := s.Tensors(first, false); err == nil {
		t.Error("the first of 17 requests is kept, expected the newest 16")
	}
	if all := s.Captures().Captures; len(all) != 1 || len(all[0].Snapshots) != 16 || all[0].Dropped != 1 || all[0].Active {
		t.Errorf("captures %+v", all)
	}
	if why := reason(s, record(s, 20_000)); why != "over the limit of 10000 bytes a request" {
		t.Errorf("a large request: %q", why)
	}
	redacting := capture.New(capture.Settings{Bytes: 1 << 20, RequestBytes: 10_000, RedactTensors: []string{"IMAGE"}})
	if why := reason(redacting, record(redacting, 100)); why != "redacted" {
		t.Errorf("a server that redacts: %q", why)
	}
	if id := record(capture.New(capture.Settings{Bytes: 100, RequestBytes: 100}), 10); id != "" {
		t.Errorf("a request beyond the memory of captures has the id %s", id)
	}
}
