//go:build cgo

package tutti_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/proto/inference"
)

// ints returns n INT32 values from first.
func ints(first, n int) []byte {
	var b []byte
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, uint32(first+i))
	}
	return b
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// in and out are tensors of 4 INT32 in a region.
func in(n int, region string, off int) regionTensor {
	return regionTensor{name: fmt.Sprintf("INPUT%d", n), dtype: "INT32", shape: []int64{1, 4}, region: region, off: off, size: 16}
}

func out(n int, region string, off, size int) regionTensor {
	return regionTensor{name: fmt.Sprintf("OUTPUT%d", n), region: region, off: off, size: size}
}

func plain(n, first int) regionTensor {
	return regionTensor{name: fmt.Sprintf("INPUT%d", n), dtype: "INT32", shape: []int64{1, 4}, data: ints(first, 4)}
}

// TestCUDARegions infers with inputs and outputs in device memory of another process: at the model's device, at another, at a bad
// alignment, for a model on the host, mixed with plain tensors, through an ensemble over device and host, and from a cache.
// shows: shm.cuda
func TestCUDARegions(t *testing.T) {
	a, doors := serveRegions(t)
	for name, door := range doors {
		t.Run(name, func(t *testing.T) {
			c := cudatest.NewClient(t)
			x, y, z := c.Alloc(0, 1024), c.Alloc(0, 1024), c.Alloc(1, 1024)
			must(t, door.register("x", x.Handle, 0, 1024))
			must(t, door.register("y", y.Handle, 0, 1000))
			must(t, door.register("z", z.Handle, 1, 1024))
			if got := door.regions(); fmt.Sprint(got) != "map[x:[0 1024] y:[0 1000] z:[1 1024]]" {
				t.Errorf("regions %v", got)
			}
			x.Write(0, ints(100, 4))
			x.Write(260, ints(200, 4)) // not aligned
			z.Write(512, ints(300, 4))
			for i, tt := range []struct {
				model   string
				in, out []regionTensor
				want    [2][]byte // at y 0 and 512, or in the response where that is plain
			}{
				{"gpu0", []regionTensor{in(0, "x", 0), in(1, "x", 260)}, []regionTensor{out(0, "y", 0, 16), out(1, "y", 512, 400)}, [2][]byte{ints(100, 4), ints(200, 4)}},
				{"gpu1", []regionTensor{in(0, "x", 0), in(1, "z", 512)}, []regionTensor{out(0, "y", 0, 16), out(1, "y", 512, 16)}, [2][]byte{ints(100, 4), ints(300, 4)}},
				{"host", []regionTensor{in(0, "z", 512), in(1, "x", 0)}, []regionTensor{out(0, "y", 0, 16), out(1, "y", 512, 16)}, [2][]byte{ints(300, 4), ints(100, 4)}},
				{"gpu0", []regionTensor{plain(0, 7), in(1, "x", 0)}, []regionTensor{out(0, "y", 0, 16), out(1, "", 0, 0)}, [2][]byte{ints(7, 4), ints(100, 4)}},
				{"host", []regionTensor{plain(0, 7), in(1, "x", 0)}, []regionTensor{out(0, "", 0, 0), out(1, "y", 512, 16)}, [2][]byte{ints(7, 4), ints(100, 4)}},
				{"chain", []regionTensor{in(0, "x", 260)}, []regionTensor{out(0, "y", 0, 16)}, [2][]byte{ints(200, 4)}},
				{"cached", []regionTensor{plain(0, 40)}, []regionTensor{out(0, "y", 0, 16)}, [2][]byte{ints(40, 4)}},
				{"cached", []regionTensor{plain(0, 40)}, []regionTensor{out(0, "y", 0, 16)}, [2][]byte{ints(40, 4)}}, // a hit
			} {
				y.Write(0, make([]byte, 1000))
				got, err := door.infer(tt.model, tt.in, tt.out, nil)
				if err != nil {
					t.Errorf("%d, %s: %v", i, tt.model, err)
					continue
				}
				for n, o := range tt.out {
					b := got[o.name]
					if o.region != "" {
						if len(b) > 0 {
							t.Errorf("%d, %s: the response holds %s", i, tt.model, o.name)
						}
						b = y.Read(o.off, len(tt.want[n]))
					}
					if !bytes.Equal(b, tt.want[n]) {
						t.Errorf("%d, %s: %s is %v, want %v", i, tt.model, o.name, b, tt.want[n])
					}
				}
			}
			// The client may write its memory and send the next request at once: nothing remembers the last content.
			for i := range 20 {
				x.Write(0, ints(1000+i, 4))
				if _, err := door.infer("gpu0", []regionTensor{in(0, "x", 0), in(1, "x", 0)}, []regionTensor{out(0, "y", 0, 16)}, nil); err != nil {
					t.Fatal(err)
				}
				if got := y.Read(0, 16); !bytes.Equal(got, ints(1000+i, 4)) {
					t.Fatalf("request %d wrote %v", i, got)
				}
			}
			must(t, door.unregister("x"))
			must(t, door.unregister(""))
			if got := door.regions(); len(got) != 0 {
				t.Errorf("regions %v are left", got)
			}
		})
	}
	// Per door. Inputs at their model's device and outputs go from device to device; nothing else passes the host.
	want := []string{
		"cached INPUT0 host device:0 device_step 1", // the miss: the cache stores what the host holds
		"cached OUTPUT0 device:0 pinned response 1",
		"cached OUTPUT0 pinned device:0 response 1",
		"cached OUTPUT0 host device:0 response 5",
		"chain INPUT0 device:0 device:0 device_step 3", // not aligned, as INPUT1 of gpu0
		"chain OUTPUT0 device:0 device:0 response 3",
		"gpu0 INPUT0 host device:0 device_step 3",
		"gpu0 INPUT1 device:0 device:0 device_step 3",
		"gpu0 OUTPUT0 device:0 device:0 response 66",
		"gpu0 OUTPUT1 device:0 device:0 response 3",
		"gpu0 OUTPUT1 device:0 pinned response 3",
		"gpu1 INPUT0 device:0 device:1 other_device 3",
		"gpu1 OUTPUT0 device:1 device:0 response 3",
		"gpu1 OUTPUT1 device:1 device:0 response 3",
		"host INPUT0 device:1 pinned host_step 3",
		"host INPUT1 device:0 pinned host_step 6",
		"host OUTPUT0 pinned device:0 response 3",
		"host OUTPUT1 pinned device:0 response 6",
		"one0 INPUT0 pinned device:0 device_step 3",
		"onehost INPUT0 device:0 pinned host_step 3",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, copiesOf(t, a)); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
}

// TestCUDARegionSequences sends sequences, and a request with several responses, whose tensors are in regions.
func TestCUDARegionSequences(t *testing.T) {
	_, doors := serveRegions(t)
	c := cudatest.NewClient(t)
	x, y := c.Alloc(0, 64), c.Alloc(1, 64)
	must(t, doors["http"].register("x", x.Handle, 0, 64))
	must(t, doors["http"].register("y", y.Handle, 1, 64))
	number := 0
	for name, door := range doors {
		number++
		for i := range 4 {
			x.Write(0, ints(10*number+i, 4))
			_, err := door.infer("sequence", []regionTensor{in(0, "x", 0), plain(1, 5)}, []regionTensor{out(0, "y", 32, 16)},
				map[string]any{"sequence_id": number, "sequence_start": i == 0, "sequence_end": i == 3})
			must(t, err)
			if got := y.Read(32, 16); !bytes.Equal(got, ints(10*number+i, 4)) {
				t.Errorf("%s, request %d: %v", name, i, got)
			}
		}
	}
	door := doors["stream"].(grpcDoor) //nolint:forcetypeassert // see serveRegions
	stream, err := door.client.ModelStreamInfer(t.Context())
	must(t, err)
	for round := range 3 {
		x.Write(0, ints(round, 4))
		input, output := in(0, "x", 0), out(0, "y", 0, 16)
		must(t, stream.Send(&inference.ModelInferRequest{
			ModelName: "decoupled",
			Inputs:    []*inference.ModelInferRequest_InferInputTensor{{Name: input.name, Datatype: input.dtype, Shape: input.shape, Parameters: input.params()}},
			Outputs:   []*inference.ModelInferRequest_InferRequestedOutputTensor{{Name: output.name, Parameters: output.params()}},
		}))
		for n := range 3 {
			resp, err := stream.Recv()
			must(t, err)
			o := resp.GetInferResponse().GetOutputs()
			if resp.GetErrorMessage() != "" || len(o) != 1 || o[0].GetParameters()["shared_memory_byte_size"].GetInt64Param() != 16 {
				t.Fatalf("response %d is %v", n, resp)
			}
			if got := y.Read(0, 16); !bytes.Equal(got, ints(round, 4)) {
				t.Errorf("round %d, response %d: %v", round, n, got)
			}
		}
	}
	must(t, stream.CloseSend())
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	must(t, doors["grpc"].unregister(""))
}

// TestCUDARegionStrings checks BYTES in device memory, which the server copies to the host and checks there.
func TestCUDARegionStrings(t *testing.T) {
	_, doors := serveRegions(t)
	for name, door := range doors {
		t.Run(name, func(t *testing.T) {
			c := cudatest.NewClient(t)
			x, y := c.Alloc(0, 256), c.Alloc(1, 256)
			must(t, door.register("x", x.Handle, 0, 256))
			must(t, door.register("y", y.Handle, 1, 256))
			words := tensor.AppendBytes(tensor.AppendBytes(nil, "GPU"), "")
			x.Write(8, words)
			text := regionTensor{name: "INPUT0", dtype: "BYTES", shape: []int64{2}, region: "x", off: 8, size: len(words)}
			_, err := door.infer("text", []regionTensor{text}, []regionTensor{out(0, "y", 16, 100)}, nil)
			must(t, err)
			if got := y.Read(16, len(words)); !bytes.Equal(got, words) {
				t.Errorf("the output is %q", got)
			}
			text.shape = []int64{1, 2}
			_, err = door.infer("mixed", []regionTensor{text, plain(1, 3)}, []regionTensor{out(0, "y", 0, 100), out(1, "y", 128, 16)}, nil)
			must(t, err)
			if got := y.Read(0, len(words)); !bytes.Equal(got, words) {
				t.Errorf("the output is %q", got)
			}
			text.shape = []int64{2}
			text.size--
			wantRegionError(t, func() error { _, err := door.infer("text", []regionTensor{text}, nil, nil); return err },
				"incomplete string length indicator for inference input 'INPUT0' for model 'text', expecting 4 bytes but only 3 bytes available")
			x.Write(8, []byte{255, 255, 255, 127})
			text.size++
			wantRegionError(t, func() error { _, err := door.infer("text", []regionTensor{text}, nil, nil); return err },
				"incomplete string data for inference input 'INPUT0' for model 'text', expecting string of length 2147483647 but only 7 bytes available")
			must(t, door.unregister(""))
		})
	}
}

func wantRegionError(t *testing.T, call func() error, texts ...string) {
	t.Helper()
	err := call()
	if err == nil {
		t.Errorf("no error, want %q", texts)
		return
	}
	for _, want := range texts {
		if text := strings.ReplaceAll(err.Error()+status.Convert(err).Message(), `\u003e`, ">"); !strings.Contains(text, want) {
			t.Errorf("the error is\n%s\nwant\n%s", text, want)
		}
	}
}

// TestCUDARegionMistakes checks wrong registrations and wrong requests. The server serves on after each.
func TestCUDARegionMistakes(t *testing.T) {
	_, doors := serveRegions(t)
	for name, door := range doors {
		t.Run(name, func(t *testing.T) {
			c, dead := cudatest.NewClient(t), cudatest.NewClient(t)
			x, gone := c.Alloc(0, 64), dead.Alloc(0, 64)
			dead.Kill()
			const text = "failed to register shared memory region 'n': invalid args"
			for _, tt := range []struct {
				handle []byte
				device int64
				size   uint64
				want   string
			}{
				{x.Handle, 2, 64, text + ": there is no device_id 2, expected the number of one of the 2 GPUs that the server uses"},
				{x.Handle, -1, 64, text + ": there is no device_id -1"},
				{x.Handle, 1 << 40, 64, text + ": there is no device_id 1099511627776"},
				{x.Handle, 0, 65, text + ": expected a byte_size of 1 to 64, the size of the memory at device:0, found 65"},
				{x.Handle, 0, 0, text + ": expected a byte_size of 1 to 64"},
				{x.Handle, 0, 1<<64 - 1, text + ": expected a byte_size of 1 to 64"},
				{gone.Handle, 0, 64, text + ": the IPC handle names no memory of a running process at device:0"},
				{make([]byte, 64), 0, 64, text + ": the IPC handle names no memory of a running process at device:0"},
				{bytes.Repeat([]byte{0xff}, 64), 0, 64, text + ": the IPC handle names no memory"},
			} {
				wantRegionError(t, func() error { return door.register("n", tt.handle, tt.device, tt.size) }, tt.want)
			}
			short := text + ": expected an IPC handle of 64 bytes, found 63"
			if name == "http" {
				short = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
			}
			wantRegionError(t, func() error { return door.register("n", x.Handle[:63], 0, 64) }, short)
			if got := door.regions(); len(got) != 0 {
				t.Fatalf("regions %v", got)
			}
			must(t, door.register("x", x.Handle, 0, 64))
			must(t, door.register("again", x.Handle, 0, 32)) // the same memory by another name
			wantRegionError(t, func() error { return door.register("x", x.Handle, 0, 64) }, "shared memory region 'x' already in manager")
			x.Write(0, ints(1, 16))
			good := []regionTensor{in(0, "x", 0), plain(1, 2)}
			for _, tt := range []struct {
				in, out []regionTensor
				want    string
			}{
				{[]regionTensor{in(0, "x", 64), plain(1, 2)}, nil, "Invalid offset for shared memory region: 'x'"},
				{[]regionTensor{in(0, "x", 52), plain(1, 2)}, nil, "Invalid offset + byte size for shared memory region: 'x'"},
				{[]regionTensor{in(0, "again", 32), plain(1, 2)}, nil, "Invalid offset for shared memory region: 'again'"},
				{[]regionTensor{in(0, "n", 0), plain(1, 2)}, nil, "Unable to find shared memory region: 'n'"},
				{[]regionTensor{{name: "INPUT0", dtype: "INT32", shape: []int64{1, 4}, region: "x", size: 12}, plain(1, 2)}, nil, "input byte size mismatch for input 'INPUT0' for model 'gpu0'. Expected 16, got 12"},
				{[]regionTensor{{name: "INPUT0", dtype: "FP32", shape: []int64{1, 4}, region: "x", size: 16}, plain(1, 2)}, nil, "inference input 'INPUT0' data-type is 'FP32', but model 'gpu0' expects 'INT32'"},
				{good, []regionTensor{out(0, "x", 0, 12)}, "shared memory size specified with the request for output 'OUTPUT0' (12 bytes) should be at least 16 bytes to hold the results"},
				{good, []regionTensor{out(0, "x", 60, 16)}, "Invalid offset + byte size for shared memory region: 'x'"},
				{good, []regionTensor{out(0, "n", 0, 16)}, "Unable to find shared memory region: 'n'"},
			} {
				wantRegionError(t, func() error { _, err := door.infer("gpu0", tt.in, tt.out, nil); return err }, tt.want)
			}
			// Input and output may be the same memory, also shifted.
			for _, shift := range []int{0, 8} {
				x.Write(0, ints(1, 4))
				_, err := door.infer("onehost", []regionTensor{in(0, "x", 0)}, []regionTensor{out(0, "again", shift, 16)}, nil)
				must(t, err)
				if got := x.Read(shift, 16); !bytes.Equal(got, ints(1, 4)) {
					t.Errorf("shifted by %d: %v", shift, got)
				}
			}
			must(t, door.unregister(""))
			must(t, door.unregister("n"))
		})
	}
}
