package wasm_test

import (
	"testing"

	w "github.com/tutti-server/tutti/backends/wasm/wasmtest"
	"github.com/tutti-server/tutti/core/tensor"
)

// FuzzResponse runs a module whose memory begins with the fuzzed bytes, and which returns the fuzzed address. Whatever the module
// returns, the execution ends with an output of the configured shape or an error.
func FuzzResponse(f *testing.F) {
	f.Add(int32(w.ResponseAt), append(make([]byte, w.ResponseAt), good(w.ResponseAt)...))
	f.Add(int32(8), w.Response(0, nil, []w.Failure{{Row: 0, Text: "x"}}))
	f.Add(int32(-1), []byte{1})
	f.Add(int32(0), w.Response(0, []w.Tensor{{Name: "OUT", Type: 13, Dims: []int64{1, 2}, Data: []byte{1, 0, 0, 0, 'a', 0, 0, 0, 0}}}, nil))
	f.Add(int32(0), w.Response(0, []w.Tensor{{Name: "OUT", Type: 8, Dims: []int64{1 << 62, 1 << 62}}}, nil))
	b := openBackend(f)
	f.Fuzz(func(t *testing.T, at int32, image []byte) {
		for _, kind := range []string{"INT32", "STRING"} {
			m := w.Module{Execute: w.I32(at), Data: []w.Data{{At: 0, Bytes: image[:min(len(image), w.BufferAt)]}}}
			s := settings(t, written(t, m.Bytes()), `max_batch_size: 4
				input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } output { name: "OUT" data_type: TYPE_`+kind+` dims: [ -1 ] }`)
			model, err := b.Load(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			x, err := model.NewInstance(t.Context(), tensor.Place{})
			if err != nil {
				t.Fatal(err)
			}
			batch := newBatch(t, 1, []int{1}, numbers(7))
			if err := x.Execute(t.Context(), batch); err == nil && batch.Requests[0].Err == nil {
				out := &batch.Out[0]
				if !out.Present() || out.Shape.Rank() != 2 || out.Shape.Dim(0) != 1 {
					t.Errorf("an output of shape %s", out.Shape)
				}
				if kind == "STRING" {
					if err := tensor.CheckBytes(out.Bytes(), out.Shape.Elements()); err != nil {
						t.Error(err)
					}
				}
			}
			_, _ = x.Close(), model.Close()
		}
	})
}
