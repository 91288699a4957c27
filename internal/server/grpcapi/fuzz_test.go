package grpcapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// seeds returns encoded requests, valid and invalid.
func seeds(tb testing.TB) [][]byte {
	tb.Helper()
	list := [][]byte{
		{0x3a, 0x05, 'a'},             // truncated
		{0x0a, 0x02, 0xff, 0xfe},      // invalid UTF-8
		{0x43, 0x08, 0x01, 0x44},      // a group
		{0x3a, 0x01, 'r', 0x43, 0x44}, // a group after contents
		{0x44},                        // the end of no group
		{0x00, 0x01},                  // field 0
		{0x2a, 0x04, 0x18, 0x01, 0x18, 0x02, 0x3a, 0x01, 'r'},                   // shape not packed
		{0x2a, 0x06, 0x2a, 0x00, 0x2a, 0x02, 0x10, 0x05},                        // contents in two parts
		{0x2a, 0x07, 0x2a, 0x05, 0x32, 0x03, 1, 2, 3},                           // part of a float
		{0x2a, 0x08, 0x2a, 0x06, 0x35, 1, 2, 3, 4, 0x30},                        // float not packed
		{0x22, 0x06, 0x0a, 0x01, 'k', 0x12, 0x01, 0x08, 0x22, 0x00},             // truncated parameter
		{0xba, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f, 0x01, 'r'}, // tag too long
	}
	for _, text := range []string{
		`model_name: "echo" inputs { name: "X" datatype: "BYTES" shape: 1 } raw_input_contents: "\001\000\000\000a"`,
		`model_name: "echo" inputs { name: "X" datatype: "INT8" shape: 2 contents { int_contents: [1, -2] } } outputs { name: "X" }`,
		`model_name: "params" parameters { key: "sequence_id" value { int64_param: 1 } } parameters { key: "k" value { double_param: 1 } }`,
		`id: "7" model_version: "1" inputs { name: "A" datatype: "UINT8" shape: 3 parameters { key: "shared_memory_region" value { string_param: "r" } } }`,
		`inputs { contents { bool_contents: true int64_contents: -1 uint_contents: 300 uint64_contents: 1 fp32_contents: 1 fp64_contents: 2 bytes_contents: "ab" } }`,
		`outputs { name: "X" parameters { key: "classification" value { int64_param: 2 } } parameters { key: "b" value { bool_param: true } } }`,
	} {
		m := new(inference.ModelInferRequest)
		if err := prototext.Unmarshal([]byte(text), m); err != nil {
			tb.Fatal(err)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, b)
	}
	return list
}

// FuzzParse compares the parser with the generated one, for any division of the message into buffers.
func FuzzParse(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b, uint8(1))
		f.Add(b, uint8(200))
	}
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		want := new(inference.ModelInferRequest)
		refused := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want)
		got, err := grpcapi.Parse(grpcapi.Chunks(b, int(n)+1))
		if (refused == nil) != (err == nil) {
			t.Fatalf("parsed: %v, want %v", err, refused)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" && !hasNaN(want) {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// hasNaN reports whether a message contains a NaN: it then differs from itself.
func hasNaN(m *inference.ModelInferRequest) bool { return !cmp.Equal(m, m, protocmp.Transform()) }

// FuzzModelInfer checks that no message crashes or hangs the server or leaks memory.
func FuzzModelInfer(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b, uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		m := new(inference.ModelInferRequest)
		if proto.Unmarshal(b, m) == nil && m.ModelName == "wait" {
			return
		}
		e := servertest.NewEcho()
		end := grpcapi.NewEndpoint(grpcapi.Settings{Infer: e, Catalog: e, Alloc: tensortest.NewChecked(t, nil)})
		out, err := end.Infer(t.Context(), grpcapi.Chunks(b, int(n)+1))
		if err != nil {
			return
		}
		defer out.Free()
		resp := new(inference.ModelInferResponse)
		if err := proto.Unmarshal(out.Materialize(), resp); err != nil {
			t.Fatal(err)
		}
		if len(resp.GetOutputs()) != len(resp.GetRawOutputContents()) {
			t.Errorf("%d outputs, %d contents", len(resp.GetOutputs()), len(resp.GetRawOutputContents()))
		}
	})
}
